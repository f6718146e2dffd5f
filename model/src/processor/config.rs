//! The processor's configuration of this node, as opposed to what it reads from the store.

use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr, sync::Arc};

use ipnetwork::IpNetwork;
use thiserror::Error;

use crate::{FailoverMode, InterfacePattern, NodeName, interface_pattern::InvalidInterfacePattern};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct ProcessorConfig {
    /// This node: endpoints that name it are local.
    pub node_name: NodeName,
    /// Weight of a local backend, where a remote one has 1 (Contiv's `serviceLocalEndpointWeight`). 0 counts as 1. The
    /// weight of the pod multiplies both.
    pub local_endpoint_weight: u16,
    /// Addresses of this node. Empty: taken from the store.
    pub node_ips: BTreeSet<IpAddr>,
    /// On which addresses node ports answer.
    pub node_port_addresses: BTreeSet<NodePortAddresses>,
    /// Node ports answer on 127.0.0.1 too.
    pub node_ports_on_loopback: bool,
    /// Interfaces by which this node reaches the external network. Empty: those with an address this node is known by, and all
    /// physical ones.
    pub external_interfaces: BTreeSet<InterfacePattern>,
    /// The interfaces at which services answer received packets; empty for all.
    pub service_interfaces: BTreeSet<ServiceInterfaces>,
    /// Ranges that identify the pods of this node. Empty: taken from the store. Without a Node object of this node they also
    /// locate endpoints without a node name.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// How pods of this node are identified.
    pub local_detect: LocalDetect,
    /// Masquerade every client on the way to a cluster IP, also pods.
    pub masquerade_all: bool,
    /// Masquerade what pods of this node send out of the cluster (Contiv's `natExternalTraffic`).
    pub masquerade_egress: bool,
    /// Destinations outside the cluster to which pods keep their addresses. Source: ip-masq-agent's `nonMasqueradeCIDRs`.
    pub non_masquerade_cidrs: BTreeSet<IpNetwork>,
    /// Ranges that cluster IPs are allocated from. Empty: unknown.
    pub service_cidrs: BTreeSet<IpNetwork>,
    /// Services with this value of the label `service.kubernetes.io/service-proxy-name` are for this proxy. None: those
    /// without the label.
    pub service_proxy_name: Option<Arc<str>>,
    /// The zone of this node. None: taken from the store.
    pub zone: Option<Arc<str>>,
    /// Source ranges of a load balancer restrict its node ports too. In Kubernetes they do not.
    pub source_ranges_on_node_ports: bool,
    /// Contiv's interpretation of `externalTrafficPolicy: Local`: it restricts the cluster IPs too.
    pub contiv_local_policy: bool,
    /// The renderer `route` runs on this node.
    pub route_runs: bool,
    /// Routes should carry every service without an annotation to the contrary.
    pub route_all: bool,
    /// What is done about backends that do not answer, of services without an annotation that says it.
    pub failover: FailoverMode,
}

impl ProcessorConfig {
    /// The defaults for the node of this name.
    pub fn new(node_name: NodeName) -> Self {
        Self {
            node_name,
            local_endpoint_weight: 1,
            node_ips: BTreeSet::new(),
            node_port_addresses: BTreeSet::from([NodePortAddresses::Primary]),
            node_ports_on_loopback: false,
            external_interfaces: BTreeSet::new(),
            service_interfaces: BTreeSet::new(),
            local_detect: LocalDetect::PodCidrs,
            masquerade_all: false,
            pod_cidrs: BTreeSet::new(),
            masquerade_egress: false,
            non_masquerade_cidrs: BTreeSet::new(),
            service_cidrs: BTreeSet::new(),
            service_proxy_name: None,
            zone: None,
            source_ranges_on_node_ports: false,
            contiv_local_policy: false,
            route_runs: false,
            route_all: false,
            failover: FailoverMode::Off,
        }
    }
}

/// A setting that selects addresses of this node. Source: kube-proxy's `nodePortAddresses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodePortAddresses {
    /// For each family the first internal address of the Node object, or else the first external one; or as configured.
    Primary,
    /// All addresses of its interfaces, except loopback and link-local ones, of which each pod's interface has one.
    All,
    /// The primary ones, and those of all other nodes: what this node sends there, or its pods do, it answers itself, as Contiv
    /// did.
    Cluster,
    /// The addresses of its interfaces in this range, except loopback, and of IPv6 link-local ones unless the range is of these.
    /// Ranges of one family leave all addresses of the other family.
    Within(IpNetwork),
}

impl NodePortAddresses {
    /// True for a range of loopback, which selects nothing.
    pub fn is_loopback(&self) -> bool {
        matches!(self, Self::Within(range) if range.ip().is_loopback())
    }
}

/// A text that does not select addresses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not `primary`, `all`, `cluster` or a range of addresses, as in 10.0.0.0/8")]
pub struct InvalidNodePortAddresses(String);

impl FromStr for NodePortAddresses {
    type Err = InvalidNodePortAddresses;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "primary" => Ok(Self::Primary),
            "all" => Ok(Self::All),
            "cluster" => Ok(Self::Cluster),
            range => {
                let range: Option<IpNetwork> = range.parse().ok().filter(|_| range.contains('/'));
                range
                    .map(Self::Within)
                    .ok_or_else(|| InvalidNodePortAddresses(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for NodePortAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primary => f.write_str("primary"),
            Self::All => f.write_str("all"),
            Self::Cluster => f.write_str("cluster"),
            Self::Within(range) => range.fmt(f),
        }
    }
}

/// A setting that selects interfaces where services answer. Contiv's frontends are both kinds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceInterfaces {
    /// The interfaces of the pods that are attached to this node's dataplane.
    Pods,
    /// The interfaces to the external network.
    External,
    /// Interfaces with these names.
    Named(InterfacePattern),
}

impl FromStr for ServiceInterfaces {
    type Err = InvalidInterfacePattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pods" => Ok(Self::Pods),
            "external" => Ok(Self::External),
            name => name.parse().map(Self::Named),
        }
    }
}

impl fmt::Display for ServiceInterfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods => f.write_str("pods"),
            Self::External => f.write_str("external"),
            Self::Named(pattern) => pattern.fmt(f),
        }
    }
}

/// How pods of this node are identified. Source: kube-proxy's `detectLocalMode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalDetect {
    /// By their address ranges.
    PodCidrs,
    /// By the interfaces where their packets arrive.
    Interfaces(BTreeSet<InterfacePattern>),
    /// Not at all: pods count as external, and no client is masqueraded on the way to a cluster IP.
    None,
}

const INTERFACES: &str = "interfaces:";

/// A text that is not a detection mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidLocalDetect {
    /// Unknown mode.
    #[error(
        "{0:?} is neither `pod-cidrs` nor `none` nor `interfaces:` with names, as in interfaces:cni0,veth*"
    )]
    Unknown(String),
    /// Invalid interface name.
    #[error(transparent)]
    Interface(#[from] InvalidInterfacePattern),
}

impl FromStr for LocalDetect {
    type Err = InvalidLocalDetect;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix(INTERFACES)) {
            ("pod-cidrs", _) => Ok(Self::PodCidrs),
            ("none", _) => Ok(Self::None),
            (_, Some(names)) => {
                let interfaces: Result<_, _> = names.split(',').map(str::parse).collect();
                Ok(Self::Interfaces(interfaces?))
            }
            _ => Err(InvalidLocalDetect::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for LocalDetect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodCidrs => f.write_str("pod-cidrs"),
            Self::None => f.write_str("none"),
            Self::Interfaces(interfaces) => {
                let names: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
                write!(f, "{INTERFACES}{}", names.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        for text in ["primary", "all", "cluster", "10.0.0.0/8", "fd00::/8"] {
            assert_eq!(text.parse::<NodePortAddresses>().unwrap().to_string(), text);
        }
        for text in ["pods", "external", "cni0", "flannel*"] {
            assert_eq!(text.parse::<ServiceInterfaces>().unwrap().to_string(), text);
        }
        for text in [
            "pod-cidrs",
            "none",
            "interfaces:cni0",
            "interfaces:cni0,veth*",
        ] {
            assert_eq!(text.parse::<LocalDetect>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unknown_setting_is_refused_with_valid_values() {
        for text in ["", "10.0.0.1", "primary,all", "10.0.0.0/33"] {
            let error = text.parse::<NodePortAddresses>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} is not `primary`, `all`")),
                "{error}"
            );
        }
        let error = "node-cidr".parse::<LocalDetect>().unwrap_err().to_string();
        assert!(
            error.starts_with("\"node-cidr\" is neither `pod-cidrs`"),
            "{error}"
        );
        for text in ["interfaces:", "interfaces:cni0,", "interfaces:a b"] {
            let error = text.parse::<LocalDetect>().unwrap_err().to_string();
            assert!(error.contains("is not the name of an interface"), "{error}");
        }
    }
}
