//! Direct mode: an address of a service becomes a route to its backends, which have the address themselves. No packet is
//! changed.
//!
//! ```text
//! ContivService ─ plan ─► target ─ look up ─► next hops ─► group ─► route
//! ```
//!
//! Each address has a group of next hops for as long as it has backends elsewhere than on this node itself. A backend that
//! comes or goes changes the group and not the route, and a resilient group moves only the flows that must move.

mod describe;
mod desired;
mod id_allocator;
mod next_hop_resolver;
mod plan;
mod program;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{ChangeSet, NodeFacts};
pub(super) use desired::DesiredServices;
use id_allocator::{Group, Hops, IdAllocator, copies, members};
use next_hop_resolver::NextHopResolver;
pub(super) use next_hop_resolver::request;
use nix::libc::EEXIST;
use plan::RouteTarget;

use super::{
    apply,
    kernel_route::{KernelRoute, LOCAL_TABLE, NextHop},
    nexthop::{Member, Nexthop, NexthopMessage},
    options::DirectOptions,
    socket::RouteSocket,
    watch::Announcer,
};
use crate::{Report, netlink::NetlinkError};
use program::Batch;
pub(super) use program::delete_nexthops;

/// The preferred source addresses of this node's own connections: IPv4 and IPv6.
pub(super) type Sources = [Option<IpAddr>; 2];

/// The programmed state of direct mode.
#[derive(Debug)]
pub(super) struct Direct {
    options: DirectOptions,
    sources: Sources,
    desired: DesiredServices,
    resolver: NextHopResolver,
    routes: BTreeMap<IpAddr, NextHop>,
    groups: BTreeMap<IpAddr, Group>,
    hops: Hops,
    ids: IdAllocator,
    /// Addresses without a correct route of ours, with the reason.
    refused: BTreeMap<IpAddr, String>,
}

/// The kernel's state: our routes in the table of direct mode, and all next hops.
#[derive(Debug, Default)]
pub(super) struct RoutesInKernel {
    pub(super) routes: Vec<KernelRoute>,
    pub(super) nexthops: Vec<NexthopMessage>,
}

/// True if one of our routes belongs to direct mode.
pub(super) fn is_direct(options: DirectOptions, route: KernelRoute) -> bool {
    route.table == table(options, route.next_hop)
}

/// The addresses whose routes lead to a backend.
pub(super) fn routed_addresses(routes: impl Iterator<Item = KernelRoute>) -> BTreeSet<IpAddr> {
    routes
        .filter(|route| route.next_hop.reaches_backend())
        .map(|route| route.address)
        .collect()
}

/// The table of a route.
const fn table(options: DirectOptions, next_hop: NextHop) -> u32 {
    match next_hop {
        NextHop::Local => LOCAL_TABLE,
        _ => options.table,
    }
}

impl RoutesInKernel {
    /// The addresses with a route of direct mode that leads to a backend.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        routed_addresses(self.routes.iter().copied())
    }
}

impl Direct {
    /// Turns the kernel's state into the desired one.
    pub(super) fn resync(
        socket: &mut RouteSocket,
        options: DirectOptions,
        sources: Sources,
        desired: DesiredServices,
        kernel: RoutesInKernel,
        announcer: &mut Announcer,
        report: &mut Report,
    ) -> Result<(Self, Vec<String>), NetlinkError> {
        let used = kernel.nexthops.iter().map(|found| found.id);
        let mut direct = Self {
            options,
            sources,
            desired,
            resolver: NextHopResolver::default(),
            routes: BTreeMap::new(),
            groups: BTreeMap::new(),
            hops: Hops::default(),
            ids: IdAllocator::new(used),
            refused: BTreeMap::new(),
        };
        let (strays, leftovers) = direct.adopt(kernel);
        let affected = direct
            .desired
            .addresses()
            .chain(direct.routes.keys().copied())
            .collect();
        let mut problems = direct.apply(socket, affected, announcer, report)?;
        let mut batch = Batch::default();
        for stray in strays {
            batch.remove_route(stray);
        }
        problems.extend(
            batch
                .send(socket, report)?
                .into_iter()
                .map(|failed| failed.problem),
        );
        // Groups before their members, and both after the routes: otherwise the kernel would remove the routes with them.
        program::delete_nexthops(socket, leftovers, report)?;
        Ok((direct, problems))
    }

    /// Adopts usable objects of the kernel. Returns our other routes and next hops.
    fn adopt(&mut self, kernel: RoutesInKernel) -> (Vec<KernelRoute>, Vec<u32>) {
        let mut groups = BTreeMap::new();
        let mut leftovers = Vec::new();
        for found in kernel.nexthops.into_iter().filter(|found| found.is_ours) {
            match found.nexthop {
                Some(Nexthop::Hop(hop))
                    if self.hops.insert(hop, found.id, self.options.grouping) => {}
                Some(Nexthop::Group { grouping, members }) if grouping == self.options.grouping => {
                    groups.insert(found.id, members);
                }
                _ => leftovers.push(found.id),
            }
        }
        let mut strays = Vec::new();
        for route in kernel.routes {
            if self.routes.contains_key(&route.address) {
                strays.push(route);
                continue;
            }
            self.routes.insert(route.address, route.next_hop);
            if let NextHop::Group { id, .. } = route.next_hop
                && let Some(mut members) = groups.remove(&id)
            {
                members.sort_unstable();
                self.hops.replace_members(&[], &members);
                self.groups.insert(route.address, Group { id, members });
            }
        }
        (strays, groups.into_keys().chain(leftovers).collect())
    }

    /// Applies changes of services to the kernel.
    pub(super) fn update(
        &mut self,
        socket: &mut RouteSocket,
        changes: &ChangeSet,
        node: &NodeFacts,
        announcer: &mut Announcer,
        report: &mut Report,
    ) -> Result<Vec<String>, NetlinkError> {
        let Self {
            desired, routes, ..
        } = self;
        let has_route = |address| {
            routes
                .get(&address)
                .is_some_and(|next_hop| next_hop.reaches_backend())
        };
        let affected = desired.update(changes, node, has_route);
        self.apply(socket, affected, announcer, report)
    }

    fn apply(
        &mut self,
        socket: &mut RouteSocket,
        affected: BTreeSet<IpAddr>,
        announcer: &mut Announcer,
        report: &mut Report,
    ) -> Result<Vec<String>, NetlinkError> {
        if affected.is_empty() {
            return Ok(Vec::new());
        }
        let mut problems = Vec::new();
        let targets = affected
            .iter()
            .filter_map(|address| self.desired.target(*address));
        self.resolver.look_up(socket, targets, announcer)?;
        self.add_hops(socket, &affected, report, &mut problems)?;
        let mut batch = Batch::default();
        for address in affected {
            self.refused.remove(&address);
            match self.desired_target(address) {
                Ok(desired_target) => self.set_target(address, desired_target, &mut batch),
                // An existing route stays until another renderer has taken over.
                Err(reason) => drop(self.refused.insert(address, reason)),
            }
        }
        for failed in batch.send(socket, report)? {
            let address = failed.route.map(|route| route.address);
            if let (Some(address), Some(reason)) = (address, failed.wait) {
                self.routes.remove(&address);
                self.refused.insert(address, reason);
            } else {
                problems.push(failed.problem);
            }
        }
        let unused = self.hops.take_unused();
        for id in &unused {
            self.ids.free(*id);
        }
        program::delete_nexthops(socket, unused, report)?;
        Ok(problems)
    }

    /// Adds missing next hops. One whose link is down stays missing.
    fn add_hops(
        &mut self,
        socket: &mut RouteSocket,
        affected: &BTreeSet<IpAddr>,
        report: &mut Report,
        problems: &mut Vec<String>,
    ) -> Result<(), NetlinkError> {
        let grouping = self.options.grouping;
        let mut missing = BTreeSet::new();
        for target in affected
            .iter()
            .filter_map(|address| self.desired.target(*address))
        {
            if let RouteTarget::Backends { local, weights } = target {
                let hops = weights
                    .keys()
                    .filter_map(|backend| self.resolver.hop(*backend, *local));
                let all = hops.flat_map(|hop| copies(grouping).map(move |copy| (hop, copy)));
                missing.extend(all.filter(|(hop, copy)| self.hops.id(*hop, *copy).is_none()));
            }
        }
        let mut added = Vec::new();
        for (hop, _) in missing {
            match self.ids.allocate() {
                Some(id) => added.push((id, hop)),
                None => problems.push("no ID is left for a next hop".to_owned()),
            }
        }
        for ((id, hop), errno) in program::add_hops(socket, added, report)? {
            match errno {
                None => {
                    self.hops.insert(hop, id, grouping);
                }
                // Another program uses the ID; it stays marked as used.
                Some(EEXIST) => problems.push(format!(
                    "add the next hop {id}: another program uses this id"
                )),
                Some(errno) => {
                    self.ids.free(id);
                    if !apply::is_not_ready(errno) {
                        problems.push(format!(
                            "add the next hop {id} {hop}: {}",
                            apply::reason(errno)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The desired target of an address; or why routes cannot carry it at present.
    fn desired_target(&self, address: IpAddr) -> Result<Option<DesiredTarget>, String> {
        Ok(match self.desired.target(address) {
            None => None,
            Some(RouteTarget::Impossible) => {
                return Err(format!(
                    "{address} is an address of this node, or one that means no host"
                ));
            }
            Some(RouteTarget::Local) => Some(DesiredTarget::NextHop(NextHop::Local)),
            Some(RouteTarget::Unreachable) => Some(DesiredTarget::NextHop(NextHop::Unreachable)),
            Some(RouteTarget::Blackhole) => Some(DesiredTarget::NextHop(NextHop::Blackhole)),
            Some(RouteTarget::Backends { local, weights }) => {
                let mut shares: BTreeMap<u32, u32> = BTreeMap::new();
                for (backend, weight) in weights {
                    let hop = self.resolver.hop(*backend, *local);
                    let copies = hop
                        .into_iter()
                        .flat_map(|hop| copies(self.options.grouping).map(move |copy| (hop, copy)));
                    for id in copies.filter_map(|(hop, copy)| self.hops.id(hop, copy)) {
                        *shares.entry(id).or_default() += weight;
                    }
                }
                if shares.is_empty() {
                    return Err(format!(
                        "this node has no route to any backend of {address}, or the link is down"
                    ));
                }
                Some(DesiredTarget::Members(members(&shares)))
            }
        })
    }

    /// Adds the changes from the programmed to the desired target to `batch`.
    fn set_target(
        &mut self,
        address: IpAddr,
        desired_target: Option<DesiredTarget>,
        batch: &mut Batch,
    ) {
        let next_hop = match desired_target {
            None => None,
            Some(DesiredTarget::NextHop(next_hop)) => Some(next_hop),
            Some(DesiredTarget::Members(members)) => {
                let source = self.sources[usize::from(address.is_ipv6())];
                self.set_members(address, members, batch)
                    .map(|id| NextHop::Group { id, source })
            }
        };
        let route = |next_hop| KernelRoute {
            table: table(self.options, next_hop),
            address,
            next_hop,
        };
        match (self.routes.get(&address).copied(), next_hop) {
            (Some(old), Some(new)) if route(old).table != route(new).table => {
                batch.add_route(route(new));
                batch.remove_route(route(old));
            }
            (Some(old), Some(new)) if old != new => batch.replace_route(route(new)),
            (None, Some(new)) => batch.add_route(route(new)),
            (Some(old), None) => batch.remove_route(route(old)),
            _ => {}
        }
        match next_hop {
            Some(next_hop) => self.routes.insert(address, next_hop),
            None => self.routes.remove(&address),
        };
        if !matches!(next_hop, Some(NextHop::Group { .. }))
            && let Some(group) = self.groups.remove(&address)
        {
            self.hops.replace_members(&group.members, &[]);
            self.ids.free(group.id);
            batch.remove_group(group.id);
        }
    }

    /// Sets the members of an address's group, and returns its ID.
    fn set_members(
        &mut self,
        address: IpAddr,
        members: Vec<Member>,
        batch: &mut Batch,
    ) -> Option<u32> {
        let grouping = self.options.grouping;
        let nexthop = Nexthop::Group {
            grouping,
            members: members.clone(),
        };
        let id = match self.groups.get(&address) {
            Some(group) if group.members == members => return Some(group.id),
            Some(group) => {
                self.hops.replace_members(&group.members, &members);
                batch.replace_group(group.id, nexthop);
                group.id
            }
            None => {
                let id = self.ids.allocate()?;
                self.hops.replace_members(&[], &members);
                batch.add_group(id, nexthop);
                id
            }
        };
        self.groups.insert(address, Group { id, members });
        Some(id)
    }

    /// True if a rule must point to the table.
    pub(super) fn is_needed(&self) -> bool {
        !self.desired.is_empty()
    }
}

/// The desired target of an address.
#[derive(Debug)]
enum DesiredTarget {
    NextHop(NextHop),
    Members(Vec<Member>),
}
