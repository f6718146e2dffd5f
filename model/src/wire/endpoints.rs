//! Endpoints, and the parts shared with endpoint slices.

use std::{net::IpAddr, sync::Arc};

use contiv_proto::{check, label, message::endpoints as proto};

use super::{
    error::{Problems, Validated},
    field,
};
use crate::{
    NodeName, PodId, ServiceId,
    object::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints},
};

pub(super) fn validate(message: &proto::Endpoints) -> Validated<Endpoints> {
    let mut problems = Problems::default();
    problems.check("metadata.namespace", check::name(&message.namespace));
    problems.check("metadata.name", check::name(&message.name));

    // All pods share one copy of the namespace; nearly all of them are in it.
    let id = ServiceId::new(message.namespace.as_str(), message.name.as_str());
    let mut subsets = Vec::with_capacity(message.endpoint_subsets.len());
    for (s, subset) in message.endpoint_subsets.iter().enumerate() {
        let path = format_args!("subsets[{s}]");
        let addresses = subset
            .addresses
            .iter()
            .enumerate()
            .filter_map(|(a, address)| {
                let ip = problems.address(
                    format_args!("{path}.addresses[{a}].ip"),
                    &address.ip,
                    check::routable_address,
                )?;
                Some(self::address(
                    ip,
                    &address.node_name,
                    address.target_ref.as_ref(),
                    &id.namespace,
                ))
            });
        let addresses: Vec<EndpointAddress> = collect_exact(subset.addresses.len(), addresses);
        let ports = subset.ports.iter().enumerate().filter_map(|(p, port)| {
            let path = format_args!("{path}.ports[{p}]");
            let number = problems.check(format_args!("{path}.port"), field::port(port.port));
            let protocol = problems.known(
                format_args!("{path}.protocol"),
                field::protocol(&port.protocol),
            );
            Some(EndpointPort {
                name: port.name.as_str().into(),
                protocol: protocol?,
                port: number?,
            })
        });
        let ports: Vec<EndpointPort> = collect_exact(subset.ports.len(), ports);
        subsets.push(EndpointSubset { addresses, ports });
    }
    if message.labels.contains_key(label::HEADLESS) {
        subsets = Vec::new();
    }
    problems.finish(Endpoints { id, subsets })
}

/// Collects the valid ones without spare capacity, which a filtered iterator would leave.
pub(super) fn collect_exact<T>(count: usize, valid: impl Iterator<Item = T>) -> Vec<T> {
    let mut collected = Vec::with_capacity(count);
    collected.extend(valid);
    collected.shrink_to_fit();
    collected
}

/// An address with its location. `namespace` is that of its object.
pub(super) fn address(
    ip: IpAddr,
    node_name: &str,
    target: Option<&proto::ObjectReference>,
    namespace: &Arc<str>,
) -> EndpointAddress {
    let pod = target
        .filter(|target| target.kind == "Pod" && !target.name.is_empty())
        .map(|target| {
            let same = target.namespace.is_empty() || *target.namespace == **namespace;
            let namespace = if same {
                namespace.clone()
            } else {
                target.namespace.as_str().into()
            };
            PodId::new(namespace, target.name.as_str())
        });
    let node_name = (!node_name.is_empty()).then(|| NodeName::new(node_name));
    EndpointAddress { ip, node_name, pod }
}
