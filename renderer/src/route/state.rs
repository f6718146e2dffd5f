//! The programmed state, and how changes reach the kernel.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::ChangeSet;

use super::{
    Links, RouteOptions,
    apply::{self, Outcome, Plan},
    desired::Desired,
    direct::Direct,
    kernel_route::{FoundRoute, KernelRoute},
    plan::{Destination, Purpose},
    socket::RouteSocket,
    watch::Announcer,
};
use crate::{Description, Rejected, Report, netlink::NetlinkError};

/// The programmed state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) desired: Desired,
    pub(super) direct: Direct,
    links: Links,
    announcer: Announcer,
    installed: BTreeMap<Destination, KernelRoute>,
    /// Destinations whose address has a foreign route in our table.
    conflicts: BTreeSet<Destination>,
    /// Destinations that the kernel refuses while a link is down or an address is not ready.
    waiting: BTreeMap<Destination, i32>,
}

impl State {
    /// Programs the desired state; `found` are all routes of the agent in the kernel, except those of direct mode.
    pub(super) fn resync(
        socket: &mut RouteSocket,
        options: &RouteOptions,
        desired: Desired,
        direct: Direct,
        announcer: Announcer,
        found: Vec<FoundRoute>,
        report: &mut Report,
    ) -> Result<(Self, Vec<String>), NetlinkError> {
        let mut state = Self {
            desired,
            direct,
            links: announcer.links(),
            announcer,
            installed: BTreeMap::new(),
            conflicts: BTreeSet::new(),
            waiting: BTreeMap::new(),
        };
        let desired: BTreeMap<KernelRoute, Destination> = state
            .desired
            .destinations()
            .filter_map(|destination| Some((state.links.route(options, destination)?, destination)))
            .collect();
        let mut plan = Plan::default();
        for found in found {
            match found
                .route
                .and_then(|route| Some((route, *desired.get(&route)?)))
            {
                Some((route, destination)) => {
                    state.installed.insert(destination, route);
                }
                None => plan.remove.push(found.deletion()),
            }
        }
        plan.add = desired
            .iter()
            .filter(|(_, destination)| !state.installed.contains_key(destination))
            .map(|(route, destination)| (*destination, *route))
            .collect();
        let problems = state.execute(socket, plan, report)?;
        Ok((state, problems))
    }

    /// Adds or removes the routes of these destinations. Returns errors that may be temporary.
    pub(super) fn update(
        &mut self,
        socket: &mut RouteSocket,
        options: &RouteOptions,
        changed: BTreeSet<Destination>,
        report: &mut Report,
    ) -> Result<Vec<String>, NetlinkError> {
        let mut plan = Plan::default();
        for destination in changed {
            let is_desired = self.desired.contains(destination);
            if !is_desired {
                self.conflicts.remove(&destination);
                self.waiting.remove(&destination);
                if let Some(route) = self.installed.remove(&destination) {
                    plan.remove.push(route.message());
                }
            } else if !self.installed.contains_key(&destination)
                && let Some(route) = self.links.route(options, destination)
            {
                plan.add.push((destination, route));
            }
        }
        self.execute(socket, plan, report)
    }

    /// Programs the changed services of direct mode. Returns errors that may be temporary.
    pub(super) fn update_direct(
        &mut self,
        socket: &mut RouteSocket,
        changes: &ChangeSet,
        report: &mut Report,
    ) -> Result<Vec<String>, NetlinkError> {
        let Self {
            direct,
            desired,
            announcer,
            ..
        } = self;
        direct.update(socket, changes, desired.node(), announcer, report)
    }

    fn execute(
        &mut self,
        socket: &mut RouteSocket,
        plan: Plan,
        report: &mut Report,
    ) -> Result<Vec<String>, NetlinkError> {
        let mut problems = Vec::new();
        for (destination, route, outcome) in apply::execute(socket, plan, report, &mut problems)? {
            self.conflicts.remove(&destination);
            self.waiting.remove(&destination);
            match outcome {
                Outcome::Added => {
                    self.installed.insert(destination, route);
                }
                Outcome::Conflict => {
                    self.conflicts.insert(destination);
                }
                Outcome::NotReady(errno) => {
                    self.waiting.insert(destination, errno);
                }
                Outcome::Failed(problem) => problems.push(problem),
            }
        }
        Ok(problems)
    }

    /// All services that lack a route, with the reason.
    pub(super) fn rejected(&self, options: &RouteOptions) -> Vec<Rejected> {
        let conflict = |destination: &Destination| {
            let (table, key) = match destination.purpose {
                Purpose::Advertise => (options.advertise_table, "route-advertise-table"),
                Purpose::Reach => (options.node_table, "route-node-table"),
            };
            apply::conflict_reason(table, destination.address, key)
        };
        let not_ready = |(destination, errno): (&Destination, &i32)| {
            (
                *destination,
                apply::not_ready_reason(destination.address, *errno),
            )
        };
        let conflicts = self
            .conflicts
            .iter()
            .map(|destination| (*destination, conflict(destination)));
        let missing = conflicts
            .chain(self.waiting.iter().map(not_ready))
            .flat_map(|(destination, reason)| {
                self.desired
                    .owners(destination)
                    .map(move |service| Rejected {
                        service: service.clone(),
                        reason: reason.clone(),
                        active_state: "nothing",
                    })
            });
        let mut rejected: Vec<Rejected> = missing.chain(self.direct.rejected()).collect();
        rejected.sort_by(|a, b| (&a.service, &a.reason).cmp(&(&b.service, &b.reason)));
        rejected
    }

    /// The human-readable form.
    pub(super) fn describe(&self) -> Description {
        let count = |purpose| {
            self.installed
                .keys()
                .filter(|key| key.purpose == purpose)
                .count()
        };
        let sizes = [
            ("advertised", count(Purpose::Advertise)),
            ("reachable", count(Purpose::Reach)),
            ("conflicts", self.conflicts.len()),
            ("waiting", self.waiting.len()),
        ];
        let routes = self
            .installed
            .values()
            .flat_map(|route| [route.to_string(), "\n".to_owned()]);
        Description {
            services: self.desired.services(),
            sizes: sizes
                .into_iter()
                .chain(self.direct.sizes())
                .map(|(name, size)| (name.to_owned(), size))
                .collect(),
            text: routes.chain([self.direct.text()]).collect(),
        }
    }
}
