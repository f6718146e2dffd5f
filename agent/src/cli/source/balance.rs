//! How new connections are spread over backends, from agents.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    thread::sleep,
    time::{Duration, Instant},
};

use contiv_model::ServiceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    agent_argument::AgentArgument,
    agents_argument::{Agents, ask_all},
    views::{PortView, ServiceView},
};

/// Agents end counting a minute after the last question.
const RENEWAL: Duration = Duration::from_secs(20);

/// The share of a backend.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct ShareView {
    #[serde(skip_serializing)]
    service: ServiceId,
    #[serde(skip_serializing)]
    port: u16,
    #[serde(skip_serializing)]
    protocol: String,
    #[serde(skip_serializing)]
    backend: SocketAddr,
    pub(crate) new_connections: u64,
    pub(crate) actual: f64,
    pub(crate) wanted: f64,
}

/// A backend whose share differs most from the wanted one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct FurthestOff {
    pub(crate) backend: SocketAddr,
    pub(crate) wanted: f64,
    pub(crate) actual: f64,
}

impl FurthestOff {
    fn distance(self) -> f64 {
        (self.actual - self.wanted).abs()
    }
}

/// The shares of all backends whose ports had new connections.
#[derive(Debug, Deserialize)]
pub(crate) struct BalanceView {
    since: Timestamp,
    at: Timestamp,
    is_full: bool,
    backends: Vec<ShareView>,
}

/// Has agents count anew, and waits. Whoever does not answer does not answer later either, which is told then.
pub(crate) fn count_for(agents: &Agents, time: Duration) {
    let ask = |agent: &AgentArgument, path: &str| agent.get::<BalanceView>(path);
    let ask_each = |path: &str| match agents {
        Agents::One(agent) => drop(ask(agent, path)),
        Agents::Several(agents) => drop(ask_all(agents, |agent| ask(agent, path))),
    };
    // No service has this name: only the counting matters.
    ask_each("/balance?restart=true&service=-");
    let begin = Instant::now();
    loop {
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return;
        }
        sleep(left.min(RENEWAL));
        if left > RENEWAL {
            ask_each("/balance?service=-");
        }
    }
}

impl BalanceView {
    /// Those since counting began.
    ///
    /// # Errors
    /// When there is no answer, or the kernel cannot count.
    pub(crate) fn of(agent: &AgentArgument) -> anyhow::Result<Self> {
        agent.get("/balance")
    }

    /// The backends of a port that had new connections, or other backends of its family had.
    pub(crate) fn of_port<'a>(
        &'a self,
        service: &ServiceView,
        port: &PortView,
    ) -> BTreeMap<SocketAddr, &'a ShareView> {
        let first = self
            .backends
            .partition_point(|share| share.service < service.id);
        self.backends[first..]
            .iter()
            .take_while(|share| share.service == service.id)
            .filter(|share| share.port == port.port && share.protocol == port.protocol)
            .map(|share| (share.backend, share))
            .collect()
    }

    /// Of each service the backend whose share differs most from the wanted one.
    pub(crate) fn furthest_off(&self) -> BTreeMap<ServiceId, FurthestOff> {
        let mut furthest: BTreeMap<ServiceId, FurthestOff> = BTreeMap::new();
        for share in &self.backends {
            let one = FurthestOff {
                backend: share.backend,
                wanted: share.wanted,
                actual: share.actual,
            };
            let known = furthest.entry(share.service.clone()).or_insert(one);
            if one.distance() > known.distance() {
                *known = one;
            }
        }
        furthest
    }

    /// What has to be known beside it: a line each.
    pub(crate) fn notes(&self, wanted: Duration) -> String {
        let counted = Duration::try_from(self.at.duration_since(self.since)).unwrap_or_default();
        let mut notes = String::new();
        if counted + Duration::from_secs(1) < wanted {
            let seconds = counted.as_secs().to_string();
            notes.extend([
                "note: counted for ",
                &seconds,
                " s only: counting was begun anew meanwhile\n",
            ]);
        }
        if self.is_full {
            notes += "warning: more frontends and backends have connections than the kernel can count: some are missing\n";
        }
        notes
    }
}
