//! Finds the frontend of a flow.

use std::{net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Flow;
use crate::{ContivService, Frontend, Protocol, ServiceId, ServicePort, Snapshot};

/// The service port that a flow matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedPort {
    /// The service.
    pub service: ServiceId,
    /// The name of the port; empty for a service's only port.
    pub name: Arc<str>,
    /// The port on the addresses of the service, also where its node port matches.
    pub port: u16,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The kind of address that matches.
    pub kind: FrontendKind,
}

/// The kinds of addresses a service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrontendKind {
    /// A cluster IP.
    ClusterIp,
    /// An address of a load balancer.
    LoadBalancer,
    /// Another external IP.
    ExternalIp,
    /// A node port, on an address of this node.
    NodePort,
}

/// A service that claims the flow's destination, which another service holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostClaim {
    /// The service.
    pub service: ServiceId,
    /// The claimed frontend.
    pub frontend: Frontend,
    /// The service that holds it: the older one, or of the same age the first by name.
    pub holder: ServiceId,
}

/// A claim on a flow's destination.
pub(super) struct Claim<'a> {
    pub(super) service: &'a ContivService,
    pub(super) port: &'a ServicePort,
    pub(super) kind: FrontendKind,
    frontend: Frontend,
}

impl Claim<'_> {
    pub(super) fn matched_port(&self) -> MatchedPort {
        let ServicePort {
            name,
            port,
            protocol,
            ..
        } = self.port;
        MatchedPort {
            service: self.service.id.clone(),
            name: Arc::clone(name),
            port: *port,
            protocol: *protocol,
            kind: self.kind,
        }
    }
}

/// The claim that serves the flow, and the lost ones.
pub(super) fn find<'a>(snapshot: &'a Snapshot, flow: &Flow) -> (Option<Claim<'a>>, Vec<LostClaim>) {
    let mut lost = Vec::new();
    let mut held = Vec::new();
    for claim in snapshot
        .services
        .values()
        .flat_map(|service| claims(service, snapshot, flow))
    {
        match claim.service.lost.get(&claim.frontend) {
            None => held.push(claim),
            Some(holder) => lost.push(LostClaim {
                service: claim.service.id.clone(),
                frontend: claim.frontend,
                holder: holder.clone(),
            }),
        }
    }
    // Addresses of services come before node ports.
    (held.into_iter().min_by_key(|claim| claim.kind), lost)
}

/// True if the destination is a port of a service that is translated, or the cluster IP of one.
pub(super) fn is_service(snapshot: &Snapshot, flow: &Flow) -> bool {
    snapshot.services.values().any(|service| {
        let translates = service.assignment.addresses.translates();
        let is_held = |claim: Claim<'_>| {
            let is_translated = translates || claim.kind == FrontendKind::NodePort;
            is_translated && !claim.service.lost.contains_key(&claim.frontend)
        };
        let is_cluster_ip = translates && service.cluster_ips.contains(&flow.to());
        is_cluster_ip || claims(service, snapshot, flow).into_iter().any(is_held)
    }) && !flow.to().is_unspecified()
}

/// The claims of a service that match the flow.
fn claims<'a>(service: &'a ContivService, snapshot: &'a Snapshot, flow: &Flow) -> Vec<Claim<'a>> {
    let (address, number, protocol) = (flow.to(), flow.port(), flow.protocol());
    let is_node_address = snapshot.node.node_port_ips().any(|ip| *ip == address);
    let of_port = |port: &'a ServicePort| {
        let kind = address_kind(service, address).filter(|_| port.port == number);
        let by_address = kind.map(|kind| {
            let frontend = Frontend::Address {
                address,
                protocol,
                port: number,
            };
            Claim {
                service,
                port,
                kind,
                frontend,
            }
        });
        let has_node_port =
            is_node_address && port.node_port == Some(number) && is_in_family(service, address);
        let by_node_port = has_node_port.then_some(Claim {
            service,
            port,
            kind: FrontendKind::NodePort,
            frontend: Frontend::NodePort {
                protocol,
                port: number,
            },
        });
        by_address.into_iter().chain(by_node_port)
    };
    service
        .ports
        .iter()
        .filter(|port| port.protocol == protocol)
        .flat_map(of_port)
        .collect()
}

/// The kind of this address for the service. One that is both a cluster IP and an external IP counts as a cluster IP.
fn address_kind(service: &ContivService, address: IpAddr) -> Option<FrontendKind> {
    if address.is_unspecified() {
        None
    } else if service.cluster_ips.contains(&address) {
        Some(FrontendKind::ClusterIp)
    } else if !service.external_ips.contains(&address) || !is_in_family(service, address) {
        None
    } else if service.load_balancer_ips.contains(&address) {
        Some(FrontendKind::LoadBalancer)
    } else {
        Some(FrontendKind::ExternalIp)
    }
}

/// A service has the families of its cluster IPs; one without any has both.
fn is_in_family(service: &ContivService, address: IpAddr) -> bool {
    let families = &service.cluster_ips;
    families.is_empty()
        || families
            .iter()
            .any(|cluster_ip| cluster_ip.is_ipv4() == address.is_ipv4())
}
