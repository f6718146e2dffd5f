//! The route renderer: services become routes, programmed through rtnetlink.
//!
//! ```text
//! ContivService ─ plan ─► destinations ─ desired (owners) ─► routes ─ compare ─► changes ─ netlink ─► kernel
//! ```
//!
//! It does not carry traffic to backends; that stays with the renderer `nftables`. It makes the network bring traffic to
//! this node, and lets this node's own processes find services.

mod apply;
mod desired;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod kernel_route;
mod kernel_rule;
mod options;
mod plan;
mod socket;
mod verify;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::Sender,
};

use contiv_model::{ChangeSet, Snapshot};

pub use self::options::{AddressKind, AddressKinds, RouteOptions, UnknownAddressKind};
pub use self::verify::RouteVerifier;
use self::{
    apply::{Outcome, Plan},
    desired::Desired,
    kernel_route::{KernelRoute, Way},
    plan::{Destination, Purpose},
    socket::RouteSocket,
    watch::{Interest, RouteWatch},
};
use crate::{Description, Rejected, RenderError, Renderer, Report, Verifier, Watch, netlink::NetlinkError};

/// Programs the kernel's routes.
#[derive(Debug, Default)]
pub struct Routes {
    options: RouteOptions,
    socket: Option<RouteSocket>,
    /// None until the first resync, and after a failure: then the kernel's state is not known.
    state: Option<State>,
    /// Tells the watch what to listen for.
    watch: Option<Sender<Interest>>,
}

/// What is programmed.
#[derive(Debug)]
struct State {
    desired: Desired,
    links: Links,
    installed: BTreeMap<Destination, KernelRoute>,
    /// Another program has a route of the same address in our table.
    conflicts: BTreeSet<Destination>,
    /// The kernel does not take them as long as a link is down or an address is not ready.
    waiting: BTreeMap<Destination, i32>,
}

/// Where this node's own connections leave from, and as whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Links {
    v4: Option<Way>,
    v6: Option<Way>,
}

impl Routes {
    /// A renderer that opens its socket at the first call.
    pub fn new(options: RouteOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Removes what is advertised, so that the network sends its traffic elsewhere; everything else stays. Works without a
    /// resync before it.
    pub fn withdraw(&mut self) -> Result<Report, RenderError> {
        self.state = None;
        let table = self.options.advertise_table;
        let result = self.socket().and_then(|socket| apply::remove_from(socket, table));
        result.map_err(|error| apply::explain("withdraw the routes", &error))
    }

    fn socket(&mut self) -> Result<&mut RouteSocket, NetlinkError> {
        match self.socket.take() {
            Some(socket) => Ok(self.socket.insert(socket)),
            None => Ok(self.socket.insert(RouteSocket::open()?)),
        }
    }

    fn try_resync(&mut self, desired: Desired) -> Result<(Report, Vec<String>), NetlinkError> {
        self.state = None;
        let options = self.options;
        let links = Links::find(self.socket()?, &options, &desired)?;
        // Before anything is programmed, so that nothing is missed.
        if let Some(watch) = &self.watch {
            // A watch that has ended is asked for anew.
            let _ = watch.send(Interest::new(&options, links));
        }
        let socket = self.socket()?;
        let mut report = apply::set_rules(socket, &options)?;
        let mut state = State {
            desired,
            links,
            installed: BTreeMap::new(),
            conflicts: BTreeSet::new(),
            waiting: BTreeMap::new(),
        };
        let wanted: BTreeMap<KernelRoute, Destination> = state
            .desired
            .destinations()
            .filter_map(|destination| Some((state.links.route(&options, destination)?, destination)))
            .collect();
        let mut plan = Plan::default();
        for found in apply::found(socket)? {
            match found.route.and_then(|route| Some((route, *wanted.get(&route)?))) {
                Some((route, destination)) => {
                    state.installed.insert(destination, route);
                }
                None => plan.remove.push(found.deletion()),
            }
        }
        plan.add = wanted
            .iter()
            .filter(|(_, destination)| !state.installed.contains_key(destination))
            .map(|(route, destination)| (*destination, *route))
            .collect();
        let problems = state.execute(socket, plan, &mut report)?;
        self.state = Some(state);
        Ok((report, problems))
    }

    fn try_update(
        &mut self,
        mut state: State,
        changes: &ChangeSet,
    ) -> Result<(Report, Vec<String>), NetlinkError> {
        let touched = state.desired.update(changes);
        if changes.node.is_some() {
            // The links of this node may be others, and with them every route.
            return self.try_resync(state.desired);
        }
        let mut plan = Plan::default();
        for destination in touched {
            let is_wanted = state.desired.wants(destination);
            if !is_wanted {
                state.conflicts.remove(&destination);
                state.waiting.remove(&destination);
                if let Some(route) = state.installed.remove(&destination) {
                    plan.remove.push(route.message());
                }
            } else if !state.installed.contains_key(&destination)
                && let Some(route) = state.links.route(&self.options, destination)
            {
                plan.add.push((destination, route));
            }
        }
        let mut report = Report::default();
        let problems = state.execute(self.socket()?, plan, &mut report)?;
        self.state = Some(state);
        Ok((report, problems))
    }

    /// Ends a call: what the kernel refused for a reason that may pass is an error, so that it is tried again.
    fn finish(&mut self, done: (Report, Vec<String>)) -> Result<Report, RenderError> {
        let (mut report, problems) = done;
        if let Some(first) = problems.first() {
            self.state = None;
            let reason = format!("{first} ({} refused in all)", problems.len());
            return Err(RenderError::Kernel { action: "change routes".to_owned(), reason });
        }
        report.rejected = self.state.as_ref().map(|state| state.rejected(&self.options)).unwrap_or_default();
        Ok(report)
    }
}

impl Links {
    /// Those of now; none if nothing leaves by them.
    fn find(
        socket: &mut RouteSocket,
        options: &RouteOptions,
        desired: &Desired,
    ) -> Result<Self, NetlinkError> {
        if !options.reach_from_node {
            return Ok(Self::default());
        }
        let interfaces = apply::interfaces(socket)?;
        let link = |ipv4| {
            let source = desired.source(ipv4)?;
            interfaces.get(&source).map(|interface| Way::Link { interface: *interface, source })
        };
        Ok(Self { v4: link(true), v6: link(false) })
    }

    /// The route to a destination; none as long as this node has no address to reach it from.
    fn route(self, options: &RouteOptions, destination: Destination) -> Option<KernelRoute> {
        let Destination { purpose, address } = destination;
        Some(match purpose {
            Purpose::Advertise => {
                KernelRoute { table: options.advertise_table, address, way: Way::Blackhole }
            }
            Purpose::Reach => KernelRoute {
                table: options.node_table,
                address,
                way: if address.is_ipv4() { self.v4 } else { self.v6 }?,
            },
        })
    }
}

impl State {
    /// Makes the changes, and returns what went wrong and may not the next time.
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
                Outcome::Waits(errno) => {
                    self.waiting.insert(destination, errno);
                }
                Outcome::Failed(problem) => problems.push(problem),
            }
        }
        Ok(problems)
    }

    fn rejected(&self, options: &RouteOptions) -> Vec<Rejected> {
        let conflict = |destination: &Destination| {
            let (table, key) = match destination.purpose {
                Purpose::Advertise => (options.advertise_table, "route-advertise-table"),
                Purpose::Reach => (options.node_table, "route-node-table"),
            };
            let address = destination.address;
            format!(
                "table {table} has a route to {address} that another program made; remove that one, or choose another table by {key}"
            )
        };
        let waits = |(destination, errno): (&Destination, &i32)| {
            let error = std::io::Error::from_raw_os_error(*errno);
            (
                *destination,
                format!("the kernel does not take the route to {} yet: {error}", destination.address),
            )
        };
        let conflicts = self.conflicts.iter().map(|destination| (*destination, conflict(destination)));
        let mut rejected: Vec<Rejected> = conflicts
            .chain(self.waiting.iter().map(waits))
            .flat_map(|(destination, reason)| {
                self.desired.owners(destination).map(move |service| Rejected {
                    service: service.clone(),
                    reason: reason.clone(),
                    in_force: "nothing",
                })
            })
            .collect();
        rejected.sort_by(|a, b| (&a.service, &a.reason).cmp(&(&b.service, &b.reason)));
        rejected
    }
}

impl Renderer for Routes {
    fn name(&self) -> &'static str {
        "route"
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        let result = self.try_resync(Desired::new(snapshot, self.options));
        let done = result.map_err(|error| apply::explain("resync the routes", &error))?;
        self.finish(done)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        // Taken out, so that it is gone if anything fails.
        let Some(state) = self.state.take() else { return Err(RenderError::Unsynced) };
        let result = self.try_update(state, changes);
        let done = result.map_err(|error| apply::explain("update the routes", &error))?;
        self.finish(done)
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        let options = self.options;
        let started = self.socket().and_then(|socket| RouteWatch::start(socket, &options));
        let (watch, sender) =
            started.map_err(|error| apply::explain("listen to changes of routes", &error))?;
        self.watch = Some(sender);
        Ok(Some(Box::new(watch)))
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        Some(Box::new(RouteVerifier::new(self.options)))
    }

    fn describe(&self) -> Description {
        let Some(state) = &self.state else { return Description::default() };
        let count = |purpose| state.installed.keys().filter(|key| key.purpose == purpose).count();
        Description {
            services: state.desired.services(),
            sizes: vec![
                ("advertised".to_owned(), count(Purpose::Advertise)),
                ("reachable".to_owned(), count(Purpose::Reach)),
                ("conflicts".to_owned(), state.conflicts.len()),
                ("waiting".to_owned(), state.waiting.len()),
            ],
            text: state.installed.values().flat_map(|route| [route.to_string(), "\n".to_owned()]).collect(),
        }
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.state = None;
        let result = self.socket().and_then(apply::remove_all);
        result.map_err(|error| apply::explain("remove the routes", &error))
    }
}
