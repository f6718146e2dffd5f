//! Maps a service's ports to those of a workload.

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
    /// The ports of a stored slice.
    pub(super) fn of(slice: &EndpointSlice) -> Self {
        let port = |port: &Port| {
            (
                port.name.clone(),
                port.port,
                port.protocol.clone(),
                port.app_protocol.clone(),
            )
        };
        Self::new(slice.ports.iter().map(port))
    }

    /// The ports of a workload that a service uses. Undocumented ones are left out: then the endpoint exists, but not with that
    /// port.
    pub(super) fn resolve(service: &Service, workload: &Workload) -> Self {
        Self::new(service.ports.iter().filter_map(|port| {
            let Some(found) = workload.ports.iter().find(|candidate| is_target(port, candidate)) else {
                debug!(service = service.name, workload = workload.name, port = ?port.target, "no such port");
                return None;
            };
            // A port without a name has an empty one, as in the API server: proxies ignore ports without the field.
            Some((Some(port.name.clone()), Some(found.port), port.protocol.clone(), String::new()))
        }))
    }

    fn new(ports: impl Iterator<Item = (Option<String>, Option<i32>, String, String)>) -> Self {
        let mut ports: Vec<_> = ports.collect();
        ports.sort_unstable();
        Self(ports)
    }

    pub(super) fn into_messages(self) -> Vec<Port> {
        let port = |(name, port, protocol, app_protocol)| Port {
            name,
            port,
            protocol,
            app_protocol,
        };
        self.0.into_iter().map(port).collect()
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, port, protocol, app_protocol)| {
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
