//! This node with the renderer, and the flows that `conntrack` lists.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use contiv_model::{Backend, ChangeSet, ContivService, Protocol, ServiceId, ServicePort, Snapshot};
use contiv_renderer::{Renderer, nftables::Nftables};
use contiv_tests::lab::{
    Family, Lab, LabError, Namespace, Responder, Result, Session, ranges, wait_for, wait_until,
};

/// The port of all services and backends.
pub(crate) const PORT: u16 = 53;
/// The node port of services that have one.
pub(crate) const NODE_PORT: u16 = 30_053;
/// How long what a search for stale flows does is waited for.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeouts of flows that end soon, in seconds by default 30, 120, 10, 3 and 3. They are raised to more than a test takes, so that
/// a flow that is gone was deleted.
const FLOW_TIMEOUTS: [&str; 5] = [
    "udp_timeout",
    "udp_timeout_stream",
    "sctp_timeout_closed",
    "sctp_timeout_cookie_wait",
    "sctp_timeout_cookie_echoed",
];
const RAISED_TIMEOUT_SECONDS: u32 = 1200;

/// The node under test: its renderer, the programmed state, and servers in all pods.
pub(crate) struct Gateway<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) renderer: Nftables,
    pub(crate) state: Snapshot,
    _servers: Vec<Responder>,
}

/// A line of `conntrack -L`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) client: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The backend that answers.
    pub(crate) backend: SocketAddr,
    pub(crate) id: u32,
}

impl<'a> Gateway<'a> {
    /// Programs a table without services: its rules make the kernel track flows.
    pub(crate) fn start(lab: &'a Lab) -> Result<Self> {
        let mut state = Snapshot::default();
        state.node.node_ips = Family::BOTH
            .map(|family| lab.node.host.address(family))
            .into();
        state.node.pod_cidrs = Family::BOTH
            .iter()
            .flat_map(|family| ranges::PODS.cidr(*family).parse())
            .collect();
        for timeout in FLOW_TIMEOUTS {
            let raised = format!("net.netfilter.nf_conntrack_{timeout}={RAISED_TIMEOUT_SECONDS}");
            lab.node.exec(&["sysctl", "-qw", &raised])?;
        }
        let servers = Responder::start_all(lab.pods(), PORT)?;
        let mut gateway = Self {
            lab,
            renderer: Nftables::new(),
            state,
            _servers: servers,
        };
        gateway.restart(&[])?;
        Ok(gateway)
    }

    /// Programs changes so that there are exactly these services.
    pub(crate) fn program(&mut self, services: &[&ContivService]) -> Result<()> {
        let next = self.state_with(services);
        let changes = ChangeSet::between(&self.state, &next);
        self.state = next;
        let renderer = &mut self.renderer;
        self.lab
            .node
            .run(|| renderer.update(&changes).map(drop).map_err(unexpected))
    }

    /// Starts a new renderer with these services.
    pub(crate) fn restart(&mut self, services: &[&ContivService]) -> Result<()> {
        self.renderer = Nftables::new();
        self.resync(services)
    }

    /// Programs the whole table with these services, whatever is there.
    pub(crate) fn resync(&mut self, services: &[&ContivService]) -> Result<()> {
        self.state = self.state_with(services);
        let (renderer, state) = (&mut self.renderer, &self.state);
        self.lab
            .node
            .run(|| renderer.resync(state).map(drop).map_err(unexpected))
    }

    fn state_with(&self, services: &[&ContivService]) -> Snapshot {
        let services = services
            .iter()
            .map(|&service| (service.id.clone(), Arc::new(service.clone())));
        Snapshot {
            services: services.collect(),
            ..self.state.clone()
        }
    }

    /// Waits until this many stale flows have been deleted since the renderer started, in completed searches. Returns how long that
    /// took.
    pub(crate) fn wait_for_deletions(&self, count: usize) -> Result<Duration> {
        let what = format!("{count} flows deleted");
        let waited = wait_until(&what, EVENT_TIMEOUT, || self.deletions() >= count)?;
        assert_eq!(
            (self.deletions(), self.total("stale-flow-failures")),
            (count, 0),
            "deleted and failed"
        );
        Ok(waited)
    }

    /// The number of stale flows deleted since the renderer started.
    pub(crate) fn deletions(&self) -> usize {
        self.total("stale-flows-deleted")
    }

    /// The number of searches for flows.
    pub(crate) fn searches(&self) -> usize {
        self.total("stale-flow-searches")
    }

    fn total(&self, name: &str) -> usize {
        let sizes = self.renderer.describe().sizes;
        sizes
            .iter()
            .find(|(size, _)| size == name)
            .map_or(0, |(_, total)| *total)
    }

    /// The flows of one protocol on the node, by the client's address.
    pub(crate) fn flows(&self, protocol: &str) -> Result<BTreeMap<SocketAddr, Flow>> {
        let mut flows = BTreeMap::new();
        for family in ["ipv4", "ipv6"] {
            let listing = self.lab.node.exec(&[
                "conntrack",
                "-L",
                "-f",
                family,
                "-p",
                protocol,
                "-o",
                "id",
            ])?;
            for line in listing.lines().filter(|line| line.contains("sport=")) {
                let flow = parse(line)
                    .ok_or_else(|| LabError::Unexpected(format!("not a flow: {line}")))?;
                flows.insert(flow.client, flow);
            }
        }
        Ok(flows)
    }

    /// The flow of a session, if there is one.
    pub(crate) fn flow_of(&self, from: &Namespace, session: &Session) -> Result<Option<Flow>> {
        let port = session.local_address()?.port();
        let protocol = match session {
            Session::Tcp(_) => "tcp",
            Session::Udp(_) => "udp",
            Session::Sctp(_) => "sctp",
        };
        let clients = [from.host.address(Family::V4), from.host.address(Family::V6)];
        let flows = self.flows(protocol)?;
        Ok(flows
            .into_values()
            .find(|flow| flow.client.port() == port && clients.contains(&flow.client.ip())))
    }

    /// Sends one datagram and waits until the node tracks its flow. Does not wait for an answer.
    pub(crate) fn send(&self, from: &Namespace, session: &Session) -> Result<Flow> {
        let Session::Udp(socket) = session else {
            return Err(unexpected("not a UDP session"));
        };
        socket
            .send(b"who?\n")
            .map_err(|error| LabError::system("send a datagram", error))?;
        wait_for(
            "the node tracks the flow of a datagram",
            Duration::from_secs(10),
            || self.flow_of(from, session).transpose(),
        )?
    }
}

/// A service with one cluster IP in each family and these pods as backends.
pub(crate) fn service(
    name: &str,
    number: u8,
    protocol: Protocol,
    backends: &[&Namespace],
) -> ContivService {
    let backends = backends
        .iter()
        .flat_map(|pod| Family::BOTH.map(|family| pod.host.socket(family, PORT)));
    let mut port = ServicePort {
        port: PORT,
        protocol,
        name: "".into(),
        node_port: None,
        backends: backends.map(Backend::new).collect(),
    };
    port.backends.sort();
    ContivService {
        cluster_ips: Family::BOTH
            .map(|family| address(number, family).ip())
            .into(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new("default", name))
    }
}

/// The address of such a service.
pub(crate) fn address(number: u8, family: Family) -> SocketAddr {
    SocketAddr::new(ranges::SERVICES.address(family, number), PORT)
}

/// Parses `udp 17 29 src=… dst=… sport=… dport=… src=… dst=… sport=… dport=… … id=…`.
fn parse(line: &str) -> Option<Flow> {
    let values = |name: &str| {
        let all = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        all.filter(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned())
            .collect::<Vec<_>>()
    };
    let [sources, destinations] = ["src", "dst"].map(values);
    let [source_ports, destination_ports] = ["sport", "dport"].map(values);
    let end = |addresses: &[String], ports: &[String], at: usize| {
        let address: IpAddr = addresses.get(at)?.parse().ok()?;
        Some(SocketAddr::new(address, ports.get(at)?.parse().ok()?))
    };
    Some(Flow {
        client: end(&sources, &source_ports, 0)?,
        destination: end(&destinations, &destination_ports, 0)?,
        backend: end(&sources, &source_ports, 1)?,
        id: values("id").first()?.parse().ok()?,
    })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in for a closure in map_err"
)]
pub(crate) fn unexpected(error: impl ToString) -> LabError {
    LabError::Unexpected(error.to_string())
}
