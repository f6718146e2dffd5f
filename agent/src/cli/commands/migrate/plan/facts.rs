//! Values of the configuration that several conversions depend on.

use serde_json::Value;

/// kube-proxy's mode. It decides which sections apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Iptables,
    Ipvs,
    Nftables,
    Other,
}

/// How kube-proxy recognizes traffic of the pods of its node (`detectLocalMode`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Detection {
    /// By the ranges of the cluster. Empty means not at all.
    ClusterCidr(Vec<String>),
    NodeCidr,
    Bridge(String),
    Prefix(String),
    /// An unknown mode, or one without the interface name that it needs.
    Invalid,
}

/// What several settings of kube-proxy depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeProxyFacts {
    pub(super) mode: Mode,
    pub(super) detection: Detection,
    /// The address for all interfaces, of the family of `bindAddress`.
    pub(super) any_address: &'static str,
    pub(super) has_healthz: bool,
    pub(super) has_node_port_addresses: bool,
    pub(super) has_localhost_node_ports: bool,
    /// The names of the configured settings of the section `conntrack`.
    pub(super) conntrack: Vec<String>,
}

impl KubeProxyFacts {
    pub(super) fn of(configuration: &Value) -> Self {
        let text = |pointer: &str| {
            configuration
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let has = |pointer: &str| {
            configuration
                .pointer(pointer)
                .is_some_and(|value| !is_unset(value))
        };
        let mode = match text("/mode") {
            // The default on Linux.
            "" | "iptables" => Mode::Iptables,
            "ipvs" => Mode::Ipvs,
            "nftables" => Mode::Nftables,
            _ => Mode::Other,
        };
        let ranges = text("/clusterCIDR")
            .split(',')
            .map(str::trim)
            .filter(|range| !range.is_empty());
        let detection = match text("/detectLocalMode") {
            "" | "ClusterCIDR" => Detection::ClusterCidr(ranges.map(str::to_owned).collect()),
            "NodeCIDR" => Detection::NodeCidr,
            "BridgeInterface" if has("/detectLocal/bridgeInterface") => {
                Detection::Bridge(text("/detectLocal/bridgeInterface").to_owned())
            }
            "InterfaceNamePrefix" if has("/detectLocal/interfaceNamePrefix") => {
                Detection::Prefix(text("/detectLocal/interfaceNamePrefix").to_owned())
            }
            _ => Detection::Invalid,
        };
        let conntrack = configuration["conntrack"].as_object().into_iter().flatten();
        let conntrack = conntrack
            .filter(|(_, value)| !is_unset(value))
            .map(|(name, _)| name.clone())
            .collect();
        Self {
            conntrack,
            mode,
            detection,
            any_address: if text("/bindAddress").contains(':') {
                "[::]"
            } else {
                "0.0.0.0"
            },
            has_healthz: has("/healthzBindAddress"),
            has_node_port_addresses: has("/nodePortAddresses"),
            has_localhost_node_ports: has("/iptables/localhostNodePorts"),
        }
    }
}

/// Whether kube-proxy uses its default in place of this value.
pub(super) fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
