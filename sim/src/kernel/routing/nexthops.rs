//! Next hops and their groups.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    constants::{DELNEXTHOP, NEWNEXTHOP, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE},
    object::Object,
};
use crate::kernel::errno::{Errno, Result, refuse};

pub(super) const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
/// `struct nexthop_grp`: ID, weight less one, three reserved bytes.
const MEMBER_BYTES: usize = 8;

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(super) struct NextHops(BTreeMap<u32, Object>);

impl NextHops {
    pub(super) fn contains(&self, id: u32) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Object> {
        self.0.values()
    }

    pub(super) fn nth(&self, at: usize) -> Option<u32> {
        self.0.keys().nth(at % self.0.len().max(1)).copied()
    }

    pub(super) fn listing(&self) -> impl Iterator<Item = String> {
        self.0.values().map(|object| format!("nexthop {object:?}"))
    }

    /// The gateways of a group's members.
    pub(super) fn gateways(&self, group: u32) -> BTreeSet<IpAddr> {
        let members = self.0.get(&group).map(members).unwrap_or_default();
        members
            .iter()
            .filter_map(|(id, _)| self.0.get(id)?.address(NHA_GATEWAY))
            .collect()
    }

    /// Adds or replaces one, as the flags say.
    pub(super) fn add(
        &mut self,
        object: Object,
        flags: u16,
        links: &BTreeMap<u32, bool>,
    ) -> Result<()> {
        let id = object.number(NHA_ID);
        let is_there = self.contains(id);
        let is_group = object.attributes.contains_key(&NHA_GROUP);
        if id == 0
            || is_group
                && members(&object)
                    .iter()
                    .any(|(id, _)| self.is_group(*id) != Some(false))
        {
            return refuse(Errno::EINVAL);
        }
        if !is_group {
            match links.get(&object.number(NHA_OIF)) {
                None => return refuse(Errno::ENODEV),
                Some(false) => return refuse(Errno::ENETDOWN),
                Some(true) => {}
            }
        }
        match (is_there, flags & NLM_F_REPLACE != 0) {
            (true, false) if flags & NLM_F_EXCL != 0 => refuse(Errno::EEXIST),
            (false, true) if flags & NLM_F_CREATE == 0 => refuse(Errno::ENOENT),
            // A group cannot become a single next hop, nor the other way round.
            (true, true) if self.is_group(id) != Some(is_group) => refuse(Errno::EINVAL),
            _ => {
                self.0.insert(id, object);
                Ok(())
            }
        }
    }

    fn is_group(&self, id: u32) -> Option<bool> {
        self.0
            .get(&id)
            .map(|object| object.attributes.contains_key(&NHA_GROUP))
    }

    /// Removes one, also from its groups, and groups without members. Returns notifications, and everything removed.
    pub(super) fn remove(&mut self, id: u32) -> (Vec<Vec<u8>>, BTreeSet<u32>) {
        let mut notices = Vec::new();
        let mut removed = BTreeSet::new();
        if let Some(object) = self.0.remove(&id) {
            notices.push(object.message(DELNEXTHOP, 0, 0, 0));
            removed.insert(id);
        }
        let mut empty = BTreeSet::new();
        for (group, object) in &mut self.0 {
            let all = members(object);
            let left: Vec<(u32, [u8; 4])> = all
                .iter()
                .filter(|(member, _)| *member != id)
                .copied()
                .collect();
            if left.len() == all.len() {
                continue;
            }
            if left.is_empty() {
                empty.insert(*group);
            }
            let bytes: Vec<u8> = left
                .iter()
                .flat_map(|(id, rest)| [id.to_ne_bytes(), *rest].concat())
                .collect();
            object.attributes.insert(NHA_GROUP, bytes);
            notices.push(object.message(NEWNEXTHOP, 0, 0, 0));
        }
        for group in &empty {
            self.0.remove(group);
        }
        removed.extend(empty);
        (notices, removed)
    }

    /// Removes all next hops on an interface. Returns everything removed.
    pub(super) fn remove_interface(&mut self, interface: u32) -> BTreeSet<u32> {
        let on_it = self
            .0
            .iter()
            .filter(|(_, object)| object.number(NHA_OIF) == interface);
        let ids: Vec<u32> = on_it.map(|(id, _)| *id).collect();
        ids.into_iter().flat_map(|id| self.remove(id).1).collect()
    }
}

/// The members of a group: the id of each, and the other bytes.
fn members(object: &Object) -> Vec<(u32, [u8; 4])> {
    let bytes = object
        .attributes
        .get(&NHA_GROUP)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let member = |bytes: &[u8]| {
        let [a, b, c, d, rest @ ..] = <[u8; MEMBER_BYTES]>::try_from(bytes).ok()?;
        Some((u32::from_ne_bytes([a, b, c, d]), rest))
    };
    bytes
        .chunks_exact(MEMBER_BYTES)
        .filter_map(member)
        .collect()
}
