//! Neighbours, and the addresses of this node's interfaces. Sources: the kernel's `include/uapi/linux/neighbour.h` and `if_addr.h`.

use std::net::IpAddr;

use contiv_model::InterfaceName;
use ipnetwork::IpNetwork;
use nix::libc::{ENODEV, ENOENT};
use serde::Serialize;

use super::{
    PathError,
    kernel_socket::{KernelSocket, address_of, family_of, native_number, number_at, octets},
    links::{Link, Links},
};
use crate::netlink::Attributes;

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
/// The length of `struct ndmsg`, and the offsets of its interface and its state.
const NEIGHBOUR_HEADER: usize = 12;
const NEIGHBOUR_INTERFACE: usize = 4;
const NEIGHBOUR_STATE: usize = 8;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_CACHEINFO: u16 = 3;
const NDA_PROBES: u16 = 4;
/// The offset of `ndm_updated` in `struct nda_cacheinfo`, in hundredths of a second.
const CACHEINFO_UPDATED: usize = 8;

/// A failure as old as this says that the neighbour is not there now.
const FAILURE_RELEVANCE_SECONDS: u32 = 60;

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
    /// How many seconds ago its state changed.
    pub age: u32,
    /// How often it was asked for since without an answer.
    pub probes: u32,
}

impl Neighbour {
    /// True if it did not answer when it was asked for not long ago: it is there no more. One that was asked for long ago may be back, and
    /// one that was just asked for the first time may answer.
    pub const fn has_failed_lately(&self) -> bool {
        match self.state {
            NeighbourState::Failed => self.age <= FAILURE_RELEVANCE_SECONDS,
            NeighbourState::Incomplete => self.probes > 1,
            _ => false,
        }
    }
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
        // The interface may be gone since it was listed.
        Err(ENOENT | ENODEV) => Ok(None),
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
        age: (attributes.get(NDA_CACHEINFO))
            .and_then(|info| number_at(info, CACHEINFO_UPDATED))
            .map_or(0, |updated| updated / 100),
        probes: native_number(attributes.get(NDA_PROBES)).unwrap_or_default(),
    })
}

/// The indexes of the interfaces on whose links another machine has answered for an address.
pub(super) fn interfaces_of(
    socket: &mut KernelSocket,
    address: IpAddr,
) -> Result<Vec<u32>, PathError> {
    let mut header = [0; NEIGHBOUR_HEADER];
    header[0] = family_of(address);
    let mut found = Vec::new();
    let kinds = [RTM_GETNEIGH, RTM_NEWNEIGH];
    socket.dump(
        kinds,
        &header,
        |_| (),
        |message| {
            let attributes = Attributes(message.get(NEIGHBOUR_HEADER..).unwrap_or_default());
            let is_it = attributes.get(NDA_DST).and_then(address_of) == Some(address);
            let neighbour = read_neighbour(message).filter(|_| is_it);
            if neighbour.is_some_and(|it| it.link_address.is_some() && !it.state.has_failed()) {
                found.extend(number_at(message, NEIGHBOUR_INTERFACE));
            }
        },
    )?;
    Ok(found)
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
        self.network()
            .is_some_and(|network| network.contains(address))
    }

    /// Its network; none if nobody else is in it, and for link-local ones, which every interface has.
    pub(super) fn network(&self) -> Option<IpNetwork> {
        let (full, is_link_local) = match self.address {
            IpAddr::V4(address) => (32, address.is_link_local()),
            IpAddr::V6(address) => (128, address.is_unicast_link_local()),
        };
        let network = IpNetwork::new(self.address, self.prefix).ok();
        network.filter(|_| self.prefix < full && !is_link_local)
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
                link_address: None,
                age: 0,
                probes: 0,
            })
        );
        let mut info = [0; 16];
        info[CACHEINFO_UPDATED..CACHEINFO_UPDATED + 4].copy_from_slice(&6150_u32.to_ne_bytes());
        Writer::new(&mut message).bytes(NDA_CACHEINFO, &info);
        Writer::new(&mut message).bytes(NDA_PROBES, &3_u32.to_ne_bytes());
        let read = read_neighbour(&message).unwrap();
        assert_eq!((read.age, read.probes), (61, 3));
        Writer::new(&mut message).bytes(NDA_LLADDR, &[2, 0, 0, 0, 0, 0xa1]);
        let link_address = read_neighbour(&message).and_then(|found| found.link_address);
        assert_eq!(link_address.as_deref(), Some("02:00:00:00:00:a1"));
        for end in 0..NEIGHBOUR_HEADER {
            assert_eq!(read_neighbour(&message[..end]), None, "cut off after {end}");
        }
    }

    #[test]
    fn neighbour_has_failed_lately_only_if_it_was_asked_for_lately() {
        let neighbour = |state, age, probes| Neighbour {
            state,
            link_address: None,
            age,
            probes,
        };
        for (state, age, probes, expected) in [
            (NeighbourState::Failed, 3, 0, true),
            (NeighbourState::Failed, 61, 0, false),
            (NeighbourState::Incomplete, 0, 3, true),
            (NeighbourState::Incomplete, 0, 1, false),
            (NeighbourState::Stale, 0, 0, false),
        ] {
            let neighbour = neighbour(state, age, probes);
            assert_eq!(neighbour.has_failed_lately(), expected, "{neighbour:?}");
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
