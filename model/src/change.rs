//! The messages of the processor to renderers: the complete state, or changes of it.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt, iter,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{ContivService, Families, InterfaceName, NodeFacts, ServiceId};

/// The complete desired state. A renderer removes all its objects that are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Every service that is rendered.
    pub services: BTreeMap<ServiceId, Arc<ContivService>>,
    /// Facts about this node.
    pub node: NodeFacts,
    /// Interfaces of local pods (every pod can be a client).
    pub frontend_interfaces: BTreeSet<InterfaceName>,
    /// Interfaces of local pods that are backends of at least one service.
    pub backend_interfaces: BTreeSet<InterfaceName>,
}

/// The difference between two snapshots. Empty when they are equal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChangeSet {
    /// Services that were added, removed or changed. `old` and `new` always differ.
    pub services: BTreeMap<ServiceId, ServiceChange>,
    /// The new facts, if they changed.
    pub node: Option<NodeFacts>,
    /// Old and new set, if they changed.
    pub frontend_interfaces: Option<InterfaceChange>,
    /// Old and new set, if they changed.
    pub backend_interfaces: Option<InterfaceChange>,
}

/// One service before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceChange {
    /// None for a new service.
    pub old: Option<Arc<ContivService>>,
    /// None for a removed service.
    pub new: Option<Arc<ContivService>>,
}

/// An interface set before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceChange {
    /// Before.
    pub old: BTreeSet<InterfaceName>,
    /// After.
    pub new: BTreeSet<InterfaceName>,
}

impl Snapshot {
    /// Applies the changes to the snapshot.
    pub fn apply(&mut self, changes: &ChangeSet) {
        for (id, change) in &changes.services {
            match &change.new {
                Some(service) => self.services.insert(id.clone(), Arc::clone(service)),
                None => self.services.remove(id),
            };
        }
        if let Some(node) = &changes.node {
            self.node.clone_from(node);
        }
        if let Some(change) = &changes.frontend_interfaces {
            self.frontend_interfaces.clone_from(&change.new);
        }
        if let Some(change) = &changes.backend_interfaces {
            self.backend_interfaces.clone_from(&change.new);
        }
    }
}

impl fmt::Display for Snapshot {
    /// Lists its content: the services by name, the addresses of node ports, and the interfaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "services: [")?;
        list(f, self.services.keys())?;
        write!(f, "], node ports at: [")?;
        list(f, self.node.node_port_ips())?;
        write!(f, "], frontends: [")?;
        list(f, &self.frontend_interfaces)?;
        write!(f, "], backends: [")?;
        list(f, &self.backend_interfaces)?;
        write!(f, "]")
    }
}

/// Separated by commas.
pub(crate) fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    for (number, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if number == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl ChangeSet {
    /// The changes that turn one snapshot into the other.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Self {
        Self {
            services: services_between(old.services.iter(), new.services.iter()),
            node: (old.node != new.node).then(|| new.node.clone()),
            frontend_interfaces: InterfaceChange::between(
                &old.frontend_interfaces,
                &new.frontend_interfaces,
            ),
            backend_interfaces: InterfaceChange::between(
                &old.backend_interfaces,
                &new.backend_interfaces,
            ),
        }
    }

    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
            && self.node.is_none()
            && self.frontend_interfaces.is_none()
            && self.backend_interfaces.is_none()
    }

    /// The families that they concern: those of the services before and after, and both where something else changed.
    pub fn families(&self) -> Families {
        if self.services.is_empty()
            || self.node.is_some()
            || self.frontend_interfaces.is_some()
            || self.backend_interfaces.is_some()
        {
            return Families::ALL;
        }
        let mut families = Families::default();
        for service in self
            .services
            .values()
            .flat_map(|change| change.old.iter().chain(&change.new))
        {
            families.ipv4 |= service.is_in_family_of(Ipv4Addr::UNSPECIFIED.into());
            families.ipv6 |= service.is_in_family_of(Ipv6Addr::UNSPECIFIED.into());
            if families == Families::ALL {
                break;
            }
        }
        families
    }

    /// Adds changes that follow these. A value that returns to its first state is dropped; only the node facts, whose old value
    /// is not kept, stay once they have changed.
    pub fn merge(&mut self, later: Self) {
        // This is the common case at a start.
        if self.is_empty() {
            *self = later;
            return;
        }
        for (id, change) in later.services {
            match self.services.entry(id) {
                Entry::Vacant(entry) => {
                    entry.insert(change);
                }
                Entry::Occupied(mut entry) => {
                    entry.get_mut().new = change.new;
                    if same(entry.get().old.as_ref(), entry.get().new.as_ref()) {
                        entry.remove();
                    }
                }
            }
        }
        if later.node.is_some() {
            self.node = later.node;
        }
        merge_interfaces(&mut self.frontend_interfaces, later.frontend_interfaces);
        merge_interfaces(&mut self.backend_interfaces, later.backend_interfaces);
    }
}

/// The changes that turn some services into others. Merges two iterators that are sorted by id.
pub(crate) fn services_between<'a>(
    old: impl Iterator<Item = (&'a ServiceId, &'a Arc<ContivService>)>,
    new: impl Iterator<Item = (&'a ServiceId, &'a Arc<ContivService>)>,
) -> BTreeMap<ServiceId, ServiceChange> {
    let (mut old, mut new) = (old.peekable(), new.peekable());
    let next = || {
        let order = match (old.peek(), new.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        let (id, _) = before.or(after)?;
        Some((
            id,
            ServiceChange::between(before.map(|(_, it)| it), after.map(|(_, it)| it)),
        ))
    };
    iter::from_fn(next)
        .filter_map(|(id, change)| Some((id.clone(), change?)))
        .collect()
}

impl ServiceChange {
    /// The change between two values; none if they are equal.
    pub(crate) fn between(
        old: Option<&Arc<ContivService>>,
        new: Option<&Arc<ContivService>>,
    ) -> Option<Self> {
        (!same(old, new)).then(|| Self {
            old: old.cloned(),
            new: new.cloned(),
        })
    }
}

impl InterfaceChange {
    /// The change between two sets; none if they are equal.
    pub(crate) fn between(
        old: &BTreeSet<InterfaceName>,
        new: &BTreeSet<InterfaceName>,
    ) -> Option<Self> {
        (old != new).then(|| Self {
            old: old.clone(),
            new: new.clone(),
        })
    }
}

/// Compares services. Two references to one value are equal without comparing its content.
fn same(old: Option<&Arc<ContivService>>, new: Option<&Arc<ContivService>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
        (None, None) => true,
        _ => false,
    }
}

fn merge_interfaces(earlier: &mut Option<InterfaceChange>, later: Option<InterfaceChange>) {
    *earlier = match (earlier.take(), later) {
        (Some(earlier), Some(later)) => InterfaceChange::between(&earlier.old, &later.new),
        (earlier, later) => earlier.or(later),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    fn service(ips: &[&str]) -> Arc<ContivService> {
        let cluster_ips: Addresses = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(ContivService {
            cluster_ips,
            ..ContivService::new(ServiceId::new("default", "web"))
        })
    }

    #[test]
    fn changes_concern_the_families_of_services_before_and_after() {
        let (v4, v6) = (
            Families {
                ipv4: true,
                ipv6: false,
            },
            Families {
                ipv4: false,
                ipv6: true,
            },
        );
        let changed = |old: &[&str], new: &[&str]| {
            let of = |ips: &[&str]| (!ips.is_empty()).then(|| service(ips));
            let change = ServiceChange {
                old: of(old),
                new: of(new),
            };
            let services = BTreeMap::from([(ServiceId::new("default", "web"), change)]);
            ChangeSet {
                services,
                ..ChangeSet::default()
            }
        };
        assert_eq!(changed(&["10.96.0.1"], &[]).families(), v4);
        assert_eq!(changed(&[], &["fd00::1"]).families(), v6);
        assert_eq!(
            changed(&["fd00::1"], &["10.96.0.1"]).families(),
            Families::ALL
        );
        assert_eq!(ChangeSet::default().families(), Families::ALL);
        let with_node = ChangeSet {
            node: Some(NodeFacts::default()),
            ..changed(&["10.96.0.1"], &[])
        };
        assert_eq!(with_node.families(), Families::ALL);
    }
}
