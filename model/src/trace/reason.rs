//! Reasons for the outcome of a flow that the stored objects give, beyond the state of renderers.

use std::{
    collections::BTreeSet,
    fmt::{self, Display, Formatter},
    net::IpAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{EndpointSliceId, NodeName, NotServed, Protocol, ServiceId};

/// A reason, found in the stored objects. [`crate::Processor::reasons`] finds all of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No endpoint slice has the label of the service, and no `Endpoints` object its name.
    NoSlice {
        /// The service.
        service: ServiceId,
        /// A slice that is named like one of the service, and belongs to none.
        similar: Option<EndpointSliceId>,
    },
    /// Its slices have host names, which a proxy cannot use.
    HostNames,
    /// Its slices have no endpoints, or its `Endpoints` object no ready ones.
    NoEndpoints {
        /// The number of slices; 0 if there is an `Endpoints` object instead.
        slices: usize,
    },
    /// No slice with endpoints has the port of the service.
    NoSuchPort {
        /// The port of the service.
        wanted: EndpointPortName,
        /// The ports that slices have.
        found: BTreeSet<EndpointPortName>,
    },
    /// All endpoints are of the other address family.
    OtherFamily {
        /// How many.
        endpoints: usize,
    },
    /// There are endpoints, but none is usable.
    NotReady {
        /// How many are not ready.
        not_ready: usize,
        /// How many are terminating, and no longer serve.
        terminating: usize,
        /// Only those on this node count.
        on_this_node: bool,
    },
    /// The address is that of a stored service that is not served here.
    NotServed {
        /// The service.
        service: ServiceId,
        /// Why it is not served.
        because: NotServed,
    },
    /// The address is that of a service without such a port.
    OtherPorts {
        /// The service.
        service: ServiceId,
        /// The ports that it has.
        ports: BTreeSet<ServicePortName>,
    },
    /// The address is that of a service whose cluster IPs are all of the other family.
    AddressOfOtherFamily {
        /// The service.
        service: ServiceId,
    },
    /// The port is a node port, which does not answer at this address of the node.
    NodePortElsewhere {
        /// The service.
        service: ServiceId,
        /// The addresses of this node, of this family, at which node ports answer.
        served_at: BTreeSet<IpAddr>,
    },
    /// The port is a node port of a service that has no address of this family.
    NodePortOfOtherFamily {
        /// The service.
        service: ServiceId,
    },
    /// The port is a node port, and the address that of another node.
    NodePortOfOtherNode {
        /// The service.
        service: ServiceId,
        /// The node.
        node: NodeName,
    },
}

/// The name and protocol by which endpoints have a port of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndpointPortName {
    /// The name; empty for a port without one.
    pub name: Arc<str>,
    /// The transport protocol.
    pub protocol: Protocol,
}

/// A port of a service as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServicePortName {
    /// The port.
    pub port: u16,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The name; empty for a service's only port.
    pub name: Arc<str>,
}

impl Display for EndpointPortName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &*self.name {
            "" => write!(f, "one without a name ({})", self.protocol),
            name => write!(f, "{name} ({})", self.protocol),
        }
    }
}

impl Display for ServicePortName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol)?;
        if self.name.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.name)
        }
    }
}

/// A sentence without a stop.
impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlice { service, similar } => {
                write!(
                    f,
                    "no endpoint slice of namespace {} has the label kubernetes.io/service-name: {}",
                    service.namespace, service.name
                )?;
                similar.as_ref().map_or(Ok(()), |slice| {
                    write!(f, "; {slice} has none or another, or is labelled service.kubernetes.io/headless")
                })
            }
            Self::HostNames => {
                f.write_str("its endpoint slices have host names (addressType FQDN), which no proxy can use")
            }
            Self::NoEndpoints { slices: 0 } => f.write_str(
                "its Endpoints object has no ready address; look at its selector, its pods and their readiness probes",
            ),
            Self::NoEndpoints { slices } => write!(
                f,
                "its {} no endpoints; look at its selector, and whether pods with these labels run",
                counted(*slices, "endpoint slice has", "endpoint slices have")
            ),
            Self::NoSuchPort { wanted, found } => {
                write!(
                    f,
                    "no endpoint slice has the port {wanted}; {}; look at the names of ports and at targetPort",
                    if found.is_empty() { "they name no port at all".to_owned() } else { format!("they have {}", joined(found)) }
                )
            }
            Self::OtherFamily { endpoints } => write!(
                f,
                "its {} of the other address family; look at ipFamilies of the service and at what its pods have",
                counted(*endpoints, "endpoint is", "endpoints are")
            ),
            Self::NotReady { not_ready, terminating, on_this_node } => {
                let place = if *on_this_node { "on this node " } else { "" };
                match (*not_ready, *terminating) {
                    (0, terminating) => write!(
                        f,
                        "{place}all endpoints are terminating and no longer serve: {terminating}; look at why no new pods run"
                    ),
                    (not_ready, 0) => write!(
                        f,
                        "{place}no endpoint is ready, of {not_ready}; look at their readiness probes"
                    ),
                    (not_ready, terminating) => write!(
                        f,
                        "{place}no endpoint is ready: {} terminating, {not_ready} not ready; look at their readiness probes",
                        counted(terminating, "is", "are")
                    ),
                }
            }
            Self::NotServed { service, because } => {
                write!(f, "the address is that of {service}, which is not served here: {because}")
            }
            Self::OtherPorts { service, ports } => {
                write!(f, "{service} has this address, but only with {}", joined(ports))
            }
            Self::AddressOfOtherFamily { service } => write!(
                f,
                "{service} has this address, but no cluster IP of this family; look at its ipFamilies"
            ),
            Self::NodePortElsewhere { service, served_at } if served_at.is_empty() => write!(
                f,
                "it is the node port of {service}, but no address of this node and family serves node ports \
                 (node-port-addresses)"
            ),
            Self::NodePortElsewhere { service, served_at } => write!(
                f,
                "it is the node port of {service}, which this node serves at {} only (node-port-addresses)",
                joined(served_at)
            ),
            Self::NodePortOfOtherFamily { service } => {
                write!(f, "it is the node port of {service}, which has no address of this family")
            }
            Self::NodePortOfOtherNode { service, node } => {
                write!(f, "it is the node port of {service} at the node {node}: the answer is that node's")
            }
        }
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn joined<T: Display>(items: &BTreeSet<T>) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
