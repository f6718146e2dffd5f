//! Lookups and dumps with a netlink socket of any protocol.

use crate::{
    kernel::NetlinkProtocol,
    linux::Linux,
    netlink::{
        NetlinkError, Socket, Writer,
        message::{NLM_F_ACK, NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR, messages, request},
    },
};

use super::PathError;

/// A socket that only reads.
#[derive(Debug)]
pub(super) struct KernelSocket {
    socket: Socket,
    /// The number of the last request, which its answers repeat.
    sequence: u32,
}

impl KernelSocket {
    /// Opens one in the network namespace of the calling thread.
    pub(super) fn open(protocol: NetlinkProtocol) -> Result<Self, PathError> {
        let socket =
            Socket::open_for(&Linux::shared(), protocol).map_err(|error| failed(&error))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Asks for one object: its message without the header of netlink, or the error number that the kernel answers.
    pub(super) fn look_up(
        &mut self,
        kind: u16,
        header: &[u8],
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Result<Vec<u8>, i32>, PathError> {
        self.exchange(kind, 0, header, fill)
    }

    /// The same for a request that the kernel may only confirm: then the error number is 0.
    pub(super) fn look_up_or_confirm(
        &mut self,
        kind: u16,
        header: &[u8],
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Result<Vec<u8>, i32>, PathError> {
        self.exchange(kind, NLM_F_ACK, header, fill)
    }

    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        header: &[u8],
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Result<Vec<u8>, i32>, PathError> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, flags, self.sequence, header, fill);
        let sent = self.socket.send(&request, "ask the kernel");
        sent.map_err(|error| failed(&error))?;
        loop {
            let received = self.socket.receive("read the kernel's answer");
            let received = self
                .socket
                .drained(received)
                .map_err(|error| failed(&error))?;
            let mut answers = messages(&received);
            let Some(answer) = answers.find(|answer| answer.sequence == self.sequence) else {
                continue;
            };
            return Ok(if answer.kind == NLMSG_ERROR {
                Err(-answer.error_code())
            } else {
                Ok(answer.payload().to_vec())
            });
        }
    }

    /// Lists objects: passes on each message of the kind `listed` without the header of netlink.
    pub(super) fn dump(
        &mut self,
        [kind, listed]: [u16; 2],
        header: &[u8],
        fill: impl FnOnce(&mut Writer<'_>),
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), PathError> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, NLM_F_DUMP, self.sequence, header, fill);
        let mut refusal = 0;
        let streamed = self.socket.stream(&request, |piece| {
            for message in messages(&piece) {
                if message.kind == listed {
                    take(message.payload());
                } else if message.kind == NLMSG_DONE {
                    refusal = -message.error_code();
                }
            }
        });
        streamed.map_err(|error| failed(&error))?;
        if refusal > 0 {
            let error = std::io::Error::from_raw_os_error(refusal);
            return Err(PathError(format!("the kernel refused to list: {error}")));
        }
        Ok(())
    }
}

fn failed(error: &NetlinkError) -> PathError {
    PathError(
        error
            .with_advice("answer about the network of this node")
            .to_string(),
    )
}

/// A number of four bytes at an offset of a message.
pub(super) fn number_at(message: &[u8], offset: usize) -> Option<u32> {
    let bytes = message.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// The number of an attribute, in the order of this machine.
pub(super) fn native_number(bytes: Option<&[u8]>) -> Option<u32> {
    bytes?.try_into().ok().map(u32::from_ne_bytes)
}

/// The bytes of an address.
pub(super) fn octets(address: std::net::IpAddr) -> Vec<u8> {
    match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address with these bytes.
pub(super) fn address_of(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
        _ => None,
    }
}

/// `AF_INET` or `AF_INET6`.
pub(super) const fn family_of(address: std::net::IpAddr) -> u8 {
    match address {
        std::net::IpAddr::V4(_) => 2,
        std::net::IpAddr::V6(_) => 10,
    }
}
