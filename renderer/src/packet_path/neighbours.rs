//! Neighbours, and the addresses of this node's interfaces. Sources: the kernel's `include/uapi/linux/neighbour.h` and `if_addr.h`.

use std::net::IpAddr;

use contiv_model::InterfaceName;
use ipnetwork::IpNetwork;
use nix::libc::ENOENT;
use serde::Serialize;

use super::{
    PathError,
    kernel_socket::{KernelSocket, address_of, family_of, native_number, number_at, octets},
    links::{Link, Links},
};
use crate::netlink::Attributes;

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_GETNEIGH: u16 = 30;
/// The length of `struct ndmsg`, and the offsets of its interface and its state.
const NEIGHBOUR_HEADER: usize = 12;
const NEIGHBOUR_INTERFACE: usize = 4;
const NEIGHBOUR_STATE: usize = 8;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// The length of `struct ifaddrmsg`, and the offsets of its prefix length, its flags and its interface.
const ADDRESS_HEADER: usize = 8;
const ADDRESS_PREFIX: usize = 1;
const ADDRESS_FLAGS: usize = 2;
const ADDRESS_INTERFACE: usize = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;

/// What the kernel knows about an address on the link of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// Whether it is reachable.
    pub state: NeighbourState,
    /// Its link-layer address, as in "02:00:00:00:00:01"; none if it is not known.
    pub link_address: Option<String>,
}

/// The state of a neighbour: `NUD_REACHABLE` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourState {
    /// It is asked for, and has not answered yet.
    Incomplete,
    /// It answered not long ago.
    Reachable,
    /// It answered once, and is asked again when a packet for it comes.
    Stale,
    /// A packet was sent to it; it is asked if nothing comes back.
    Delay,
    /// It is asked again.
    Probe,
    /// It does not answer.
    Failed,
    /// The link needs no addresses.
    NoArp,
    /// Somebody fixed its link-layer address.
    Permanent,
    /// No state: it was just made.
    None,
}

impl NeighbourState {
    /// It was asked for, and has not answered.
    pub const fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Incomplete)
    }

    const fn of(bits: u16) -> Self {
        match bits {
            0x01 => Self::Incomplete,
            0x02 => Self::Reachable,
            0x04 => Self::Stale,
            0x08 => Self::Delay,
            0x10 => Self::Probe,
            0x20 => Self::Failed,
            0x40 => Self::NoArp,
            0x80 => Self::Permanent,
            _ => Self::None,
        }
    }
}

/// An interface that has an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceAddress {
    /// The interface.
    pub interface: InterfaceName,
    /// Whether another machine has it too is not known yet, so the kernel does not use it.
    pub is_tentative: bool,
    /// Another machine has it too (`dadfailed`), so the kernel does not use it.
    pub is_duplicate: bool,
    /// It is not to be used for new connections of this node.
    pub is_deprecated: bool,
}

/// Asks for a neighbour; none if the kernel does not have it.
pub(super) fn neighbour(
    socket: &mut KernelSocket,
    link: &Link,
    address: IpAddr,
) -> Result<Option<Neighbour>, PathError> {
    let mut header = [0; NEIGHBOUR_HEADER];
    header[0] = family_of(address);
    header[NEIGHBOUR_INTERFACE..NEIGHBOUR_STATE].copy_from_slice(&link.index.to_ne_bytes());
    let answer = socket.look_up(RTM_GETNEIGH, &header, |request| {
        request.bytes(NDA_DST, &octets(address));
    });
    match answer? {
        Ok(message) => Ok(read_neighbour(&message)),
        Err(ENOENT) => Ok(None),
        Err(code) => {
            let error = std::io::Error::from_raw_os_error(code);
            Err(PathError(format!(
                "the kernel does not tell of the neighbour {address}: {error}"
            )))
        }
    }
}

fn read_neighbour(message: &[u8]) -> Option<Neighbour> {
    let state = message.get(NEIGHBOUR_STATE..)?.first_chunk()?;
    let attributes = Attributes(message.get(NEIGHBOUR_HEADER..)?);
    let link_address = attributes.get(NDA_LLADDR).filter(|bytes| !bytes.is_empty());
    let text = |bytes: &[u8]| {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.join(":")
    };
    Some(Neighbour {
        state: NeighbourState::of(u16::from_ne_bytes(*state)),
        link_address: link_address.map(text),
    })
}

/// The interfaces that have an address.
pub(super) fn interfaces_with(
    socket: &mut KernelSocket,
    links: &Links,
    address: IpAddr,
) -> Result<Vec<InterfaceAddress>, PathError> {
    let found = addresses(socket, family_of(address))?;
    let has_it = found.into_iter().filter(|own| own.address == address);
    let interface = |own: OwnAddress| {
        Some(InterfaceAddress {
            interface: links.by_index(own.interface)?.name.clone(),
            is_tentative: own.flags & IFA_F_TENTATIVE != 0,
            is_duplicate: own.flags & IFA_F_DADFAILED != 0,
            is_deprecated: own.flags & IFA_F_DEPRECATED != 0,
        })
    };
    Ok(has_it.filter_map(interface).collect())
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnAddress {
    address: IpAddr,
    prefix: u8,
    /// The index of the interface.
    pub(super) interface: u32,
    flags: u32,
}

impl OwnAddress {
    /// True if another machine of its network has this address.
    pub(super) fn reaches(&self, address: IpAddr) -> bool {
        let full = if self.address.is_ipv4() { 32 } else { 128 };
        self.prefix < full
            && IpNetwork::new(self.address, self.prefix)
                .is_ok_and(|network| network.contains(address))
    }
}

/// The addresses of a family.
pub(super) fn addresses(
    socket: &mut KernelSocket,
    family: u8,
) -> Result<Vec<OwnAddress>, PathError> {
    let mut header = [0; ADDRESS_HEADER];
    header[0] = family;
    let mut found = Vec::new();
    let kinds = [RTM_GETADDR, RTM_NEWADDR];
    socket.dump(
        kinds,
        &header,
        |_| (),
        |message| found.extend(read_address(message)),
    )?;
    Ok(found)
}

/// An address. On a point-to-point link `IFA_ADDRESS` is the peer's.
fn read_address(message: &[u8]) -> Option<OwnAddress> {
    let attributes = Attributes(message.get(ADDRESS_HEADER..)?);
    let own = attributes
        .get(IFA_LOCAL)
        .or_else(|| attributes.get(IFA_ADDRESS))?;
    let flags = native_number(attributes.get(IFA_FLAGS))
        .unwrap_or_else(|| u32::from(message[ADDRESS_FLAGS]));
    Some(OwnAddress {
        address: address_of(own)?,
        prefix: message[ADDRESS_PREFIX],
        interface: number_at(message, ADDRESS_INTERFACE)?,
        flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;

    #[test]
    fn neighbour_is_read_with_state_and_link_address() {
        let mut message = vec![0; NEIGHBOUR_HEADER];
        message[NEIGHBOUR_STATE..NEIGHBOUR_STATE + 2].copy_from_slice(&0x80_u16.to_ne_bytes());
        assert_eq!(
            read_neighbour(&message),
            Some(Neighbour {
                state: NeighbourState::Permanent,
                link_address: None
            })
        );
        Writer::new(&mut message).bytes(NDA_LLADDR, &[2, 0, 0, 0, 0, 0xa1]);
        let link_address = read_neighbour(&message).and_then(|found| found.link_address);
        assert_eq!(link_address.as_deref(), Some("02:00:00:00:00:a1"));
        for end in 0..NEIGHBOUR_HEADER {
            assert_eq!(read_neighbour(&message[..end]), None, "cut off after {end}");
        }
    }

    #[test]
    fn own_address_is_not_that_of_the_peer() {
        let mut message = vec![0; ADDRESS_HEADER];
        message[ADDRESS_FLAGS] = 0x20;
        message[ADDRESS_INTERFACE] = 7;
        let mut writer = Writer::new(&mut message);
        writer.bytes(IFA_ADDRESS, &[10, 0, 0, 2]);
        let peer: IpAddr = "10.0.0.2".parse().unwrap();
        let index = u32::from_ne_bytes([7, 0, 0, 0]);
        message[ADDRESS_PREFIX] = 24;
        let found = |address, flags| {
            Some(OwnAddress {
                address,
                prefix: 24,
                interface: index,
                flags,
            })
        };
        assert_eq!(read_address(&message), found(peer, 0x20));
        let mut writer = Writer::new(&mut message);
        writer.bytes(IFA_LOCAL, &[10, 0, 0, 1]);
        writer.bytes(IFA_FLAGS, &0x48_u32.to_ne_bytes());
        let own: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(read_address(&message), found(own, 0x48));
        let read = read_address(&message).unwrap();
        let reaches = |address: &str| read.reaches(address.parse().unwrap());
        assert!(reaches("10.0.0.9") && !reaches("10.0.1.9"));
        message[ADDRESS_PREFIX] = 32;
        let host = read_address(&message).unwrap();
        assert!(!host.reaches(own), "a host route reaches nobody");
        assert_eq!(read_address(&message[..ADDRESS_HEADER - 1]), None);
    }
}
