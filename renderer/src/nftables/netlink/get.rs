//! Requests for a single nf_tables object.

use std::io;

use nix::errno::Errno;

use super::constants::{NFNL_SUBSYS_NFTABLES, NFPROTO_INET};
use crate::netlink::{
    Attributes, NetlinkError, Socket, Writer,
    message::{
        NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, begin_message, end_message, kind_of, messages,
    },
};

impl Socket {
    /// Requests the object that `fill` names, and passes on its attributes; none if it does not exist.
    pub(crate) fn get<T>(
        &mut self,
        kind: u8,
        fill: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(Attributes<'_>) -> T,
    ) -> Result<Option<T>, NetlinkError> {
        self.get_of_family(kind, NFPROTO_INET, fill, read)
    }

    /// The same in the tables of a family.
    pub(crate) fn get_of_family<T>(
        &mut self,
        kind: u8,
        family: u8,
        fill: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(Attributes<'_>) -> T,
    ) -> Result<Option<T>, NetlinkError> {
        let mut request = Vec::new();
        let kind = kind_of(NFNL_SUBSYS_NFTABLES, kind);
        begin_message(&mut request, kind, NLM_F_REQUEST, 1, family, 0);
        fill(&mut Writer::new(&mut request));
        end_message(&mut request, 0);
        self.send(&request, "ask the kernel for an object")?;
        // Without a requested acknowledgement there is one message: the answer, or an error.
        let received = self.receive("read an answer of the kernel");
        let received = self.drained(received)?;
        let Some(message) = messages(&received).next() else {
            return Ok(None);
        };
        if message.kind == NLMSG_ERROR {
            let code = -message.error_code();
            if code == Errno::ENOENT as i32 {
                return Ok(None);
            }
            return Err(refused(code));
        }
        Ok(message.object(NFNL_SUBSYS_NFTABLES).map(read))
    }
    /// Requests several objects at once, as `fill` names them, and passes each on. False if one of them does not exist.
    pub(crate) fn get_each(
        &mut self,
        kind: u8,
        family: u8,
        fill: impl FnOnce(&mut Writer<'_>),
        take: impl FnMut(Attributes<'_>),
    ) -> Result<bool, NetlinkError> {
        let mut request = Vec::new();
        let kind = kind_of(NFNL_SUBSYS_NFTABLES, kind);
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        begin_message(&mut request, kind, flags, 1, family, 0);
        fill(&mut Writer::new(&mut request));
        end_message(&mut request, 0);
        self.send(&request, "ask the kernel for objects")?;
        let result = self.receive_each(take);
        self.drained(result)
    }

    fn receive_each(&mut self, mut take: impl FnMut(Attributes<'_>)) -> Result<bool, NetlinkError> {
        loop {
            let received = self.receive("read an answer of the kernel")?;
            for message in messages(&received) {
                if message.kind != NLMSG_ERROR {
                    let object = message.object(NFNL_SUBSYS_NFTABLES);
                    object.into_iter().for_each(&mut take);
                    continue;
                }
                // Without an error it is the acknowledgement, which comes last.
                return match -message.error_code() {
                    0 => Ok(true),
                    code if code == Errno::ENOENT as i32 => Ok(false),
                    code => Err(refused(code)),
                };
            }
        }
    }
}

fn refused(code: i32) -> NetlinkError {
    NetlinkError::Refused {
        subject: "get".to_owned(),
        source: io::Error::from_raw_os_error(code),
        refusals: Vec::new(),
    }
}
