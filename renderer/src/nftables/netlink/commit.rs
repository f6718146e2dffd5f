//! A batch goes to the kernel, and the verdict comes back.

use std::io;

use super::batch::Batch;
use crate::netlink::{
    NetlinkError, Socket,
    message::{NLMSG_ERROR, messages},
};

impl Socket {
    /// Sends a batch and waits for the verdict. Returns the bytes sent.
    pub(crate) fn commit(&mut self, mut batch: Batch) -> Result<usize, NetlinkError> {
        let (bytes, last) = batch.finish();
        let length = bytes.len();
        self.send(bytes, "send a batch to the kernel")?;
        let mut refusal = None;
        loop {
            let received = self.receive("hear the kernel's verdict")?;
            for message in messages(&received) {
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                let code = message.error_code();
                if code != 0 && refusal.is_none() {
                    let subject =
                        batch.subject(message.sequence).unwrap_or("the batch as a whole").to_owned();
                    refusal =
                        Some(NetlinkError::Refused { subject, source: io::Error::from_raw_os_error(-code) });
                }
                // A failure of the whole batch is reported for its first message (sequence number 0).
                if message.sequence == last || message.sequence == 0 {
                    return refusal.map_or(Ok(length), Err);
                }
            }
        }
    }
}
