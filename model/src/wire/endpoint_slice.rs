//! Endpoint slices.

use std::{net::IpAddr, sync::Arc};

use contiv_proto::{check, label, message::endpointslice as proto};

use super::{
    endpoints::{self, collect_exact},
    error::{Problems, Validated},
    field,
};
use crate::{
    EndpointSliceId, NodeName, ServiceId,
    object::{AddressType, Conditions, EndpointPort, EndpointSlice, Hints, SliceEndpoint},
};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

const ADDRESS_TYPES: [(&str, AddressType); 3] = [
    ("IPv4", AddressType::Ipv4),
    ("IPv6", AddressType::Ipv6),
    ("FQDN", AddressType::Fqdn),
];

pub(super) fn validate(message: &proto::EndpointSlice) -> Validated<EndpointSlice> {
    let mut problems = Problems::default();
    problems.check("metadata.namespace", check::name(&message.namespace));
    problems.check("metadata.name", check::name(&message.name));

    let id = EndpointSliceId::new(message.namespace.as_str(), message.name.as_str());
    let address_type = problems.word(
        "addressType",
        &message.address_type,
        &ADDRESS_TYPES,
        AddressType::Fqdn,
    );
    let usable = address_type != AddressType::Fqdn;
    let endpoints = message
        .endpoints
        .iter()
        .enumerate()
        .filter(|_| usable)
        .filter_map(|(e, endpoint)| {
            self::endpoint(e, endpoint, address_type, &id.namespace, &mut problems)
        });
    let endpoints = collect_exact(message.endpoints.len(), endpoints).into_boxed_slice();
    let ports = message
        .ports
        .iter()
        .enumerate()
        .filter(|_| usable)
        .filter_map(|(p, port)| self::port(p, port, &mut problems));
    let ports = collect_exact(message.ports.len(), ports).into_boxed_slice();

    problems.finish(EndpointSlice {
        service: service(message, &id),
        id,
        address_type,
        is_supplement: label::is_of_external_workloads(&message.labels),
        endpoints,
        ports,
    })
}

fn service(message: &proto::EndpointSlice, id: &EndpointSliceId) -> Option<ServiceId> {
    let name = match message.service_name.as_str() {
        "" => message
            .labels
            .get(SERVICE_LABEL)
            .map(String::as_str)
            .filter(|name| !name.is_empty())?,
        name => name,
    };
    let headless = message.labels.contains_key(label::HEADLESS);
    (!headless).then(|| ServiceId::new(id.namespace.clone(), name))
}

fn endpoint(
    index: usize,
    endpoint: &proto::endpoint_slice::Endpoint,
    address_type: AddressType,
    namespace: &Arc<str>,
    problems: &mut Problems,
) -> Option<SliceEndpoint> {
    let Some(first) = endpoint.addresses.first() else {
        problems.leave_out(
            format_args!("endpoints[{index}].addresses"),
            "it is empty; an endpoint has at least one address",
        );
        return None;
    };
    let path = format_args!("endpoints[{index}].addresses[0]");
    let ip = problems.address(path, first, |text| {
        check::routable_address(text)
            .map_err(|problem| problem.to_string())
            .and_then(|ip| check_type(ip, address_type))
    })?;
    let conditions = endpoint.conditions.unwrap_or_default();
    Some(SliceEndpoint {
        address: endpoints::address(
            ip,
            &endpoint.node_name,
            endpoint.target_ref.as_ref(),
            namespace,
        ),
        conditions: Conditions {
            ready: conditions.ready.unwrap_or(Conditions::READY.ready),
            serving: conditions.serving.unwrap_or(Conditions::READY.serving),
            terminating: conditions
                .terminating
                .unwrap_or(Conditions::READY.terminating),
        },
        hints: endpoint
            .hints
            .as_ref()
            .map(hints)
            .filter(|hints| !hints.is_empty())
            .map(Box::new),
    })
}

fn hints(hints: &proto::endpoint_slice::Hints) -> Hints {
    Hints {
        nodes: hints
            .for_nodes
            .iter()
            .map(|node| NodeName::new(node.as_str()))
            .collect(),
        zones: hints
            .for_zones
            .iter()
            .map(|zone| zone.as_str().into())
            .collect(),
    }
}

fn check_type(ip: IpAddr, address_type: AddressType) -> Result<IpAddr, String> {
    if ip.is_ipv4() == (address_type == AddressType::Ipv4) {
        return Ok(ip);
    }
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    Err(format!(
        "{ip} is an {family} address, which addressType does not allow in this slice"
    ))
}

/// None, without a problem, for a port that kube-proxy ignores: one without a name or number.
fn port(
    index: usize,
    port: &proto::endpoint_slice::Port,
    problems: &mut Problems,
) -> Option<EndpointPort> {
    let path = format_args!("ports[{index}]");
    let name = port.name.as_deref();
    let number = match port.port {
        None | Some(0) => None,
        Some(number) => problems.check(format_args!("{path}.port"), field::port(number)),
    };
    let protocol = problems.known(
        format_args!("{path}.protocol"),
        field::protocol(&port.protocol),
    );
    Some(EndpointPort {
        name: name?.into(),
        protocol: protocol?,
        port: number?,
    })
}
