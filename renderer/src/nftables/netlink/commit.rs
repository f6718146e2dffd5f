//! Sends a batch to the kernel, and reads the result.

use std::io;

use nix::errno::Errno;

use super::{
    batch::Batch,
    constants::{generation, msg},
};
use crate::netlink::{
    NetlinkError, Refusal, Socket,
    message::{Message, NLMSG_ERROR, messages},
};

/// A batch of more bytes than this is committed while our listener has left the group.
const MAX_SUBSCRIBED_BATCH_BYTES: usize = 64 << 10;

impl Socket {
    /// Sends a batch and waits for the result. Returns the number of bytes sent.
    pub(crate) fn commit(&mut self, batch: Batch) -> Result<usize, NetlinkError> {
        let result = match &self.membership {
            Some(_) if batch.len() > MAX_SUBSCRIBED_BATCH_BYTES => self.commit_unsubscribed(batch),
            _ => self.send_and_receive(batch),
        };
        self.drained(result)
    }

    /// Commits while our listener has left the group, and notifies it if it missed a foreign transaction.
    fn commit_unsubscribed(&mut self, batch: Batch) -> Result<usize, NetlinkError> {
        let Some(membership) = self.membership.take() else {
            return self.send_and_receive(batch);
        };
        let before = self.generation()?;
        let failed = |action| move |source| NetlinkError::Socket { action, source };
        membership
            .leave()
            .map_err(failed("leave the group of listeners"))?;
        let result = self.send_and_receive(batch);
        // If any of this fails the membership is gone, which ends the listener, and it is started again.
        membership
            .rejoin()
            .map_err(failed("join the group of listeners again"))?;
        if self.generation()? != before.wrapping_add(result.is_ok().into()) {
            membership.report_missed();
        }
        self.membership = Some(membership);
        result
    }

    fn send_and_receive(&mut self, mut batch: Batch) -> Result<usize, NetlinkError> {
        let (bytes, last) = batch.finish();
        let length = bytes.len();
        self.send(bytes, "send a batch to the kernel")?;
        let mut refused = None;
        let mut refusals = Vec::new();
        loop {
            let received = self.receive("receive the kernel's verdict")?;
            for message in messages(&received) {
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                let code = message.error_code();
                if code != 0 {
                    refusals.extend(refusal(&batch, &message));
                    refused.get_or_insert((message.sequence, code));
                }
                // A failure of the whole batch is reported for its first message (sequence number 0).
                // Out of memory, the kernel forgets all other answers: the only one names the first message.
                let is_last = message.sequence == last || message.sequence == 0;
                if is_last || code == -(Errno::ENOMEM as i32) {
                    let Some((sequence, code)) = refused else {
                        return Ok(length);
                    };
                    let subject = batch
                        .subject(sequence)
                        .unwrap_or_else(|| "the batch as a whole".to_owned());
                    let source = io::Error::from_raw_os_error(-code);
                    return Err(NetlinkError::Refused {
                        subject,
                        source,
                        refusals,
                    });
                }
            }
        }
    }

    /// The generation of the ruleset: increased by each transaction.
    pub(crate) fn generation(&mut self) -> Result<u32, NetlinkError> {
        let generation = self.get(msg::GETGEN, |_| (), |object| object.u32(generation::ID))?;
        generation.flatten().ok_or_else(|| NetlinkError::Socket {
            action: "read the generation",
            source: io::Error::other("the kernel did not say it"),
        })
    }
}

fn refusal(batch: &Batch, answer: &Message<'_>) -> Option<Refusal> {
    let message = batch.message_bytes(answer.sequence)?.to_vec();
    let of_system = || io::Error::from_raw_os_error(-answer.error_code()).to_string();
    let reason = answer.error_text().map_or_else(of_system, str::to_owned);
    Some(Refusal {
        message,
        offset: answer.error_offset(),
        errno: -answer.error_code(),
        reason,
    })
}
