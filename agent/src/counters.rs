//! Attempts to connect by service, from the kernel's counters. Read on request, never while a change is programmed.

use std::{collections::BTreeMap, fmt, sync::Arc};

use contiv_model::{ContivService, Frontend, ServiceId};
use contiv_renderer::nftables::counters::{self, Connections, RefusalReason};
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
}

type ReadFn = dyn Fn() -> Result<Connections, String> + Send + Sync;

/// Reads the counters, for one caller at a time. Clones share the lock.
#[derive(Clone)]
pub struct ConnectionCounters {
    read: Arc<ReadFn>,
    permit: Arc<Semaphore>,
}

impl ConnectionCounters {
    /// The counters of this machine's kernel, with the table of the renderer `nftables`.
    pub fn of_kernel() -> Self {
        Self::new(|| counters::connections().map_err(|error| error.to_string()))
    }

    /// No counters: nothing that counts is programmed.
    pub fn none() -> Self {
        Self::new(|| Err("no renderer that counts connections runs; nftables does".to_owned()))
    }

    /// The counters that `read` returns. It may block.
    pub(crate) fn new(
        read: impl Fn() -> Result<Connections, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            read: Arc::new(read),
            permit: Arc::new(Semaphore::new(1)),
        }
    }

    /// The services with connections, those with the most first, served or refused, and then by name.
    ///
    /// # Errors
    /// When the kernel cannot be read; as text.
    pub async fn by_service(
        &self,
        services: Vec<Arc<ContivService>>,
    ) -> Result<Vec<ServiceConnections>, String> {
        let _permit = self
            .permit
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        let read = Arc::clone(&self.read);
        let work = spawn_blocking(move || Ok(attribute(&read()?, &services)));
        work.await.map_err(|error| error.to_string())?
    }
}

impl fmt::Debug for ConnectionCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionCounters").finish_non_exhaustive()
    }
}

/// Assigns each count to the service that holds the frontend.
fn attribute(counts: &Connections, services: &[Arc<ContivService>]) -> Vec<ServiceConnections> {
    let of_service = |service: &Arc<ContivService>| {
        let (mut frontends, mut refused_by) = (BTreeMap::new(), BTreeMap::new());
        let held = service
            .frontends()
            .into_iter()
            .filter(|frontend| !service.lost.contains_key(frontend));
        for frontend in held {
            for reason in RefusalReason::ALL {
                if let Some(refused) = counts.refused.get(&(frontend, reason)) {
                    *refused_by.entry(reason).or_default() += refused;
                }
            }
            frontends.extend(
                counts
                    .served
                    .get(&frontend)
                    .map(|served| (frontend, *served)),
            );
        }
        let (connections, refused) = (frontends.values().sum(), refused_by.values().sum());
        let attempts = u64::saturating_add(connections, refused);
        let service = service.id.clone();
        let counted = ServiceConnections {
            service,
            attempts,
            connections,
            refused,
            refused_by,
            frontends,
        };
        (attempts > 0).then_some(counted)
    };
    let mut found: Vec<ServiceConnections> = services.iter().filter_map(of_service).collect();
    found.sort_by(|a, b| {
        b.attempts
            .cmp(&a.attempts)
            .then_with(|| a.service.cmp(&b.service))
    });
    found
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
}
