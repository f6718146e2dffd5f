//! What rules look up in the kernel while a packet is followed: elements of sets, and interfaces.

use std::net::IpAddr;

use contiv_model::InterfaceName;

use super::{
    PathError,
    ruleset::{Data, IpSetMatch, Limit, RecentList, SetRef},
    state::PacketState,
};

/// The greatest number of elements that are looked at if the key is unknown.
pub(super) const MAX_LISTED_ELEMENTS: usize = 256;

/// Elements of sets, and interfaces. The kernel answers; tests have a small table instead.
pub(super) trait RuleLookups {
    /// The element that the kernel finds for a key; none if there is none, or it has expired.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn find_element(
        &mut self,
        set: SetRef<'_>,
        key: &[u8],
    ) -> Result<Option<SetElement>, PathError>;

    /// The data of all elements; none if they are too many: [`MAX_LISTED_ELEMENTS`].
    ///
    /// # Errors
    /// When the kernel refuses.
    fn list_elements(&mut self, set: SetRef<'_>) -> Result<Option<Vec<Data>>, PathError>;

    /// The number of an interface.
    fn interface_index(&mut self, name: &InterfaceName) -> Option<u32>;

    /// The first address of an interface, of a family.
    fn interface_address(&mut self, name: &InterfaceName, is_v4: bool) -> Option<IpAddr>;

    /// Decides a random choice among so many, as one of them; none if it stays unknown.
    fn choose(&mut self, _count: u32) -> Option<u32> {
        None
    }

    /// The same for a hash of the packet's addresses.
    fn choose_by_hash(&mut self, _count: u32) -> Option<u32> {
        None
    }

    /// A rule adds an element to this set, for these seconds if they are not the set's.
    fn on_update(&mut self, _set: SetRef<'_>, _timeout: Option<u32>) {}

    /// Whether the match `recent` of iptables finds the client in one of its lists; none if that stays unknown.
    fn is_recent(&mut self, _list: &RecentList) -> Option<bool> {
        None
    }

    /// Whether the packet is in a set of `ipset`; none if that stays unknown.
    fn is_in_ip_set(&mut self, _set: &IpSetMatch, _packet: &PacketState) -> Option<bool> {
        None
    }
}

/// An element of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetElement {
    /// Its data.
    pub(super) data: Data,
    /// Conditions on the rate of the packets that it matches.
    pub(super) limits: Vec<Limit>,
}
