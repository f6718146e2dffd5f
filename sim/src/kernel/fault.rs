//! Faults to inject into the next matching request.

use super::errno::Errno;

/// Something that goes wrong once, with the next request that it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A message of the next batch is refused, and with it the batch.
    RefuseMessage {
        /// Which one, from 0. A batch of fewer messages is not concerned, and the fault waits for one of more.
        message: usize,
        /// As what.
        errno: Errno,
    },
    /// The next batch is refused when it is to be committed.
    RefuseBatch(Errno),
    /// The next request is not taken at all: no room, or no permission.
    RefuseSending(Errno),
    /// The next request is done, and its answer is lost for want of room: `ENOBUFS`.
    LoseAnswer,
    /// The next dump is marked as inconsistent, as if something had changed meanwhile.
    InterruptDump,
}

/// The faults that hit a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) forced: Option<super::batch::Forced>,
    pub(super) sending: Option<Errno>,
    pub(super) loses_answer: bool,
    pub(super) is_interrupted: bool,
}

/// A request, as far as faults tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Batch { messages: usize },
    Dump,
    Other,
}

/// Takes out what a request meets.
pub(super) fn take(waiting: &mut Vec<Fault>, request: Request) -> Faults {
    let mut met = Faults::default();
    waiting.retain(|fault| {
        match (*fault, request) {
            (Fault::RefuseSending(errno), _) if met.sending.is_none() => met.sending = Some(errno),
            (Fault::RefuseMessage { message, errno }, Request::Batch { messages })
                if met.forced.is_none() && message < messages =>
            {
                met.forced = Some(super::batch::Forced { message: Some(message), errno });
            }
            (Fault::RefuseBatch(errno), Request::Batch { .. }) if met.forced.is_none() => {
                met.forced = Some(super::batch::Forced { message: None, errno });
            }
            (Fault::LoseAnswer, _) if !met.loses_answer => met.loses_answer = true,
            (Fault::InterruptDump, Request::Dump) if !met.is_interrupted => met.is_interrupted = true,
            _ => return true,
        }
        false
    });
    met
}
