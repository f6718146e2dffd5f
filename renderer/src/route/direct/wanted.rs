//! Where all addresses lead that routes carry, kept up to date with what changes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{ChangeSet, ContivService, NodeFacts, ServiceId, Snapshot};

use super::plan::{Lead, leads};

/// What one service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    /// It has gone back to `nftables`. Its routes stay, so that connections go on that were made by them.
    lingers: bool,
    leads: BTreeMap<IpAddr, Lead>,
}

/// What is wanted, and by whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::route) struct Wanted {
    plans: BTreeMap<ServiceId, Plan>,
    /// Who asks for an address, and whether it lingers: the first one has it. Never with an empty set.
    owners: BTreeMap<IpAddr, BTreeSet<(bool, ServiceId)>>,
}

impl Wanted {
    /// What a snapshot wants. `has_route` tells of an address whether there is a route to it: a service that is not carried
    /// by routes keeps those it has.
    pub(in crate::route) fn new(snapshot: &Snapshot, has_route: impl Fn(IpAddr) -> bool) -> Self {
        let mut wanted = Self::default();
        for service in snapshot.services.values() {
            let is_routed = service.assignment.addresses.routes();
            if is_routed || service.addresses().any(&has_route) {
                wanted.claim(service, &snapshot.node, !is_routed);
            }
        }
        wanted
    }

    /// Takes changes of services in, and returns the addresses that may lead elsewhere now.
    pub(in crate::route) fn update(&mut self, changes: &ChangeSet, node: &NodeFacts) -> BTreeSet<IpAddr> {
        let mut touched = BTreeSet::new();
        for (id, change) in &changes.services {
            let before = self.release(id);
            touched.extend(before.iter().flat_map(|plan| plan.leads.keys()));
            let Some(service) = &change.new else { continue };
            let is_routed = service.assignment.addresses.routes();
            if is_routed || before.is_some() {
                self.claim(service, node, !is_routed);
                touched.extend(self.plans.get(id).into_iter().flat_map(|plan| plan.leads.keys()));
            }
        }
        touched
    }

    /// Where an address leads; none if no route is wanted.
    pub(in crate::route) fn lead(&self, address: IpAddr) -> Option<&Lead> {
        let (_, owner) = self.owners.get(&address)?.first()?;
        self.plans.get(owner)?.leads.get(&address)
    }

    /// Who asks for an address, without those whose routes only linger.
    pub(in crate::route) fn owner(&self, address: IpAddr) -> Option<&ServiceId> {
        let (lingers, owner) = self.owners.get(&address)?.first()?;
        (!lingers).then_some(owner)
    }

    /// Every address for which a route is wanted.
    pub(in crate::route) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.owners.keys().copied()
    }

    /// The same without those that no route can be right for.
    pub(in crate::route) fn possible_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses().filter(|address| self.lead(*address) != Some(&Lead::Impossible))
    }

    pub(in crate::route) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    fn claim(&mut self, service: &ContivService, node: &NodeFacts, lingers: bool) {
        let leads = leads(service, node);
        for address in leads.keys() {
            self.owners.entry(*address).or_default().insert((lingers, service.id.clone()));
        }
        self.plans.insert(service.id.clone(), Plan { lingers, leads });
    }

    fn release(&mut self, id: &ServiceId) -> Option<Plan> {
        let plan = self.plans.remove(id)?;
        for address in plan.leads.keys() {
            if let Some(owners) = self.owners.get_mut(address) {
                owners.remove(&(plan.lingers, id.clone()));
                if owners.is_empty() {
                    self.owners.remove(address);
                }
            }
        }
        Some(plan)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_model::{Backend, Carrier, Protocol, ServiceChange, ServicePort};

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

    fn service(name: &str, carrier: Carrier, backend: u8) -> Arc<ContivService> {
        let backends = vec![Backend::new(([10, 1, 0, backend], 80).into())];
        let port =
            ServicePort { port: 80, protocol: Protocol::Tcp, name: "".into(), node_port: None, backends };
        let mut service = ContivService::new(ServiceId::new("default", name));
        service.cluster_ips = [ADDRESS].into();
        service.ports = vec![port];
        service.assignment.addresses = carrier;
        Arc::new(service)
    }

    fn snapshot(services: &[Arc<ContivService>]) -> Snapshot {
        let services = services.iter().map(|service| (service.id.clone(), Arc::clone(service)));
        Snapshot { services: services.collect(), ..Snapshot::default() }
    }

    fn update(wanted: &mut Wanted, new: Option<Arc<ContivService>>) -> usize {
        let change = ServiceChange { old: None, new };
        let changes = ChangeSet {
            services: [(ServiceId::new("default", "web"), change)].into(),
            ..ChangeSet::default()
        };
        wanted.update(&changes, &NodeFacts::default()).len()
    }

    fn backend(wanted: &Wanted) -> Option<IpAddr> {
        match wanted.lead(ADDRESS)? {
            Lead::Backends { weights, .. } => weights.keys().next().copied(),
            _ => None,
        }
    }

    #[test]
    fn only_what_routes_carry_is_wanted() {
        let services = [service("web", Carrier::Nftables, 1)];
        assert!(Wanted::new(&snapshot(&services), |_| false).is_empty());
        for carrier in [Carrier::Route, Carrier::NftablesUntilRoute] {
            let wanted = Wanted::new(&snapshot(&[service("web", carrier, 1)]), |_| false);
            assert_eq!(backend(&wanted), Some([10, 1, 0, 1].into()));
            assert_eq!(wanted.owner(ADDRESS).unwrap().to_string(), "default/web");
        }
    }

    #[test]
    fn the_routes_of_a_service_that_goes_back_stay_and_are_kept_right_until_it_is_gone() {
        let mut wanted = Wanted::new(&snapshot(&[service("web", Carrier::Route, 1)]), |_| false);
        assert_eq!(update(&mut wanted, Some(service("web", Carrier::Nftables, 2))), 1);
        assert_eq!(backend(&wanted), Some([10, 1, 0, 2].into()));
        assert_eq!(wanted.owner(ADDRESS), None, "nobody depends on it");
        assert_eq!(update(&mut wanted, None), 1);
        assert_eq!(wanted, Wanted::default());
    }

    #[test]
    fn after_a_restart_too() {
        let back = snapshot(&[service("web", Carrier::Nftables, 1)]);
        assert_eq!(backend(&Wanted::new(&back, |address| address == ADDRESS)), Some([10, 1, 0, 1].into()));
    }

    #[test]
    fn a_service_that_lingers_gives_way_to_one_that_is_carried() {
        let services = [service("a", Carrier::Nftables, 1), service("b", Carrier::Route, 2)];
        let wanted = Wanted::new(&snapshot(&services), |_| true);
        assert_eq!(backend(&wanted), Some([10, 1, 0, 2].into()));
        assert_eq!(wanted.owner(ADDRESS).unwrap().to_string(), "default/b");
    }
}
