//! The targets of all addresses that routes carry, updated incrementally. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{ChangeSet, ContivService, NodeFacts, ServiceId, Snapshot};

use super::plan::{RouteTarget, targets};

/// The plan of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    /// It has returned to `nftables`. Its routes stay, so that connections made through them continue.
    keeps_routes: bool,
    targets: BTreeMap<IpAddr, RouteTarget>,
}

/// The desired targets with their services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::route) struct DesiredServices {
    plans: BTreeMap<ServiceId, Plan>,
    /// The services of an address, and whether they linger: the first one has it. Sets are never empty.
    owners: BTreeMap<IpAddr, BTreeSet<(bool, ServiceId)>>,
}

impl DesiredServices {
    /// The desired targets of a snapshot. `has_route`: an address has a route that leads to a backend.
    ///
    /// A service that routes no longer carry keeps its routes. A route to a shared address may belong to the other service; so
    /// the service must have a route to an address that only it has, if there is one.
    pub(in crate::route) fn new(snapshot: &Snapshot, has_route: impl Fn(IpAddr) -> bool) -> Self {
        let translated = || {
            snapshot
                .services
                .values()
                .filter(|service| !service.assignment.addresses.routes())
        };
        let routed: BTreeSet<IpAddr> = translated()
            .flat_map(|service| service.addresses())
            .filter(|address| has_route(*address))
            .collect();
        let mut desired = Self::default();
        if !routed.is_empty() {
            let owners = owners(snapshot);
            for service in translated() {
                let mut own = service
                    .addresses()
                    .filter(|address| owners.get(address) == Some(&1))
                    .peekable();
                if own.peek().is_none() || own.any(|address| routed.contains(&address)) {
                    desired
                        .keep_routes(service, &snapshot.node, |address| routed.contains(&address));
                }
            }
        }
        for service in snapshot
            .services
            .values()
            .filter(|service| service.assignment.addresses.routes())
        {
            desired.claim(service, &snapshot.node);
        }
        desired
    }

    /// Applies changes of services, and returns the addresses whose target may have changed. `has_route`: an address has a
    /// route that leads to a backend.
    pub(in crate::route) fn update(
        &mut self,
        changes: &ChangeSet,
        node: &NodeFacts,
        has_route: impl Fn(IpAddr) -> bool,
    ) -> BTreeSet<IpAddr> {
        let mut affected = BTreeSet::new();
        for (id, change) in &changes.services {
            // It has no route to an address that another service holds.
            let had: BTreeSet<IpAddr> = self.held_by(id).collect();
            let before = self.release(id);
            affected.extend(before.iter().flat_map(|plan| plan.targets.keys()));
            let Some(service) = &change.new else { continue };
            if service.assignment.addresses.routes() {
                self.claim(service, node);
            } else if before.is_some() {
                self.keep_routes(service, node, |address| {
                    had.contains(&address) && has_route(address)
                });
            }
            affected.extend(
                self.plans
                    .get(id)
                    .into_iter()
                    .flat_map(|plan| plan.targets.keys()),
            );
        }
        affected
    }

    /// The target of an address; none if no route is desired.
    pub(in crate::route) fn target(&self, address: IpAddr) -> Option<&RouteTarget> {
        let (_, owner) = self.owners.get(&address)?.first()?;
        self.plans.get(owner)?.targets.get(&address)
    }

    /// The service of an address, unless its routes only linger.
    pub(in crate::route) fn owner(&self, address: IpAddr) -> Option<&ServiceId> {
        let (keeps_routes, owner) = self.owners.get(&address)?.first()?;
        (!keeps_routes).then_some(owner)
    }

    /// All addresses with a desired route.
    pub(in crate::route) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.owners.keys().copied()
    }

    /// All addresses with a desired route that is possible.
    pub(in crate::route) fn possible_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses()
            .filter(|address| self.target(*address) != Some(&RouteTarget::Impossible))
    }

    pub(in crate::route) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Claims every address of the service.
    fn claim(&mut self, service: &ContivService, node: &NodeFacts) {
        self.insert(
            service,
            Plan {
                keeps_routes: false,
                targets: targets(service, node),
            },
        );
    }

    /// Keeps the addresses of the service that have a route, as long as it leads to a backend: no connection used any other.
    fn keep_routes(
        &mut self,
        service: &ContivService,
        node: &NodeFacts,
        has_route: impl Fn(IpAddr) -> bool,
    ) {
        let mut targets = targets(service, node);
        targets.retain(|address, target| has_route(*address) && target.reaches_backend());
        if !targets.is_empty() {
            self.insert(
                service,
                Plan {
                    keeps_routes: true,
                    targets,
                },
            );
        }
    }

    /// The addresses that this service holds.
    fn held_by(&self, id: &ServiceId) -> impl Iterator<Item = IpAddr> {
        let asked = self
            .plans
            .get(id)
            .into_iter()
            .flat_map(|plan| plan.targets.keys().copied());
        asked.filter(move |address| {
            let first = self.owners.get(address).and_then(BTreeSet::first);
            first.is_some_and(|(_, owner)| owner == id)
        })
    }

    fn insert(&mut self, service: &ContivService, plan: Plan) {
        for address in plan.targets.keys() {
            self.owners
                .entry(*address)
                .or_default()
                .insert((plan.keeps_routes, service.id.clone()));
        }
        self.plans.insert(service.id.clone(), plan);
    }

    fn release(&mut self, id: &ServiceId) -> Option<Plan> {
        let plan = self.plans.remove(id)?;
        for address in plan.targets.keys() {
            if let Some(owners) = self.owners.get_mut(address) {
                owners.remove(&(plan.keeps_routes, id.clone()));
                if owners.is_empty() {
                    self.owners.remove(address);
                }
            }
        }
        Some(plan)
    }
}

/// How many services have each address.
fn owners(snapshot: &Snapshot) -> BTreeMap<IpAddr, usize> {
    let mut owners = BTreeMap::new();
    for address in snapshot
        .services
        .values()
        .flat_map(|service| service.addresses())
    {
        *owners.entry(address).or_default() += 1;
    }
    owners
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_model::{Backend, Carrier, Protocol, ServiceChange, ServicePort};

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

    fn service(name: &str, carrier: Carrier, backend: u8) -> Arc<ContivService> {
        let backends = vec![Backend::new(([10, 1, 0, backend], 80).into())];
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends,
        };
        let mut service = ContivService::new(ServiceId::new("default", name));
        service.cluster_ips = [ADDRESS].into();
        service.ports = vec![port];
        service.assignment.addresses = carrier;
        Arc::new(service)
    }

    fn snapshot(services: &[Arc<ContivService>]) -> Snapshot {
        let services = services
            .iter()
            .map(|service| (service.id.clone(), Arc::clone(service)));
        Snapshot {
            services: services.collect(),
            ..Snapshot::default()
        }
    }

    fn update(desired: &mut DesiredServices, new: Option<Arc<ContivService>>) -> usize {
        let change = ServiceChange { old: None, new };
        let changes = ChangeSet {
            services: [(ServiceId::new("default", "web"), change)].into(),
            ..ChangeSet::default()
        };
        desired
            .update(&changes, &NodeFacts::default(), |_| true)
            .len()
    }

    fn backend(desired: &DesiredServices) -> Option<IpAddr> {
        match desired.target(ADDRESS)? {
            RouteTarget::Backends { weights, .. } => weights.keys().next().copied(),
            _ => None,
        }
    }

    #[test]
    fn only_services_carried_by_routes_are_desired() {
        let services = [service("web", Carrier::Nftables, 1)];
        assert!(DesiredServices::new(&snapshot(&services), |_| false).is_empty());
        for carrier in [Carrier::Route, Carrier::NftablesUntilRoute] {
            let desired = DesiredServices::new(&snapshot(&[service("web", carrier, 1)]), |_| false);
            assert_eq!(backend(&desired), Some([10, 1, 0, 1].into()));
            assert_eq!(desired.owner(ADDRESS).unwrap().to_string(), "default/web");
        }
    }

    #[test]
    fn returning_service_keeps_its_routes_until_it_is_deleted() {
        let mut desired =
            DesiredServices::new(&snapshot(&[service("web", Carrier::Route, 1)]), |_| false);
        assert_eq!(
            update(&mut desired, Some(service("web", Carrier::Nftables, 2))),
            1
        );
        assert_eq!(backend(&desired), Some([10, 1, 0, 2].into()));
        assert_eq!(desired.owner(ADDRESS), None, "nobody depends on it");
        assert_eq!(update(&mut desired, None), 1);
        assert_eq!(desired, DesiredServices::default());
    }

    #[test]
    fn returning_service_keeps_its_routes_after_a_restart() {
        let back = snapshot(&[service("web", Carrier::Nftables, 1)]);
        assert_eq!(
            backend(&DesiredServices::new(&back, |address| address == ADDRESS)),
            Some([10, 1, 0, 1].into())
        );
    }

    #[test]
    fn returning_service_keeps_no_route_that_leads_nowhere() {
        let mut desired =
            DesiredServices::new(&snapshot(&[service("web", Carrier::Route, 1)]), |_| false);
        let mut without = service("web", Carrier::Nftables, 1);
        Arc::make_mut(&mut without).ports[0].backends.clear();
        assert_eq!(update(&mut desired, Some(Arc::clone(&without))), 1);
        assert_eq!((desired.target(ADDRESS), desired.is_empty()), (None, true));
        assert!(
            DesiredServices::new(&snapshot(&[without]), |_| true).is_empty(),
            "after a restart too"
        );
    }

    #[test]
    fn service_that_goes_back_gets_no_other_routes_than_it_had() {
        let other = IpAddr::from([10, 96, 0, 2]);
        let more = |carrier| {
            let mut service = service("web", carrier, 1);
            Arc::make_mut(&mut service).external_ips = [other].into();
            service
        };
        let mut desired =
            DesiredServices::new(&snapshot(&[service("web", Carrier::Route, 1)]), |_| false);
        update(&mut desired, Some(more(Carrier::Nftables)));
        assert_eq!(desired.addresses().collect::<Vec<_>>(), [ADDRESS]);
        let again = DesiredServices::new(&snapshot(&[more(Carrier::Nftables)]), |address| {
            address == ADDRESS
        });
        assert_eq!(again, desired, "after a restart too");
    }

    #[test]
    fn service_that_goes_back_keeps_no_address_that_another_one_had() {
        let shared = service("api", Carrier::Route, 2);
        let mut desired = DesiredServices::new(
            &snapshot(&[service("web", Carrier::Route, 1), shared]),
            |_| false,
        );
        assert_eq!(desired.owner(ADDRESS).unwrap().to_string(), "default/api");
        update(&mut desired, Some(service("web", Carrier::Nftables, 1)));
        let gone = ChangeSet {
            services: [(
                ServiceId::new("default", "api"),
                ServiceChange {
                    old: None,
                    new: None,
                },
            )]
            .into(),
            ..ChangeSet::default()
        };
        desired.update(&gone, &NodeFacts::default(), |_| true);
        assert!(desired.is_empty(), "{desired:?}");
    }

    #[test]
    fn route_to_a_shared_address_keeps_its_holder_over_a_restart() {
        let shared = IpAddr::from([192, 0, 2, 1]);
        let with = |name, cluster_ip: IpAddr, backend| {
            let mut service = service(name, Carrier::Nftables, backend);
            let changed = Arc::make_mut(&mut service);
            changed.cluster_ips = [cluster_ip].into();
            changed.external_ips = [shared].into();
            service
        };
        // The other one comes first by name, and never had a route.
        let services = [
            with("web", ADDRESS, 1),
            with("api", [10, 96, 0, 2].into(), 2),
        ];
        let desired = DesiredServices::new(&snapshot(&services), |address| {
            [ADDRESS, shared].contains(&address)
        });
        assert_eq!(desired.addresses().collect::<Vec<_>>(), [ADDRESS, shared]);
        for address in [ADDRESS, shared] {
            let Some(RouteTarget::Backends { weights, .. }) = desired.target(address) else {
                panic!("{address}")
            };
            assert_eq!(
                weights.keys().copied().collect::<Vec<_>>(),
                [IpAddr::from([10, 1, 0, 1])]
            );
        }
    }

    #[test]
    fn service_that_lingers_gives_way_to_one_that_is_carried() {
        let services = [
            service("a", Carrier::Nftables, 1),
            service("b", Carrier::Route, 2),
        ];
        let desired = DesiredServices::new(&snapshot(&services), |_| true);
        assert_eq!(backend(&desired), Some([10, 1, 0, 2].into()));
        assert_eq!(desired.owner(ADDRESS).unwrap().to_string(), "default/b");
    }
}
