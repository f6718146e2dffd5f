//! Attempts to connect by service, from the kernel's counters. Read on request, never while a change is programmed.

use std::{cmp::Reverse, collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use contiv_model::{ContivService, Frontend, ServiceId};
use contiv_renderer::{
    nftables::counters::{self, Connections, RefusalReason, RefusedAttempt},
    packet_path::{NodeInspector, UnansweredFlow},
};
use serde::Serialize;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// The attempts to connect to a service: each is either served or refused, and a repetition of a refused one is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceConnections {
    /// The service.
    pub service: ServiceId,
    /// Served and refused ones.
    pub attempts: u64,
    /// Those that were sent to a backend, since the kernel started counting. That time differs: a frontend whose number of
    /// backends changes starts again.
    pub connections: u64,
    /// Those that were refused, over all frontends and reasons.
    pub refused: u64,
    /// The refused ones by reason, of each reason that occurred.
    pub refused_by: BTreeMap<RefusalReason, u64>,
    /// The served ones by frontend.
    pub frontends: BTreeMap<Frontend, u64>,
}

impl ServiceConnections {
    /// Those of a service without attempts.
    pub(crate) const fn none(service: ServiceId) -> Self {
        Self {
            service,
            attempts: 0,
            connections: 0,
            refused: 0,
            refused_by: BTreeMap::new(),
            frontends: BTreeMap::new(),
        }
    }

    /// Those at the frontends that a service holds.
    pub(crate) fn of(service: &ContivService, counts: &Connections) -> Self {
        let (mut frontends, mut refused_by) = (BTreeMap::new(), BTreeMap::new());
        for frontend in held_frontends(service) {
            for reason in RefusalReason::ALL {
                if let Some(refused) = counts.refused.get(&(frontend, reason)) {
                    *refused_by.entry(reason).or_default() += refused;
                }
            }
            let served = counts.served.get(&frontend);
            frontends.extend(served.map(|served| (frontend, *served)));
        }
        let (connections, refused) = (frontends.values().sum(), refused_by.values().sum());
        Self {
            service: service.id.clone(),
            attempts: u64::saturating_add(connections, refused),
            connections,
            refused,
            refused_by,
            frontends,
        }
    }
}

/// Refused attempts at a frontend of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedConnections {
    /// The service.
    pub service: ServiceId,
    /// Its frontend.
    pub frontend: Frontend,
    /// The attempts by reason, since the kernel started counting; a day without any ends that.
    pub refused_by: BTreeMap<RefusalReason, u64>,
    /// The clients of the last two minutes with their attempts, those with the most first; a part of them.
    pub clients: Vec<RefusedClient>,
    /// How many more clients there were.
    pub more_clients: usize,
}

/// A client that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RefusedClient {
    /// Its address.
    pub address: IpAddr,
    /// Its attempts of the last two minutes, each from a port of its own.
    pub attempts: usize,
}

/// How many clients of a frontend are named.
const NAMED_CLIENTS: usize = 10;

type ReadFn = dyn Fn() -> Result<Connections, String> + Send + Sync;
type ReadRefusedFn = dyn Fn() -> Result<Vec<RefusedAttempt>, String> + Send + Sync;
type ReadUnansweredFn = dyn Fn() -> Result<Vec<UnansweredFlow>, String> + Send + Sync;

/// Reads the counters, for one caller at a time. Clones share the lock.
#[derive(Clone)]
pub struct ConnectionCounters {
    read: Arc<ReadFn>,
    read_refused: Arc<ReadRefusedFn>,
    read_unanswered: Arc<ReadUnansweredFn>,
    permit: Arc<Semaphore>,
}

impl ConnectionCounters {
    /// The counters of this machine's kernel, with the table of the renderer `nftables`.
    pub fn of_kernel() -> Self {
        let read_unanswered = || {
            let flows = NodeInspector::open().and_then(|mut node| node.unanswered_flows());
            flows.map_err(|error| error.to_string())
        };
        Self {
            read_unanswered: Arc::new(read_unanswered),
            ..Self::new(
                || counters::connections().map_err(|error| error.to_string()),
                || counters::refused_attempts().map_err(|error| error.to_string()),
            )
        }
    }

    /// No counters: nothing that counts is programmed.
    pub fn none() -> Self {
        let none = "no renderer that counts connections runs; nftables does";
        Self::new(|| Err(none.to_owned()), || Err(none.to_owned()))
    }

    /// The counters that `read` returns, and the attempts that `read_refused` returns, which both may block; and no unanswered flows.
    pub(crate) fn new(
        read: impl Fn() -> Result<Connections, String> + Send + Sync + 'static,
        read_refused: impl Fn() -> Result<Vec<RefusedAttempt>, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            read: Arc::new(read),
            read_refused: Arc::new(read_refused),
            read_unanswered: Arc::new(|| Ok(Vec::new())),
            permit: Arc::new(Semaphore::new(1)),
        }
    }

    /// The counters of all frontends, as the kernel has them.
    ///
    /// # Errors
    /// When the kernel cannot be read; as text.
    pub(crate) async fn all(&self) -> Result<Connections, String> {
        let read = Arc::clone(&self.read);
        self.for_one(move || read()).await
    }

    /// The services with connections, those with the most first, served or refused, and then by name.
    ///
    /// # Errors
    /// When the kernel cannot be read; as text.
    pub async fn by_service(
        &self,
        services: Vec<Arc<ContivService>>,
    ) -> Result<Vec<ServiceConnections>, String> {
        let read = Arc::clone(&self.read);
        self.for_one(move || Ok(attribute(&read()?, &services)))
            .await
    }

    /// The frontends that refused attempts, in the order of services and frontends.
    ///
    /// # Errors
    /// When the kernel cannot be read; as text.
    pub async fn refused(
        &self,
        services: Vec<Arc<ContivService>>,
    ) -> Result<Vec<RefusedConnections>, String> {
        let (read, read_refused) = (Arc::clone(&self.read), Arc::clone(&self.read_refused));
        self.for_one(move || Ok(attribute_refused(&read()?, &read_refused()?, &services)))
            .await
    }

    /// The translated flows that were not answered, as of now. Nothing else waits for it.
    ///
    /// # Errors
    /// When the kernel cannot be read; as text.
    pub(crate) async fn unanswered(&self) -> Result<Vec<UnansweredFlow>, String> {
        let read = Arc::clone(&self.read_unanswered);
        let read = spawn_blocking(move || read()).await;
        read.map_err(|error| error.to_string())?
    }

    /// The frontends of a service that refused attempts by these counters, with the clients as of now.
    ///
    /// # Errors
    /// When the kernel cannot be read; as text.
    pub(crate) async fn refused_of(
        &self,
        service: Arc<ContivService>,
        counts: Arc<Connections>,
    ) -> Result<Vec<RefusedConnections>, String> {
        if ServiceConnections::of(&service, &counts).refused == 0 {
            return Ok(Vec::new());
        }
        let read_refused = Arc::clone(&self.read_refused);
        self.for_one(move || Ok(attribute_refused(&counts, &read_refused()?, &[service])))
            .await
    }

    /// Works for one caller at a time, where it may block.
    async fn for_one<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let _permit = self
            .permit
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        spawn_blocking(work)
            .await
            .map_err(|error| error.to_string())?
    }
}

impl fmt::Debug for ConnectionCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionCounters").finish_non_exhaustive()
    }
}

/// Assigns each count to the service that holds the frontend.
fn attribute(counts: &Connections, services: &[Arc<ContivService>]) -> Vec<ServiceConnections> {
    let of_services = services
        .iter()
        .map(|service| ServiceConnections::of(service, counts));
    let mut found: Vec<ServiceConnections> = of_services.filter(|of| of.attempts > 0).collect();
    found.sort_by(|a, b| {
        b.attempts
            .cmp(&a.attempts)
            .then_with(|| a.service.cmp(&b.service))
    });
    found
}

/// The frontends that a service holds: those that others claim too are counted for one.
pub(crate) fn held_frontends(service: &ContivService) -> impl Iterator<Item = Frontend> {
    let held = service.frontends().into_iter();
    held.filter(|frontend| !service.lost.contains_key(frontend))
}

/// Assigns refused attempts to the services that hold their frontends.
fn attribute_refused(
    counts: &Connections,
    attempts: &[RefusedAttempt],
    services: &[Arc<ContivService>],
) -> Vec<RefusedConnections> {
    let mut refused_by: BTreeMap<Frontend, BTreeMap<RefusalReason, u64>> = BTreeMap::new();
    for ((frontend, reason), count) in &counts.refused {
        refused_by
            .entry(*frontend)
            .or_default()
            .insert(*reason, *count);
    }
    let mut clients: BTreeMap<Frontend, BTreeMap<IpAddr, usize>> = BTreeMap::new();
    for attempt in attempts {
        let (protocol, port) = (attempt.protocol, attempt.destination.port());
        let address = Frontend::Address {
            address: attempt.destination.ip(),
            protocol,
            port,
        };
        // Any address of the node is that of its node ports.
        let frontend = if refused_by.contains_key(&address) {
            address
        } else {
            Frontend::NodePort { protocol, port }
        };
        let of_frontend = clients.entry(frontend).or_default();
        *of_frontend.entry(attempt.client.ip()).or_default() += 1;
    }
    let of_service = |service: &Arc<ContivService>| {
        let refused = held_frontends(service).filter_map(|frontend| {
            let refused_by = refused_by.get(&frontend)?.clone();
            let of_frontend = clients.get(&frontend).into_iter().flatten();
            let mut clients: Vec<RefusedClient> = of_frontend
                .map(|(address, attempts)| RefusedClient {
                    address: *address,
                    attempts: *attempts,
                })
                .collect();
            clients.sort_by_key(|client| (Reverse(client.attempts), client.address));
            let more_clients = clients.len().saturating_sub(NAMED_CLIENTS);
            clients.truncate(NAMED_CLIENTS);
            Some(RefusedConnections {
                service: service.id.clone(),
                frontend,
                refused_by,
                clients,
                more_clients,
            })
        });
        refused.collect::<Vec<_>>()
    };
    services.iter().flat_map(of_service).collect()
}

#[cfg(test)]
mod tests {
    use contiv_model::{Protocol, ServicePort};

    use super::*;

    fn service(name: &str, last: u8, node_port: Option<u16>) -> ContivService {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port,
            backends: Vec::new(),
        };
        ContivService {
            cluster_ips: [[10, 96, 0, last].into()].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("shop", name))
        }
    }

    fn address(last: u8) -> Frontend {
        Frontend::Address {
            address: [10, 96, 0, last].into(),
            protocol: Protocol::Tcp,
            port: 80,
        }
    }

    #[test]
    fn service_counts_its_own_frontends_but_no_lost_ones() {
        let node_port = Frontend::NodePort {
            protocol: Protocol::Tcp,
            port: 30080,
        };
        let mut loser = service("loser", 2, Some(30080));
        loser.lost = [(node_port, ServiceId::new("shop", "web"))].into();
        let services = [
            loser,
            service("quiet", 3, None),
            service("web", 1, Some(30080)),
        ]
        .map(Arc::new);
        let counts = Connections {
            served: [
                (address(1), 5),
                (address(2), 5),
                (node_port, 4),
                (address(9), 7),
            ]
            .into(),
            refused: [
                ((address(2), RefusalReason::Policy), 3),
                ((address(3), RefusalReason::NoEndpoints), 9),
                ((node_port, RefusalReason::Policy), 1),
                ((node_port, RefusalReason::SourceRanges), 2),
            ]
            .into(),
        };
        let found = attribute(&counts, &services);
        let shown: Vec<_> = found
            .iter()
            .map(|of| (of.service.to_string(), of.connections, of.refused))
            .collect();
        let expected = [
            ("shop/web", 9, 3),
            ("shop/quiet", 0, 9),
            ("shop/loser", 5, 3),
        ];
        assert_eq!(
            shown,
            expected.map(|(name, served, refused)| (name.to_owned(), served, refused))
        );
        assert_eq!(found[0].frontends, [(address(1), 5), (node_port, 4)].into());
        assert_eq!(found[0].attempts, 12);
        assert_eq!(
            found[0].refused_by,
            [(RefusalReason::Policy, 1), (RefusalReason::SourceRanges, 2)].into()
        );
    }

    #[test]
    fn refused_clients_are_counted_by_frontend_and_address() {
        let services = [service("web", 1, Some(30080))].map(Arc::new);
        let node_port = Frontend::NodePort {
            protocol: Protocol::Tcp,
            port: 30080,
        };
        let counts = Connections {
            refused: [
                ((address(1), RefusalReason::NoEndpoints), 40),
                ((node_port, RefusalReason::Policy), 2),
                ((address(9), RefusalReason::Policy), 7),
            ]
            .into(),
            ..Connections::default()
        };
        let attempt = |last: u8, port: u16, destination: &str| RefusedAttempt {
            client: ([10, 0, 0, last], port).into(),
            destination: destination.parse().expect("an address and port"),
            protocol: Protocol::Tcp,
        };
        let mut attempts: Vec<RefusedAttempt> = (1..=12)
            .map(|last| attempt(last, 1000, "10.96.0.1:80"))
            .collect();
        attempts.extend([
            attempt(12, 1001, "10.96.0.1:80"),
            attempt(7, 1002, "192.0.2.1:30080"),
            attempt(7, 1003, "192.0.2.2:30080"),
        ]);
        let found = attribute_refused(&counts, &attempts, &services);
        let shown = |refused: &RefusedConnections| {
            let clients: Vec<(String, usize)> = refused
                .clients
                .iter()
                .map(|client| (client.address.to_string(), client.attempts))
                .collect();
            (refused.frontend, clients, refused.more_clients)
        };
        let shown: Vec<_> = found.iter().map(shown).collect();
        let client = |last: u8, attempts| (format!("10.0.0.{last}"), attempts);
        let mut first = vec![client(12, 2)];
        first.extend((1..=9).map(|last| client(last, 1)));
        assert_eq!(
            shown,
            [(address(1), first, 2), (node_port, vec![client(7, 2)], 0)]
        );
        assert_eq!(
            found[0].refused_by,
            [(RefusalReason::NoEndpoints, 40)].into()
        );
    }
}
