//! The interface of the model for simulations.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_renderer::kernel::{
    BackgroundTask, Kernel, ListenerEvent, NetlinkProtocol, NetlinkSocket, Subscription,
};
use parking_lot::Mutex;

use super::{
    conntrack::{Connection, status},
    errno::Errno,
    fault::{Fault, Faults},
    process::Process,
    routing::{Forwarding, RoutingChange},
    socket::{ModelMembership, ModelNotifications, ModelSocket},
    state::{Listener, State},
};

/// A modelled kernel. Clones share it.
///
/// It is a [`Kernel`] for renderers; see [`Self::shared`]. Its behaviour depends only on the requests and their order: it has
/// no clock and no threads.
#[derive(Debug, Clone)]
pub struct ModelKernel(pub(super) Arc<Mutex<State>>);

impl Default for ModelKernel {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelKernel {
    /// A newly booted kernel: without tables and connections, with forwarding on.
    pub fn new() -> Self {
        let settings = [
            ("net/ipv4/conf/all/route_localnet", "0"),
            ("net/ipv4/conf/all/forwarding", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
        ];
        let settings = settings
            .map(|(path, value)| (path.to_owned(), value.to_owned()))
            .into();
        Self(Arc::new(Mutex::new(State::new(settings))))
    }

    /// The same kernel, as a shared [`Kernel`] for renderers.
    pub fn shared(&self) -> Arc<dyn Kernel> {
        Arc::new(self.clone())
    }

    /// Sets the time since the start of the model. Elements expire by it.
    pub fn set_time(&self, time: Duration) {
        self.0.lock().now = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    }

    /// Injects a fault into the next matching request.
    pub fn inject(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Removes and returns the faults that have not been injected yet.
    pub fn forget_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.0.lock().faults)
    }

    /// Whether requests fail for lack of `CAP_NET_ADMIN` (`EPERM`) from now on.
    pub fn set_denied(&self, is_denied: bool) {
        self.0.lock().is_denied = is_denied;
    }

    /// Names of expressions and chain types whose modules are missing from now on, such as `hash` or `nat`.
    pub fn set_missing_modules(&self, missing: &[&str]) {
        self.0.lock().missing = missing.iter().map(|name| (*name).to_owned()).collect();
    }

    /// All listeners to changes of tables lose notifications.
    pub fn overflow_notifications(&self) {
        self.0
            .lock()
            .tell(NetlinkProtocol::Netfilter, 0, &ListenerEvent::Overflow);
    }

    /// Another program or an operator changes the routing.
    pub fn change_routing(&self, change: RoutingChange) {
        let mut state = self.0.lock();
        let notices = state.routing.change(change);
        state.tell_routing(0, notices);
    }

    /// The same, but its notifications are lost.
    pub fn lose_routing_notifications(&self, change: RoutingChange) {
        let mut state = self.0.lock();
        state.routing.change(change);
        state.tell(NetlinkProtocol::Route, 0, &ListenerEvent::Overflow);
    }

    /// Forgets what was to happen to the next requests.
    pub fn forget_routing_faults(&self) {
        let mut state = self.0.lock();
        state.routing.refusals.clear();
        state.routing.is_dump_interrupted = false;
    }

    /// The next change of the routing by a renderer is refused.
    pub fn refuse_routing(&self, errno: Errno) {
        self.0.lock().routing.refusals.push(errno);
    }

    /// The next dump of the routing is inconsistent.
    pub fn interrupt_routing_dump(&self) {
        self.0.lock().routing.is_dump_interrupted = true;
    }

    /// The routes, rules and next hops that programs have made, a line each.
    pub fn routing(&self) -> BTreeSet<String> {
        self.0.lock().routing.listing()
    }

    /// Where packets to an address go by a table that a rule before the main one names.
    pub fn forwarding(&self, address: IpAddr, table: u32) -> Forwarding {
        self.0.lock().routing.forwarding(address, table)
    }

    /// Runs the pending background work of renderers: searches for stale flows.
    pub fn run_background(&self) {
        // The work sends requests to this kernel, so the lock must not be held.
        let mut tasks = std::mem::take(&mut self.0.lock().tasks);
        tasks.retain_mut(|task| task.step());
        let mut state = self.0.lock();
        tasks.append(&mut state.tasks);
        state.tasks = tasks;
    }

    /// Drops the background work of a process that has ended. Its sockets close when they are dropped.
    pub fn forget_background(&self) {
        // Dropping them closes their sockets, which locks this kernel.
        let tasks = std::mem::take(&mut self.0.lock().tasks);
        drop(tasks);
    }

    /// The tracked connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.0.lock().connections.clone()
    }

    /// Adds a connection, and returns its id.
    pub fn add_connection(&self, connection: &Connection) -> u32 {
        self.0.lock().add_connection(connection)
    }

    /// The server of a connection has replied.
    pub fn answer(&self, id: u32) {
        let mut state = self.0.lock();
        for connection in state
            .connections
            .iter_mut()
            .filter(|connection| connection.id == id)
        {
            connection.status |= status::SEEN_REPLY;
        }
    }

    /// Forgets these tracked connections, as if their ends had closed them.
    pub fn close_connections(&self, is_closed: impl Fn(&Connection) -> bool) {
        self.0
            .lock()
            .connections
            .retain(|connection| !is_closed(connection));
    }

    /// How often a socket waited for an answer that was not sent: with a real kernel it would wait endlessly.
    pub fn stalls(&self) -> u64 {
        self.0.lock().stalls
    }

    /// Sends a request as another process, and returns the answers. Injected faults do not affect it.
    pub fn ask_as(&self, process: &Process, request: &[u8]) -> Vec<Vec<u8>> {
        let mut state = self.0.lock();
        let port = state.next_port();
        let answers = state.handle(port, process, request, Faults::default());
        state.release(port);
        answers
    }
}

impl Kernel for ModelKernel {
    fn connect(&self, protocol: NetlinkProtocol) -> io::Result<Box<dyn NetlinkSocket>> {
        let mut state = self.0.lock();
        let port = state.next_port();
        let (process, send_limit) = (state.process.clone(), state.send_limit);
        drop(state);
        Ok(Box::new(ModelSocket::new(
            Arc::clone(&self.0),
            protocol,
            port,
            process,
            send_limit,
        )))
    }

    fn listen(&self, protocol: NetlinkProtocol, _: &[u32], own: u32) -> io::Result<Subscription> {
        let mut state = self.0.lock();
        let id = state.next_port();
        state.listeners.insert(id, Listener::new(protocol, own));
        drop(state);
        let membership = ModelMembership::new(Arc::clone(&self.0), id);
        Ok((
            Box::new(ModelNotifications::new(Arc::clone(&self.0), id)),
            Box::new(membership),
        ))
    }

    fn setting(&self, path: &str) -> io::Result<String> {
        self.0
            .lock()
            .settings
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn set_setting(&self, path: &str, value: &str) -> io::Result<()> {
        match self.0.lock().settings.get_mut(path) {
            Some(setting) => {
                value.clone_into(setting);
                Ok(())
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn settings(&self, folder: &str) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        let below = state
            .settings
            .keys()
            .filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'));
        let mut names: Vec<String> = below
            .filter_map(|path| path.split('/').next())
            .map(str::to_owned)
            .collect();
        names.dedup();
        Ok(names)
    }

    fn spawn(&self, _: &str, task: Box<dyn BackgroundTask>) -> io::Result<()> {
        self.0.lock().tasks.push(task);
        Ok(())
    }

    fn now(&self) -> Instant {
        let state = self.0.lock();
        state.began + Duration::from_millis(state.now)
    }

    fn sleep(&self, _: Duration) {}
}
