//! The mirror image of what a processor is given, in the other family.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Event, LocalInterface, LocalInterfaces, NodePortAddresses, Object, ProcessorConfig, Resync,
    Snapshot,
    object::{AddressType, EndpointAddress},
};
use contiv_model_testing::mirror::{address, range, snapshot};
use ipnetwork::IpNetwork;

use super::steps::Step;

pub(super) fn config(config: ProcessorConfig) -> ProcessorConfig {
    let node_port_addresses =
        config
            .node_port_addresses
            .into_iter()
            .map(|addresses| match addresses {
                NodePortAddresses::Within(of) => NodePortAddresses::Within(range(of)),
                other => other,
            });
    ProcessorConfig {
        node_ips: addresses(config.node_ips),
        node_port_addresses: node_port_addresses.collect(),
        pod_cidrs: ranges(config.pod_cidrs),
        non_masquerade_cidrs: ranges(config.non_masquerade_cidrs),
        service_cidrs: ranges(config.service_cidrs),
        ..config
    }
}

pub(super) fn step(step: Step) -> Step {
    match step {
        Step::Apply(events) => Step::Apply(events.into_iter().map(event).collect()),
        Step::Resync(Resync {
            objects,
            undecodable,
        }) => Step::Resync(Resync {
            objects: objects.into_iter().map(object).collect(),
            undecodable,
        }),
    }
}

/// The image of a result, without the reasons against routes: of several the first one by address counts.
pub(super) fn result(result: &Snapshot) -> Snapshot {
    without_reasons(snapshot(result))
}

pub(super) fn without_reasons(mut snapshot: Snapshot) -> Snapshot {
    for service in snapshot.services.values_mut() {
        Arc::make_mut(service).assignment.reason = None;
    }
    snapshot
}

fn event(event: Event) -> Event {
    match event {
        Event::Put(of) => Event::Put(object(of)),
        Event::LocalAddresses(ips) => Event::LocalAddresses(addresses(ips)),
        Event::LocalInterfaces(interfaces) => Event::LocalInterfaces(local_interfaces(interfaces)),
        Event::FailingBackends(service, backends) => {
            let image = |of: SocketAddr| SocketAddr::new(address(of.ip()), of.port());
            Event::FailingBackends(service, backends.into_iter().map(image).collect())
        }
        other @ (Event::Delete(_)
        | Event::AddPod { .. }
        | Event::DeletePod(_)
        | Event::RevertAddPod(_)) => other,
    }
}

fn object(object: Object) -> Object {
    let endpoint = |of: &mut EndpointAddress| of.ip = address(of.ip);
    match object {
        Object::Service(mut service) => {
            for kind in [
                &mut service.cluster_ips,
                &mut service.external_ips,
                &mut service.load_balancer_ips,
            ] {
                *kind = addresses(kind.iter().copied());
            }
            service.source_ranges = ranges(service.source_ranges);
            Object::Service(service)
        }
        Object::Endpoints(mut endpoints) => {
            endpoints
                .subsets
                .iter_mut()
                .flat_map(|subset| &mut subset.addresses)
                .for_each(endpoint);
            Object::Endpoints(endpoints)
        }
        Object::EndpointSlice(mut slice) => {
            slice
                .endpoints
                .iter_mut()
                .for_each(|of| endpoint(&mut of.address));
            slice.address_type = match slice.address_type {
                AddressType::Ipv4 => AddressType::Ipv6,
                AddressType::Ipv6 => AddressType::Ipv4,
                AddressType::Fqdn => AddressType::Fqdn,
            };
            Object::EndpointSlice(slice)
        }
        Object::Pod(mut pod) => {
            pod.ips = addresses(pod.ips);
            Object::Pod(pod)
        }
        Object::Node(mut node) => {
            node.internal_ips = addresses(node.internal_ips);
            node.external_ips = addresses(node.external_ips);
            node.pod_cidrs = ranges(node.pod_cidrs);
            Object::Node(node)
        }
        Object::VppNode(mut node) => {
            node.ips = addresses(node.ips);
            Object::VppNode(node)
        }
        Object::IpAllocation(mut allocation) => {
            for interface in &mut allocation.interfaces {
                interface.ip = interface.ip.map(address);
            }
            Object::IpAllocation(allocation)
        }
    }
}

fn local_interfaces(interfaces: LocalInterfaces) -> LocalInterfaces {
    let image = |interface: LocalInterface| LocalInterface {
        addresses: addresses(interface.addresses),
        networks: interface.networks.into_iter().map(network).collect(),
        route_sources: addresses(interface.route_sources),
        has_ipv4_routes: interface.has_ipv6_routes,
        has_ipv6_routes: interface.has_ipv4_routes,
        ..interface
    };
    interfaces
        .into_iter()
        .map(|(name, interface)| (name, image(interface)))
        .collect()
}

/// A network of an interface. Those of IPv6 contain no other address here, and are no single one.
fn network(network: IpNetwork) -> IpNetwork {
    if network.is_ipv4() {
        range(network)
    } else {
        IpNetwork::new(address(network.ip()), 24).unwrap()
    }
}

fn addresses<T: FromIterator<IpAddr>>(addresses: impl IntoIterator<Item = IpAddr>) -> T {
    addresses.into_iter().map(address).collect()
}

fn ranges(ranges: BTreeSet<IpNetwork>) -> BTreeSet<IpNetwork> {
    ranges.into_iter().map(range).collect()
}
