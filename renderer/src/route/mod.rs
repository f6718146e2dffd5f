//! The route renderer: services become routes, programmed through rtnetlink.
//!
//! ```text
//! ContivService ─ plan ─► destinations ─ desired (owners) ─► routes ─ compare ─► changes ─ netlink ─► kernel
//! ```
//!
//! It makes the network bring traffic to this node, and lets this node's own processes find services. Traffic of services
//! that ask for it goes to their backends by routes alone; for all others that stays with the renderer `nftables`.

mod apply;
mod desired;
mod direct;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod kernel_route;
mod kernel_rule;
mod links;
mod message;
mod nexthop;
mod options;
mod plan;
mod remove_all;
mod socket;
mod state;
mod verify;
mod watch;

use std::sync::Arc;

use contiv_model::{ChangeSet, Snapshot};
use direct::{DesiredServices, Direct, RoutesInKernel};
use tokio::sync::watch::Sender;

use self::{
    desired::Desired,
    kernel_route::FoundRoute,
    links::Links,
    remove_all::remove_all,
    socket::RouteSocket,
    state::State,
    watch::{Announcer, RouteWatch, WatchedObjects},
};
pub use self::{
    nexthop::Grouping,
    options::{AddressKind, AddressKinds, DirectOptions, RouteOptions, UnknownAddressKind},
    socket::Exchange,
    verify::RouteVerifier,
};
use crate::{
    Description, RenderError, Renderer, Report, Verifier, Watch, kernel::Kernel, linux::Linux,
    netlink::NetlinkError,
};

/// Programs the kernel's routes.
#[derive(Debug)]
pub struct Routes {
    kernel: Arc<dyn Kernel>,
    options: RouteOptions,
    socket: Option<RouteSocket>,
    /// None until the first resync, and after a failure: then the kernel's state is unknown.
    state: Option<State>,
    /// Tells the watch what to look for.
    watch: Option<Sender<WatchedObjects>>,
}

impl Routes {
    /// A renderer for the kernel of this network namespace. It opens its socket at the first call.
    pub fn new(options: RouteOptions) -> Self {
        Self::on(Linux::shared(), options)
    }

    /// A renderer for this kernel.
    pub fn on(kernel: Arc<dyn Kernel>, options: RouteOptions) -> Self {
        Self {
            kernel,
            options,
            socket: None,
            state: None,
            watch: None,
        }
    }

    /// Removes advertised routes, so that the network sends its traffic elsewhere; everything else stays. Works without a prior
    /// resync.
    pub fn withdraw(&mut self) -> Result<Report, RenderError> {
        self.state = None;
        let table = self.options.advertise_table;
        let result = self
            .socket()
            .and_then(|socket| apply::remove_from(socket, table));
        result.map_err(|error| error.with_advice("withdraw the routes"))
    }

    /// Records all requests to the kernel from now on, and returns those since the last call. Sent again unchanged, they
    /// measure the cost of the kernel alone.
    ///
    /// # Errors
    /// When there is no socket.
    pub fn record(&mut self) -> Result<Vec<Exchange>, RenderError> {
        let socket = self
            .socket()
            .map_err(|error| error.with_advice("open a socket"))?;
        Ok(socket.record.replace(Vec::new()).unwrap_or_default())
    }

    fn socket(&mut self) -> Result<&mut RouteSocket, NetlinkError> {
        match self.socket.take() {
            Some(socket) => Ok(self.socket.insert(socket)),
            None => Ok(self.socket.insert(RouteSocket::open(&self.kernel)?)),
        }
    }

    /// Turns the kernel's state into that of the snapshot. With `keeps`, routes of services that returned to `nftables` stay.
    fn try_resync(
        &mut self,
        snapshot: &Snapshot,
        keeps: bool,
    ) -> Result<(Report, Vec<String>), NetlinkError> {
        self.state = None;
        let options = self.options;
        let desired = Desired::new(snapshot, options);
        let links = Links::find(self.socket()?, &options, &desired)?;
        let mut announcer = Announcer::new(&options, links, self.watch.clone());
        // Before anything is programmed, so that no change is missed.
        announcer.announce();
        let socket = self.socket()?;
        let found = apply::our_routes(socket)?;
        let is_direct = |found: &FoundRoute| {
            found
                .route
                .is_some_and(|route| direct::is_direct(options.direct, route))
        };
        let (of_direct, found): (Vec<_>, Vec<_>) = found.into_iter().partition(is_direct);
        let routes = of_direct
            .into_iter()
            .filter_map(|found| found.route)
            .collect();
        let kernel = RoutesInKernel {
            routes,
            nexthops: socket.dump_nexthops()?,
        };
        let addresses = kernel.addresses();
        let services =
            DesiredServices::new(snapshot, |address| keeps && addresses.contains(&address));
        let mut report = Report::default();
        apply::set_rules(socket, &options, !services.is_empty(), &mut report)?;
        let (direct, mut problems) = Direct::resync(
            socket,
            options.direct,
            desired.sources(),
            services,
            kernel,
            &mut announcer,
            &mut report,
        )?;
        let (state, more) = State::resync(
            socket,
            &options,
            desired,
            direct,
            announcer,
            found,
            &mut report,
        )?;
        problems.extend(more);
        self.state = Some(state);
        Ok((report, problems))
    }

    fn try_update(
        &mut self,
        mut state: State,
        changes: &ChangeSet,
    ) -> Result<(Report, Vec<String>), NetlinkError> {
        let affected = state.desired.update(changes);
        if changes.node.is_some() {
            // The links of this node may have changed, and with them every route.
            return self.try_resync(&state.desired.snapshot(), true);
        }
        let options = self.options;
        let socket = self.socket()?;
        let mut report = Report::default();
        let had_direct = state.direct.is_needed();
        let mut problems = state.update_direct(socket, changes, &mut report)?;
        if state.direct.is_needed() != had_direct {
            apply::set_rules(socket, &options, !had_direct, &mut report)?;
        }
        problems.extend(state.update(socket, &options, affected, &mut report)?);
        self.state = Some(state);
        Ok((report, problems))
    }

    /// Ends a call: a refusal for a reason that may pass becomes an error, so that it is tried again.
    fn finish(&mut self, done: (Report, Vec<String>)) -> Result<Report, RenderError> {
        let (mut report, problems) = done;
        if let Some(first) = problems.first() {
            self.state = None;
            let reason = format!("{first} ({} refused in all)", problems.len());
            return Err(RenderError::Kernel {
                action: "change routes".to_owned(),
                reason,
            });
        }
        if let Some(state) = &self.state {
            report.rejected = state.rejected(&self.options);
            report.notes = state.direct.notes();
        }
        Ok(report)
    }
}

impl Renderer for Routes {
    fn name(&self) -> &'static str {
        "route"
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        // The first resync, and one after a failure, were not requested by a user.
        let keeps = self.state.is_none();
        let result = self.try_resync(snapshot, keeps);
        let done = result.map_err(|error| error.with_advice("resync the routes"))?;
        self.finish(done)
    }

    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        let result = self.try_resync(snapshot, true);
        let done = result.map_err(|error| error.with_advice("repair the routes"))?;
        self.finish(done)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        // Taken out, so that it is gone if anything fails.
        let Some(state) = self.state.take() else {
            return Err(RenderError::Unsynced);
        };
        let result = self.try_update(state, changes);
        let done = result.map_err(|error| error.with_advice("update the routes"))?;
        self.finish(done)
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        let options = self.options;
        let kernel = Arc::clone(&self.kernel);
        let started = self
            .socket()
            .and_then(|socket| RouteWatch::start(&*kernel, socket, &options));
        let (watch, sender) =
            started.map_err(|error| error.with_advice("listen to changes of routes"))?;
        self.watch = Some(sender);
        Ok(Some(Box::new(watch)))
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        Some(Box::new(RouteVerifier::on(
            Arc::clone(&self.kernel),
            self.options,
        )))
    }

    fn describe(&self) -> Description {
        let Some(state) = &self.state else {
            return Description::default();
        };
        state.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.state = None;
        let result = self.socket().and_then(remove_all);
        result.map_err(|error| error.with_advice("remove the routes"))
    }
}
