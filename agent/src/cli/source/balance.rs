//! How new connections are spread over backends, from the agent.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    thread::sleep,
    time::{Duration, Instant},
};

use contiv_model::ServiceId;
use serde::{Deserialize, Serialize};

use super::{
    agent_argument::AgentArgument,
    views::{BackendView, PortView, ServiceView},
};

/// The agent ends counting a minute after the last question.
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

#[derive(Debug, Deserialize)]
struct Answer {
    since: jiff::Timestamp,
    at: jiff::Timestamp,
    backends: Vec<ShareView>,
}

type Key = (ServiceId, u16, String, SocketAddr);

/// The shares of all backends whose ports had new connections.
#[derive(Debug)]
pub(crate) struct BalanceView {
    shares: BTreeMap<Key, ShareView>,
}

impl BalanceView {
    /// Those since counting began, for at least this time.
    ///
    /// # Errors
    /// When there is no answer, or the kernel cannot count.
    pub(crate) fn of(agent: &AgentArgument, least: Duration) -> anyhow::Result<Self> {
        let ask = || agent.get::<Answer>("/balance");
        let mut answer = ask()?;
        let counted = Duration::try_from(answer.at.duration_since(answer.since));
        let end = Instant::now() + least.saturating_sub(counted.unwrap_or_default());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            sleep(left.min(RENEWAL));
            answer = ask()?;
        }
        let shares = answer.backends.into_iter().map(|share| {
            let (service, protocol) = (share.service.clone(), share.protocol.clone());
            let key = (service, share.port, protocol, share.backend);
            (key, share)
        });
        Ok(Self {
            shares: shares.collect(),
        })
    }

    /// The share of a backend; none if its port had no new connection.
    pub(crate) fn share(
        &self,
        service: &ServiceView,
        port: &PortView,
        backend: &BackendView,
    ) -> Option<&ShareView> {
        let backend = SocketAddr::new(backend.address, backend.port);
        let key = (
            service.id.clone(),
            port.port,
            port.protocol.clone(),
            backend,
        );
        self.shares.get(&key)
    }
}
