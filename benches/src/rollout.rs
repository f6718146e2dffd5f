//! Rollouts: for how long after the store's acknowledgement a removed backend gets new connections, and what fails if it dies earlier.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use contiv_proto::{Key, Kind};
use contiv_store::{Operation, Store};
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Service, State},
    lab::{Family, Lab, LabError, Result},
};
use serde_json::json;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::{net::TcpStream as AsyncStream, task::JoinSet, time};

use crate::{
    cluster::{Client, put, remove_state, unexpected},
    figures::{Figure, Limit, Quantity},
    statistics::Samples,
    workload::Workload,
};

/// The section of these figures in the table.
pub const SECTION: &str = "rollout";
/// The services beside the one that is rolled out.
const WORKLOAD: Workload = Workload {
    services: 10_000,
    backends: 4,
};
/// The backends of the service.
const BACKENDS: u16 = 4;
/// Each rollout replaces one backend.
const ROLLOUTS: u16 = 1_000;
const QUICK_ROLLOUTS: u16 = 100;
/// The connections of a rollout, as quickly as one client makes them. The change is written with the first of them.
const CONNECTIONS: u32 = 1_000;
/// The ports of the backends, each used once.
const FIRST_PORT: u16 = 20_000;
/// A pod may die so long after the acknowledgement.
const LIMIT: Duration = Duration::from_millis(10);

/// A pod that dies before its endpoint changes: how long before, how often, and the connections meanwhile.
const EARLY: Duration = Duration::from_millis(500);
const EARLY_ROLLOUTS: u16 = 20;
const EARLY_PER_SECOND: u32 = 1_000;
/// How long a client waits for its connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Measures with a real etcd.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, is_quick: bool) -> Result<Vec<Figure>> {
    let rollouts = if is_quick { QUICK_ROLLOUTS } else { ROLLOUTS };
    remove_state()?;
    let etcd = Etcd::start(lab)?;
    let store = Client::new()?;
    store.fill(lab, WORKLOAD)?;
    let mut web = Web::start(lab, &store)?;
    let agent = Agent::start_as_service(lab, &AgentOptions::with_store(etcd.url()))?;
    let mut late = Vec::new();
    let mut connections = 0;
    for _ in 0..rollouts {
        let rollout = web.roll_out()?;
        connections += rollout.connections;
        late.extend(rollout.after_acknowledgement);
    }
    let mut failed = Vec::new();
    for is_on in [false, true] {
        web.set_failover(is_on)?;
        failed.push(early_deaths(
            &mut web,
            if is_quick { 3 } else { EARLY_ROLLOUTS },
        )?);
    }
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;

    let figure = |name: &str, measured| {
        let size = (WORKLOAD.services, usize::from(BACKENDS));
        Figure::new(SECTION, name, size, measured)
    };
    let count = |number: u32| Quantity::Count(f64::from(number));
    let later_than = |limit: Duration| {
        let number = late.iter().filter(|after| **after > limit).count();
        count(u32::try_from(number).unwrap_or(u32::MAX))
    };
    let last = late.iter().max().copied().unwrap_or_default();
    let none = Limit::AtMost(Quantity::Count(0.0));
    let mut figures = vec![
        figure("rollouts", count(rollouts.into())),
        figure("new connections", count(connections)),
        figure("sent to a removed backend", later_than(Duration::ZERO)),
        figure(
            "more than 1 ms after the acknowledgement",
            later_than(Duration::from_millis(1)),
        ),
        figure("more than 10 ms after it", later_than(LIMIT)).with_limit(none),
        figure("the last one, after", last.into()).with_limit(Limit::AtMost(LIMIT.into())),
    ];
    if !late.is_empty() {
        let samples: Samples = late.iter().copied().collect();
        figures.push(figure("of these, p50 after", samples.median().into()));
    }
    for (deaths, name) in failed.iter().zip(["off", "on"]) {
        let named = |what: &str| format!("dead 500 ms before, failover {name}, {what}");
        figures.push(figure(&named("connections"), count(deaths.connections)));
        figures.push(figure(&named("failed"), count(deaths.failed)));
    }
    Ok(figures)
}

/// The service that is rolled out. Its backends are ports of one pod.
struct Web<'a> {
    lab: &'a Lab,
    store: &'a Client,
    address: SocketAddr,
    /// The backends, each at its place among the slices, with its port.
    listeners: Vec<(u16, TcpListener)>,
    next_port: u16,
}

/// One replaced backend.
struct Rollout {
    connections: u32,
    /// Of each connection to the removed backend that began after the acknowledgement: how long after.
    after_acknowledgement: Vec<Duration>,
}

impl<'a> Web<'a> {
    fn start(lab: &'a Lab, store: &'a Client) -> Result<Self> {
        let address = Service::new("web", 80, &[]).address(lab, Frontend::ClusterIp, Family::V4);
        let mut web = Self {
            lab,
            store,
            address,
            listeners: Vec::new(),
            next_port: FIRST_PORT,
        };
        web.set_failover(false)?;
        for place in 0..BACKENDS {
            let added = web.listen()?;
            web.commit(web.slice(place, added.0))?;
            web.listeners.push(added);
        }
        Ok(web)
    }

    fn commit(&self, write: Vec<Operation>) -> Result<Instant> {
        let committed = || {
            let done = self.store.runtime.block_on(self.store.store.commit(write));
            done.map(|_| Instant::now()).map_err(unexpected)
        };
        self.lab.node.run(committed)
    }

    fn set_failover(&self, is_on: bool) -> Result<()> {
        let mode = if is_on { "on" } else { "off" };
        let value = json!({
            "name": "web", "namespace": "default", "cluster_ip": self.address.ip(),
            "annotations": {"contiv.io/failover": mode},
            "port": [{"name": "", "protocol": "TCP", "port": self.address.port(), "target_port": {"int_val": 1}}],
        });
        let key = format!("{}web/namespace/default", Key::prefix(Kind::Service));
        self.commit(put((key, value.to_string()))).map(drop)
    }

    /// The slice at this place: it has one endpoint.
    fn slice(&self, place: u16, port: u16) -> Vec<Operation> {
        let value = json!({
            "name": format!("web-{place}"), "namespace": "default",
            "service_name": "web", "address_type": "IPv4",
            "endpoints": [{
                "addresses": [self.lab.pod3.host.address(Family::V4)],
                "conditions": {"ready": true, "serving": true, "terminating": false},
            }],
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        });
        let prefix = Key::prefix(Kind::EndpointSlice);
        let key = format!("{prefix}web-{place}/namespace/default");
        put((key, value.to_string()))
    }

    /// A backend with room for all connections of a rollout: it accepts none before its end.
    fn listen(&mut self) -> Result<(u16, TcpListener)> {
        let port = self.next_port;
        self.next_port += 1;
        let listen = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            socket.bind(&any.into())?;
            socket.listen(4096)?;
            socket.set_nonblocking(true)?;
            Ok(TcpListener::from(socket))
        };
        let listener = self
            .lab
            .pod3
            .run(|| listen().map_err(|error| LabError::system("listen", error)))?;
        Ok((port, listener))
    }

    /// Replaces the backend at the first place while a client connects.
    fn roll_out(&mut self) -> Result<Rollout> {
        let added = self.listen()?;
        let place = added.0 % BACKENDS;
        let (begun, has_begun) = mpsc::channel();
        let (lab, to) = (self.lab, self.address);
        let (made, acknowledged) = thread::scope(|scope| {
            let client = scope.spawn(move || lab.pod1.run(|| connect_all(to, &begun)));
            // Without a first connection the client says why it failed.
            let _ = has_begun.recv();
            let acknowledged = self.commit(self.slice(place, added.0));
            let made = client
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            Ok::<_, LabError>((made?, acknowledged?))
        })?;
        let mut after_acknowledgement = Vec::new();
        for (port, listener) in &self.listeners {
            for peer in accepted(listener)? {
                let after = made
                    .get(&peer.port())
                    .and_then(|begin| begin.checked_duration_since(acknowledged));
                let is_removed = *port == self.listeners[usize::from(place)].0;
                after_acknowledgement.extend(after.filter(|_| is_removed));
            }
        }
        self.listeners[usize::from(place)] = added;
        Ok(Rollout {
            connections: CONNECTIONS,
            after_acknowledgement,
        })
    }
}

/// Connects again and again, and closes with a reset, so that a port can be used again. Returns when the connection of each port began.
fn connect_all(to: SocketAddr, first: &mpsc::Sender<()>) -> Result<BTreeMap<u16, Instant>> {
    let failed = |error| LabError::system(format!("connect to {to}"), error);
    let mut made = BTreeMap::new();
    for _ in 0..CONNECTIONS {
        let begin = Instant::now();
        let stream = TcpStream::connect(to).map_err(failed)?;
        made.insert(stream.local_addr().map_err(failed)?.port(), begin);
        let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        linger.map_err(failed)?;
        // Nobody waits for it if it was not the first one.
        let _ = first.send(());
    }
    Ok(made)
}

/// Takes all connections that wait. Returns their clients.
fn accepted(listener: &TcpListener) -> Result<Vec<SocketAddr>> {
    let mut peers = Vec::new();
    loop {
        match listener.accept() {
            Ok((_, peer)) => peers.push(peer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(peers),
            Err(error) => return Err(LabError::system("accept a connection", error)),
        }
    }
}

/// Connections while pods died before their endpoints changed.
#[derive(Default)]
struct Deaths {
    connections: u32,
    failed: u32,
}

fn early_deaths(web: &mut Web<'_>, rollouts: u16) -> Result<Deaths> {
    let mut deaths = Deaths::default();
    for _ in 0..rollouts {
        let added = web.listen()?;
        let place = added.0 % BACKENDS;
        let (lab, to) = (web.lab, web.address);
        let made = thread::scope(|scope| {
            let client = scope.spawn(move || lab.pod1.run(|| connect_at_pace(to)));
            thread::sleep(Duration::from_millis(100));
            // The port is closed.
            web.listeners[usize::from(place)] = added;
            thread::sleep(EARLY);
            let port = web.listeners[usize::from(place)].0;
            web.commit(web.slice(place, port))?;
            client
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })?;
        deaths.connections += made.connections;
        deaths.failed += made.failed;
        for (_, listener) in &web.listeners {
            accepted(listener)?;
        }
    }
    Ok(deaths)
}

/// Connects at a constant rate until a while after the change, and waits for each connection.
fn connect_at_pace(to: SocketAddr) -> Result<Deaths> {
    let connect = move || async move {
        let stream = time::timeout(CONNECT_TIMEOUT, AsyncStream::connect(to)).await;
        let is_made = stream.is_ok_and(|stream| {
            stream.is_ok_and(|stream| {
                SockRef::from(&stream)
                    .set_linger(Some(Duration::ZERO))
                    .is_ok()
            })
        });
        u32::from(!is_made)
    };
    let all = async {
        let mut ticks = time::interval(Duration::from_secs(1) / EARLY_PER_SECOND);
        let mut made = JoinSet::new();
        let end = Instant::now() + 2 * EARLY;
        while Instant::now() < end {
            ticks.tick().await;
            made.spawn(connect());
        }
        let failures = made.join_all().await;
        Deaths {
            connections: u32::try_from(failures.len()).unwrap_or(u32::MAX),
            failed: failures.iter().sum(),
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LabError::system("start a runtime", error))?;
    Ok(runtime.block_on(all))
}
