//! The interfaces of this node. Sources: the kernel's `include/uapi/linux/if_link.h`, `if.h` and `rtnetlink.h`.

use std::collections::BTreeMap;

use contiv_model::InterfaceName;
use serde::Serialize;

use super::{
    PathError,
    kernel_socket::{KernelSocket, native_number, number_at},
};
use crate::netlink::Attributes;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
/// The length of `struct ifinfomsg`, and the offsets of its index and its flags.
const LINK_HEADER: usize = 16;
const INDEX: usize = 4;
const FLAGS: usize = 8;

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_LOWER_UP: u32 = 1 << 16;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
/// The network namespace to ask about, by its number in this one.
const IFLA_TARGET_NETNSID: u16 = 46;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `RTEXT_FILTER_SKIP_STATS`: counters are of no interest.
const SKIP_STATS: u32 = 1 << 3;

/// A network interface.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are flags of the kernel, each with its own meaning"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Its number in this network namespace.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
    /// It was switched on: `ip link set NAME up`.
    pub is_up: bool,
    /// The other end is there: the cable, or the peer of a veth.
    pub has_carrier: bool,
    /// The state that the kernel derives from both.
    pub state: LinkState,
    /// It is the loopback interface.
    pub is_loopback: bool,
    /// The largest packet in bytes.
    pub mtu: u32,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<InterfaceName>,
    /// Its kind, as in "veth", "bridge", "vxlan", "vrf"; none for devices.
    pub kind: Option<String>,
    /// A program of XDP sees its packets first.
    pub has_xdp: bool,
    /// The interface that it belongs to: its peer, or the one below it.
    pub linked: Option<LinkedInterface>,
}

/// The interface that another one belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkedInterface {
    /// Its number in its network namespace.
    pub index: u32,
    /// The number that its network namespace has in this one; none if it is this one.
    pub namespace: Option<u32>,
}

/// The operational state of an interface: `IF_OPER_UP` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// Its driver does not tell; packets pass.
    Unknown,
    /// It has no device.
    NotPresent,
    /// Nothing passes.
    Down,
    /// The interface below it is down.
    LowerLayerDown,
    /// It is being tested.
    Testing,
    /// It waits for another event, such as an authentication.
    Dormant,
    /// Packets pass.
    Up,
}

impl LinkState {
    const fn of(number: u8) -> Self {
        match number {
            1 => Self::NotPresent,
            2 => Self::Down,
            3 => Self::LowerLayerDown,
            4 => Self::Testing,
            5 => Self::Dormant,
            6 => Self::Up,
            _ => Self::Unknown,
        }
    }
}

/// All interfaces at one time.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_index: BTreeMap<u32, Link>,
}

impl Links {
    /// Lists them.
    pub(super) fn list(socket: &mut KernelSocket) -> Result<Self, PathError> {
        let mut found = Vec::new();
        socket.dump(
            [RTM_GETLINK, RTM_NEWLINK],
            &[0; LINK_HEADER],
            |request| request.bytes(IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes()),
            |message| found.extend(read(message)),
        )?;
        Ok(Self::new(found))
    }

    /// Of links, each with the index of its master.
    fn new(found: Vec<(Link, Option<u32>)>) -> Self {
        let names: BTreeMap<u32, InterfaceName> = found
            .iter()
            .map(|(link, _)| (link.index, link.name.clone()))
            .collect();
        let with_master = |(link, master): (Link, Option<u32>)| {
            let master = master.and_then(|index| names.get(&index).cloned());
            (link.index, Link { master, ..link })
        };
        Self {
            by_index: found.into_iter().map(with_master).collect(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.by_index.values()
    }

    pub(super) fn by_index(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index)
    }

    pub(super) fn by_name(&self, name: &InterfaceName) -> Option<&Link> {
        self.by_index.values().find(|link| link.name == *name)
    }
}

/// The MTU of an interface of another network namespace; none if the kernel does not tell.
pub(super) fn mtu_elsewhere(
    socket: &mut KernelSocket,
    index: u32,
    namespace: u32,
) -> Result<Option<u32>, PathError> {
    let mut header = [0; LINK_HEADER];
    header[INDEX..INDEX + 4].copy_from_slice(&index.to_ne_bytes());
    let answer = socket.look_up(RTM_GETLINK, &header, |request| {
        request.bytes(IFLA_TARGET_NETNSID, &namespace.to_ne_bytes());
        request.bytes(IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes());
    })?;
    let link = answer.ok().and_then(|message| read(&message));
    Ok(link.map(|(link, _)| link.mtu))
}

/// Reads a link, and the index of its master.
fn read(message: &[u8]) -> Option<(Link, Option<u32>)> {
    let attributes = Attributes(message.get(LINK_HEADER..)?);
    let flags = number_at(message, FLAGS)?;
    let kind = attributes
        .nested(IFLA_LINKINFO)
        .and_then(|info| info.text(IFLA_INFO_KIND));
    let attached = attributes
        .nested(IFLA_XDP)
        .and_then(|xdp| xdp.get(IFLA_XDP_ATTACHED)?.first().copied());
    let state = attributes
        .get(IFLA_OPERSTATE)
        .and_then(|state| state.first().copied());
    let link = Link {
        index: number_at(message, INDEX)?,
        name: InterfaceName::new(attributes.text(IFLA_IFNAME)?),
        is_up: flags & IFF_UP != 0,
        has_carrier: flags & IFF_LOWER_UP != 0,
        state: LinkState::of(state.unwrap_or(0)),
        is_loopback: flags & IFF_LOOPBACK != 0,
        mtu: native_number(attributes.get(IFLA_MTU)).unwrap_or(0),
        master: None,
        kind: kind.map(str::to_owned),
        has_xdp: attached.is_some_and(|attached| attached != 0),
        linked: native_number(attributes.get(IFLA_LINK)).map(|index| LinkedInterface {
            index,
            namespace: native_number(attributes.get(IFLA_LINK_NETNSID)),
        }),
    };
    Some((link, native_number(attributes.get(IFLA_MASTER))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;

    fn message(index: u32, name: &str, flags: u32, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = vec![0; LINK_HEADER];
        bytes[INDEX..INDEX + 4].copy_from_slice(&index.to_ne_bytes());
        bytes[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_ne_bytes());
        let mut writer = Writer::new(&mut bytes);
        writer.text(IFLA_IFNAME, name);
        writer.bytes(IFLA_MTU, &1400_u32.to_ne_bytes());
        fill(&mut writer);
        bytes
    }

    #[test]
    fn link_is_read_with_kind_and_master() {
        let bridge = message(7, "cni0", IFF_UP, |writer| {
            writer.u8(IFLA_OPERSTATE, 2);
            writer.nested(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
        });
        let port = message(9, "veth9", IFF_UP | IFF_LOWER_UP, |writer| {
            writer.bytes(IFLA_MASTER, &7_u32.to_ne_bytes());
            writer.u8(IFLA_OPERSTATE, 6);
            writer.nested(IFLA_XDP, |xdp| xdp.u8(IFLA_XDP_ATTACHED, 2));
        });
        let links = Links::new([bridge, port].iter().filter_map(|it| read(it)).collect());
        let bridge = links.by_name(&InterfaceName::new("cni0")).unwrap();
        assert_eq!(
            (
                bridge.kind.as_deref(),
                bridge.state,
                bridge.has_carrier,
                bridge.mtu
            ),
            (Some("bridge"), LinkState::Down, false, 1400)
        );
        let port = links.by_index(9).unwrap();
        assert_eq!(port.master, Some(InterfaceName::new("cni0")));
        assert!(port.has_xdp && port.has_carrier && port.is_up && !port.is_loopback);
        assert!(links.by_name(&InterfaceName::new("eth0")).is_none());
    }

    #[test]
    fn message_cut_short_is_no_link() {
        let whole = message(7, "cni0", 0, |_| ());
        for end in 0..LINK_HEADER {
            assert!(read(&whole[..end]).is_none(), "cut off after {end}");
        }
        assert!(read(&whole[..LINK_HEADER]).is_none(), "without a name");
    }
}
