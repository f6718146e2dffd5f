//! Finds in the stored objects why a flow has its outcome. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Processor, cache::Cache, not_served::unserved, sources::is_usable};
use crate::{
    ContivService, EndpointSliceId, Frontend, NodeName, ServiceId, Snapshot,
    object::{Conditions, EndpointAddress, EndpointPort, EndpointSlice, Node, ServicePortSpec},
    trace::{
        DropReason, EndpointPortName, Flow, MatchedPort, Reason, RejectReason, ServicePortName,
        Trace, Verdict, trace,
    },
};

/// An endpoint, with the ports of its slice or subset.
struct Endpoint<'a> {
    address: &'a EndpointAddress,
    conditions: Conditions,
    ports: &'a [EndpointPort],
}

impl Processor {
    /// Traces a new connection, with all reasons.
    pub fn trace(&self, flow: &Flow) -> Trace {
        let snapshot: Snapshot = self.snapshot();
        let mut trace = trace(&snapshot, flow);
        trace.reasons = self.reasons(&trace);
        trace
    }

    /// The reasons for the outcome of a flow that the stored objects give. Empty if it reaches a backend, or if they know none.
    pub fn reasons(&self, trace: &Trace) -> Vec<Reason> {
        let flow = &trace.flow;
        let of_port = |only_local| {
            trace
                .matched_port
                .as_ref()
                .and_then(|port| self.why_no_backend(port, flow, only_local))
        };
        match &trace.verdict {
            Verdict::Rejected(RejectReason::NoBackends) => of_port(false).into_iter().collect(),
            Verdict::Dropped(DropReason::InternalPolicyLocal | DropReason::ExternalPolicyLocal) => {
                of_port(true).into_iter().collect()
            }
            Verdict::Rejected(RejectReason::UnknownPort(_))
            | Verdict::Dropped(DropReason::UnallocatedAddress(_))
            | Verdict::Egress
            | Verdict::Untouched => self.why_no_service(flow),
            // The outcome says it all.
            Verdict::Backends(_)
            | Verdict::Routed
            | Verdict::Rejected(RejectReason::BackendsOfOtherFamily)
            | Verdict::Dropped(DropReason::SourceRanges(_) | DropReason::Interface(_)) => {
                Vec::new()
            }
        }
    }

    /// Why no endpoint of a service is a backend of this port for the flow's family; with `only_local` of those on this node.
    fn why_no_backend(&self, port: &MatchedPort, flow: &Flow, only_local: bool) -> Option<Reason> {
        let MatchedPort {
            service,
            name,
            protocol,
            ..
        } = port;
        let slices = || {
            self.cache
                .slices_of
                .values(service)
                .filter_map(|id| self.cache.endpoint_slices.get(id))
        };
        let usable: Vec<&EndpointSlice> = slices().filter(|slice| is_usable(slice)).collect();
        let is_replaced = usable.iter().any(|slice| !slice.is_supplement);
        let endpoints = self.cache.endpoints.get(service).filter(|_| !is_replaced);
        if usable.is_empty() && endpoints.is_none() {
            return Some(if slices().next().is_some() {
                Reason::HostNames
            } else {
                Reason::NoSlice {
                    service: service.clone(),
                    similar: self.cache.similar_slice(service),
                }
            });
        }
        let of_slices = usable.iter().flat_map(|slice| {
            let endpoint = |(address, conditions)| Endpoint {
                address,
                conditions,
                ports: &slice.ports,
            };
            slice
                .endpoints
                .iter()
                .map(|it| (&it.address, it.conditions))
                .map(endpoint)
        });
        let of_subsets = endpoints
            .into_iter()
            .flat_map(|endpoints| &endpoints.subsets)
            .flat_map(|subset| {
                subset.addresses.iter().map(|address| Endpoint {
                    address,
                    conditions: Conditions::READY,
                    ports: &subset.ports,
                })
            });
        let all: Vec<Endpoint<'_>> = of_slices.chain(of_subsets).collect();
        if all.is_empty() {
            return Some(Reason::NoEndpoints {
                slices: usable.len(),
            });
        }
        let has_port = |endpoint: &&Endpoint<'_>| {
            endpoint
                .ports
                .iter()
                .any(|port| port.name == *name && port.protocol == *protocol)
        };
        let of_port: Vec<&Endpoint<'_>> = all.iter().filter(has_port).collect();
        if of_port.is_empty() {
            let name_of = |port: &EndpointPort| EndpointPortName {
                name: port.name.clone(),
                protocol: port.protocol,
            };
            let found = all
                .iter()
                .flat_map(|endpoint| endpoint.ports)
                .map(name_of)
                .collect();
            let wanted = EndpointPortName {
                name: name.clone(),
                protocol: *protocol,
            };
            return Some(Reason::NoSuchPort { wanted, found });
        }
        self.why_none_is_ready(&of_port, flow, only_local)
    }

    /// Why no endpoint of a port is a backend for the flow's family, `None` if one is; with `only_local` of those on this node.
    fn why_none_is_ready(
        &self,
        of_port: &[&Endpoint<'_>],
        flow: &Flow,
        only_local: bool,
    ) -> Option<Reason> {
        // Each address once: it may be in several slices.
        let mut is_terminating: BTreeMap<IpAddr, bool> = BTreeMap::new();
        let mut others = BTreeSet::new();
        for Endpoint {
            address,
            conditions,
            ..
        } in of_port.iter().copied()
        {
            let place = self.placement.place(address);
            if only_local && !place.local {
                continue;
            }
            if place.ip.is_ipv4() != flow.to().is_ipv4() {
                others.insert(place.ip);
                continue;
            }
            if conditions.ready || conditions.serving && conditions.terminating {
                return None;
            }
            let is_ending = is_terminating.entry(place.ip).or_insert(true);
            *is_ending &= conditions.terminating;
        }
        let terminating = is_terminating
            .values()
            .filter(|is_terminating| **is_terminating)
            .count();
        let not_ready = is_terminating.len() - terminating;
        if !is_terminating.is_empty() {
            return Some(Reason::NotReady {
                not_ready,
                terminating,
                on_this_node: only_local,
            });
        }
        (!others.is_empty() && !only_local).then_some(Reason::OtherFamily {
            endpoints: others.len(),
        })
    }

    /// What stored objects say about a destination that is no port of a service.
    fn why_no_service(&self, flow: &Flow) -> Vec<Reason> {
        let (to, protocol) = (flow.to(), flow.protocol());
        let has_it = |addresses: &[IpAddr]| addresses.contains(&to);
        let candidates = self.cache.services.values().filter(|spec| {
            has_it(&spec.cluster_ips)
                || has_it(&spec.external_ips)
                || has_it(&spec.load_balancer_ips)
        });
        let of_address = candidates.filter_map(|spec| match unserved(spec, &self.config) {
            Some(unserved) => Some(Reason::NotServed {
                service: unserved.id,
                because: unserved.not_served,
            }),
            None if spec
                .ports
                .iter()
                .any(|port| port.port == flow.port() && port.protocol == protocol) =>
            {
                Some(Reason::AddressOfOtherFamily {
                    service: spec.id.clone(),
                })
            }
            None => {
                let name = |port: &ServicePortSpec| ServicePortName {
                    port: port.port,
                    protocol: port.protocol,
                    name: port.name.clone(),
                };
                let ports: BTreeSet<_> = spec.ports.iter().map(name).collect();
                (!ports.is_empty()).then(|| Reason::OtherPorts {
                    service: spec.id.clone(),
                    ports,
                })
            }
        });
        let mut reasons: Vec<Reason> = of_address.collect();
        let frontend = Frontend::NodePort {
            protocol,
            port: flow.port(),
        };
        let holder = self
            .claims
            .holder(&frontend)
            .and_then(|id| self.service(id));
        reasons.extend(holder.and_then(|service| self.why_no_node_port(service, to)));
        reasons
    }

    /// Why a node port of a service does not answer at an address; none if that is no node's.
    fn why_no_node_port(&self, service: &ContivService, to: IpAddr) -> Option<Reason> {
        let id = service.id.clone();
        let facts = &self.placement.facts;
        let serves = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        if facts.node_port_ips().any(|ip| *ip == to) {
            return Some(Reason::NodePortOfOtherFamily { service: id });
        }
        if facts.is_local_address(to) || self.placement.is_own(to) {
            let served_at = facts.node_ips.iter().copied().filter(serves).collect();
            return Some(Reason::NodePortElsewhere {
                service: id,
                served_at,
            });
        }
        Some(Reason::NodePortOfOtherNode {
            service: id,
            node: self.cache.node_with(to)?,
        })
    }
}

impl Cache {
    /// A slice that is named like one of a service, and belongs to no stored service.
    fn similar_slice(&self, service: &ServiceId) -> Option<EndpointSliceId> {
        let first = EndpointSliceId::new(service.namespace.clone(), service.name.clone());
        let named = self.endpoint_slices.range(first..).take_while(|(id, _)| {
            id.namespace == service.namespace && id.name.starts_with(&*service.name)
        });
        let mut orphans = named.filter(|(id, slice)| {
            let is_named_so =
                id.name == service.name || id.name[service.name.len()..].starts_with('-');
            let has_service = slice
                .service
                .as_ref()
                .is_some_and(|of| self.services.contains_key(of));
            is_named_so && !has_service
        });
        orphans.next().map(|(id, _)| id.clone())
    }

    /// The node with this address.
    fn node_with(&self, address: IpAddr) -> Option<NodeName> {
        let has_it = |node: &&Node| node.ips().any(|ip| ip == address);
        self.nodes
            .values()
            .find(has_it)
            .map(|node| node.name.clone())
    }
}
