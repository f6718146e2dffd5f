//! The configuration of the simulated agent.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contiv_model::{
    FailoverMode, InterfaceName, NodeName, PodId, ProcessorConfig, processor::NodePortAddresses,
};
use contiv_node::{CoreConfig, GuardConfig, HistoryLimits, VerificationConfig};

use crate::{
    cluster::NODE,
    local_addresses::{LocalAddresses, NODE_PORT_RANGE},
};

/// The name of the only renderer.
pub(crate) const RENDERER: &str = "nftables";
/// The limits of the history: number and age of events.
pub(crate) const HISTORY_EVENTS: usize = 1000;
pub(crate) const HISTORY_AGE: Duration = Duration::from_secs(3600);

/// The configuration of the core, on a node with these addresses and attached pods.
pub(crate) fn core(
    addresses: &LocalAddresses,
    attached: &BTreeMap<PodId, InterfaceName>,
) -> CoreConfig {
    let renderer: Arc<str> = RENDERER.into();
    let range = NODE_PORT_RANGE.parse().map(NodePortAddresses::Within);
    let node_port_addresses = [NodePortAddresses::Primary]
        .into_iter()
        .chain(range)
        .collect();
    CoreConfig {
        store: "etcd://simulated".to_owned(),
        processor: ProcessorConfig {
            node_port_addresses,
            failover: FailoverMode::On,
            ..ProcessorConfig::new(NodeName::new(NODE))
        },
        has_mirror: true,
        local_addresses: addresses.all(),
        local_interfaces: [].into(),
        attached: attached.clone(),
        guard: GuardConfig {
            percent: 50,
            wait: Duration::from_secs(60),
        },
        verification: VerificationConfig {
            interval: Some(Duration::from_secs(600)),
            resync_on_drift: true,
        },
        history: HistoryLimits {
            events: HISTORY_EVENTS,
            age: HISTORY_AGE,
            bytes: 1 << 30,
        },
        renderers: vec![Arc::clone(&renderer)],
        verified_renderers: vec![Arc::clone(&renderer)],
        traffic_renderer: renderer,
        self_check: None,
    }
}
