//! Faults to inject into the next matching request.

use super::errno::Errno;

/// A fault that is injected once, into the next matching request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A message of the next batch is refused, and with it the batch.
    RefuseMessage {
        /// The index of the message. The fault waits for a batch with that many messages.
        message: usize,
        /// The error.
        errno: Errno,
    },
    /// The next batch is refused at its commit.
    RefuseBatch(Errno),
    /// Sending the next request fails: no buffer space, or no permission.
    RefuseSending(Errno),
    /// The next request is handled, and its answer is lost because the socket buffer is full: `ENOBUFS`.
    LoseAnswer,
    /// The next dump is marked as inconsistent, as after a concurrent change.
    InterruptDump,
}

/// The faults that hit a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) injected: Option<super::batch::InjectedError>,
    pub(super) sending: Option<Errno>,
    pub(super) loses_answer: bool,
    pub(super) is_interrupted: bool,
}

/// The kind of a request, for the matching of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Batch { messages: usize },
    Dump,
    Other,
}

/// Takes the faults that match a request.
pub(super) fn take(waiting: &mut Vec<Fault>, request: Request) -> Faults {
    let mut met = Faults::default();
    waiting.retain(|fault| {
        match (*fault, request) {
            (Fault::RefuseSending(errno), _) if met.sending.is_none() => met.sending = Some(errno),
            (Fault::RefuseMessage { message, errno }, Request::Batch { messages })
                if met.injected.is_none() && message < messages =>
            {
                met.injected = Some(super::batch::InjectedError {
                    message: Some(message),
                    errno,
                });
            }
            (Fault::RefuseBatch(errno), Request::Batch { .. }) if met.injected.is_none() => {
                met.injected = Some(super::batch::InjectedError {
                    message: None,
                    errno,
                });
            }
            (Fault::LoseAnswer, _) if !met.loses_answer => met.loses_answer = true,
            (Fault::InterruptDump, Request::Dump) if !met.is_interrupted => {
                met.is_interrupted = true;
            }
            _ => return true,
        }
        false
    });
    met
}
