//! The configuration of the simulated agent.

use std::{sync::Arc, time::Duration};

use contiv_agent::node::{CoreConfig, GuardConfig, HistoryLimits, VerificationConfig};
use contiv_model::{NodeName, ProcessorConfig};

use crate::cluster::{NODE, NODE_ADDRESS};

/// The name of the only renderer.
pub(crate) const RENDERER: &str = "nftables";

/// That of its core.
pub(crate) fn core() -> CoreConfig {
    let renderer: Arc<str> = RENDERER.into();
    CoreConfig {
        store: "etcd://simulated".to_owned(),
        processor: ProcessorConfig::new(NodeName::new(NODE)),
        has_mirror: true,
        local_addresses: [NODE_ADDRESS].into(),
        local_interfaces: [].into(),
        attached: [].into(),
        guard: GuardConfig { percent: 50, wait: Duration::from_secs(60) },
        verification: VerificationConfig { interval: Some(Duration::from_secs(600)), heal: true },
        history: HistoryLimits { events: 1000, age: Duration::from_secs(3600), bytes: 1 << 20 },
        renderers: vec![Arc::clone(&renderer)],
        verified_renderers: vec![Arc::clone(&renderer)],
        traffic_renderer: renderer,
    }
}
