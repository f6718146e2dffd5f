//! The backends that serve a frontend: those of a service, and the programmed ones.

use std::{collections::BTreeMap, net::SocketAddr};

use contiv_model::{Backend, ContivService, ServicePort};

use super::backends::Backends;
use crate::nftables::{Element, Family, FrontendKey, Value, desired::plan::plan};

/// The frontends that `service` is programmed with, each with all backends of its port. Which of them new connections reach
/// does not matter: a flow to any other backend works and stays, independent of the current policies, topology and readiness.
/// kube-proxy does the same.
pub(super) fn serving(service: &ContivService) -> BTreeMap<FrontendKey, Backends> {
    let port_of = |frontend: &FrontendKey| {
        let has = |port: &&ServicePort| {
            let number = if frontend.is_node_port() {
                port.node_port
            } else {
                Some(port.port)
            };
            port.protocol == frontend.protocol && number == Some(frontend.port)
        };
        service.ports.iter().find(has)
    };
    let backends_of = |frontend: &FrontendKey| {
        let backends = port_of(frontend)
            .into_iter()
            .flat_map(|port| &port.backends);
        let family = frontend.family();
        let of_family = backends.filter(move |backend| Family::of(&backend.address) == family);
        of_family.map(Backend::endpoint)
    };
    // If routes carry it, untranslated flows are right too: their backends have the service's address.
    let untranslated = |frontend: &FrontendKey| {
        let is_routed = !frontend.is_node_port() && service.assignment.addresses.routes();
        is_routed.then(|| SocketAddr::new(frontend.address, frontend.port))
    };
    let all = |frontend: &FrontendKey| {
        backends_of(frontend)
            .chain(untranslated(frontend))
            .collect()
    };
    let frontends = plan(service).frontends.into_keys();
    frontends
        .map(|frontend| (frontend, all(&frontend)))
        .collect()
}

/// The backends in a frontend's elements.
pub(crate) fn programmed(elements: &[Element]) -> Backends {
    let backend = |element: &Element| match element.value {
        Value::Backend(backend) => Some(backend.into()),
        _ => None,
    };
    elements.iter().filter_map(backend).collect()
}
