//! Which ports of a workload the ports of a service lead to.

use contiv_proto::message::endpointslice::{EndpointSlice, endpoint_slice::Port};
use tracing::debug;

use crate::{
    service::{Service, ServicePort, Target},
    workload::{Workload, WorkloadPort},
};

/// The ports of a slice in order: name, number, protocol, application protocol. All endpoints of a slice have the same, so
/// workloads that resolve a named port to different numbers are in different slices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ports(Vec<(Option<String>, Option<i32>, String, String)>);

impl Ports {
    /// Those of a stored slice.
    pub(super) fn of(slice: &EndpointSlice) -> Self {
        let port =
            |port: &Port| (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone());
        Self::new(slice.ports.iter().map(port))
    }

    /// Those that the ports of a service lead to at a workload. What the workload does not document is left out: then the
    /// endpoint is there, and cannot be reached by that port.
    pub(super) fn resolve(service: &Service, workload: &Workload) -> Self {
        Self::new(service.ports.iter().filter_map(|port| {
            let Some(found) = workload.ports.iter().find(|candidate| is_target(port, candidate)) else {
                debug!(service = service.name, workload = workload.name, port = ?port.target, "no such port");
                return None;
            };
            // A port without a name has an empty one, as the API server fills in: proxies pass over those with none.
            Some((Some(port.name.clone()), Some(found.port), port.protocol.clone(), String::new()))
        }))
    }

    fn new(ports: impl Iterator<Item = (Option<String>, Option<i32>, String, String)>) -> Self {
        let mut ports: Vec<_> = ports.collect();
        ports.sort_unstable();
        Self(ports)
    }

    pub(super) fn into_messages(self) -> Vec<Port> {
        let port = |(name, port, protocol, app_protocol)| Port { name, port, protocol, app_protocol };
        self.0.into_iter().map(port).collect()
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(name, port, protocol, app_protocol)| {
            write!(f, "{name:?} {port:?} {protocol} {app_protocol};")
        })
    }
}

fn is_target(port: &ServicePort, candidate: &WorkloadPort) -> bool {
    let matches = match &port.target {
        Target::Number(number) => candidate.port == *number,
        Target::Name(name) => candidate.name == *name,
    };
    matches && candidate.protocol == port.protocol
}
