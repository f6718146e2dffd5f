//! Checks whether this machine forwards packets: otherwise only its own connections reach backends elsewhere.
//!
//! It changes no setting. Source: the kernel's `Documentation/networking/ip-sysctl.rst`.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{ChangeSet, ContivService, NodeFacts, ServiceId, ServicePort};

use super::layout::Family;
use crate::kernel::Kernel;

/// The families in which no interface forwards.
#[derive(Debug, Default)]
pub(super) struct Forwarding(Vec<Disabled>);

#[derive(Debug)]
struct Disabled {
    family: Family,
    /// A service that needs it, if there is one.
    missed_by: Option<ServiceId>,
}

impl Forwarding {
    /// Reads the kernel's settings and checks all services.
    pub(super) fn read(kernel: &dyn Kernel, services: &Services, node: &NodeFacts) -> Self {
        let disabled = Family::ALL.into_iter().filter(|family| !forwards(kernel, *family));
        Self::of(disabled, services, node)
    }

    fn of(disabled: impl Iterator<Item = Family>, services: &Services, node: &NodeFacts) -> Self {
        Self(disabled.map(|family| Disabled { family, missed_by: first(services, node, family) }).collect())
    }

    /// Checks again after changes: only the changed services, unless the service found before is among them; and the kernel's
    /// setting, by `is_off`, only if a service needs it. `services` are those after the changes.
    pub(super) fn update(
        &mut self,
        is_off: impl Fn(Family) -> bool,
        changes: &ChangeSet,
        services: &Services,
        node: &NodeFacts,
    ) {
        for Disabled { family, missed_by } in &mut self.0 {
            let is_changed = |id: &ServiceId| changes.services.contains_key(id);
            if changes.node.is_some() || missed_by.as_ref().is_some_and(is_changed) {
                *missed_by = first(services, node, *family);
            } else if missed_by.is_none() {
                let new = changes.services.values().filter_map(|change| change.new.as_ref());
                let found = { new }.find(|service| needs_forwarding(service, node, *family));
                *missed_by = found.map(|service| service.id.clone());
            }
        }
        // Last, so that the note of a service that was found just now depends on the setting of now.
        self.0.retain(|disabled| disabled.missed_by.is_none() || is_off(disabled.family));
    }

    /// Notes for the administrator, one for each family that a service needs.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |disabled: &Disabled| {
            let (setting, service) = (setting(disabled.family), disabled.missed_by.as_ref()?);
            Some(format!(
                "{setting} is 0: pods and external clients do not reach backends of {service} and others; run `sysctl -w {setting}=1`"
            ))
        };
        self.0.iter().filter_map(note).collect()
    }
}

type Services = BTreeMap<ServiceId, Arc<ContivService>>;

/// The first service that needs forwarding.
fn first(services: &Services, node: &NodeFacts, family: Family) -> Option<ServiceId> {
    let service = services.values().find(|service| needs_forwarding(service, node, family))?;
    Some(service.id.clone())
}

const fn setting(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    }
}

/// True if a service sends clients other than this machine to backends on other machines.
fn needs_forwarding(service: &ContivService, node: &NodeFacts, family: Family) -> bool {
    let is_of = |address| Family::of(&address) == family;
    let has_node_port = |port: &ServicePort| port.node_port.is_some();
    let has_other_clients = node.knows_pods(family == Family::V4)
        || service.external_ips.iter().any(|address| is_of(*address))
        || service.ports.iter().any(has_node_port);
    let mut backends = service.ports.iter().flat_map(|port| &port.backends);
    has_other_clients
        && backends.any(|backend| is_of(backend.address) && !node.is_local_address(backend.address))
}

/// True if all interfaces forward, or some do by their own setting. True too if the setting cannot be read.
fn forwards(kernel: &dyn Kernel, family: Family) -> bool {
    if !is_off(kernel, family) {
        return true;
    }
    let Ok(interfaces) = kernel.settings(conf(family)) else { return true };
    let is_template = |interface: &String| interface == "all" || interface == "default";
    let mut interfaces = interfaces.iter().filter(|interface| !is_template(interface));
    !interfaces.all(|interface| is_off_at(kernel, family, interface))
}

/// The kernel's folder of interface settings.
const fn conf(family: Family) -> &'static str {
    match family {
        Family::V4 => "net/ipv4/conf",
        Family::V6 => "net/ipv6/conf",
    }
}

/// True if forwarding is switched off for all interfaces together. False if the setting cannot be read.
pub(super) fn is_off(kernel: &dyn Kernel, family: Family) -> bool {
    is_off_at(kernel, family, "all")
}

fn is_off_at(kernel: &dyn Kernel, family: Family, interface: &str) -> bool {
    let path = format!("{}/{interface}/forwarding", conf(family));
    kernel.setting(&path).is_ok_and(|value| value == "0")
}

#[cfg(test)]
mod tests {
    use contiv_model::{Backend, Protocol, Snapshot};

    use super::*;

    fn service(node_port: Option<u16>, backend: &str) -> BTreeMap<ServiceId, Arc<ContivService>> {
        let backends = vec![Backend::new(backend.parse().unwrap())];
        let port =
            ServicePort { port: 80, protocol: Protocol::Tcp, name: "main".into(), node_port, backends };
        let service =
            ContivService { ports: vec![port], ..ContivService::new(ServiceId::new("shop", "web")) };
        BTreeMap::from([(service.id.clone(), Arc::new(service))])
    }

    #[test]
    fn forwarding_is_missed_where_others_are_led_elsewhere() {
        let v4 = "net.ipv4.ip_forward is 0: pods and external clients do not reach backends of shop/web and others; run \
                  `sysctl -w net.ipv4.ip_forward=1`";
        let no_pods = NodeFacts { local_ips: ["172.31.0.1".parse().unwrap()].into(), ..NodeFacts::default() };
        let pods = NodeFacts { pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(), ..no_pods.clone() };
        for (node_port, backend, node, expected) in [
            (Some(30_080), "10.244.2.1:8080", &no_pods, Some(v4)),
            (None, "10.244.2.1:8080", &pods, Some(v4)),
            // Own connections do not need it, nor those to itself; the other family has its own setting.
            (None, "10.244.2.1:8080", &no_pods, None),
            (Some(30_080), "172.31.0.1:8080", &pods, None),
            (Some(30_080), "[fd00::1]:8080", &pods, None),
        ] {
            let services = service(node_port, backend);
            let notes = Forwarding::of([Family::V4].into_iter(), &services, node).notes();
            assert_eq!(notes.first().map(String::as_str), expected, "{node_port:?} {backend}");
        }
        let services = service(Some(30_080), "[fd00::1]:8080");
        let notes = Forwarding::of(Family::ALL.into_iter(), &services, &pods).notes();
        assert!(notes[0].contains("net.ipv6.conf.all.forwarding=1"));
        assert!(Forwarding::of([].into_iter(), &services, &pods).notes().is_empty(), "nothing is off");
    }

    fn changes(before: &Services, after: &Services) -> ChangeSet {
        let snapshot = |services: &Services| Snapshot { services: services.clone(), ..Snapshot::default() };
        ChangeSet::between(&snapshot(before), &snapshot(after))
    }

    #[test]
    fn new_service_that_misses_forwarding_is_named() {
        let node = NodeFacts::default();
        let (before, after) = (Services::new(), service(Some(30_080), "10.244.2.1:8080"));
        let mut forwarding = Forwarding::of([Family::V4].into_iter(), &before, &node);
        assert!(forwarding.notes().is_empty());
        forwarding.update(|_| true, &changes(&before, &after), &after, &node);
        assert_eq!(forwarding.notes().len(), 1);
        let named = forwarding.0.remove(0).missed_by.unwrap();
        assert_eq!(named, ServiceId::new("shop", "web"));
    }

    #[test]
    fn forwarding_enabled_before_it_is_needed_is_not_noted() {
        let node = NodeFacts::default();
        let (before, after) = (Services::new(), service(Some(30_080), "10.244.2.1:8080"));
        let mut forwarding = Forwarding::of([Family::V4].into_iter(), &before, &node);
        forwarding.update(|_| false, &changes(&before, &after), &after, &node);
        assert_eq!(forwarding.notes(), [""; 0]);
    }

    #[test]
    fn forwarding_is_not_read_unless_a_service_needs_it() {
        let node = NodeFacts::default();
        let (before, after) = (Services::new(), service(None, "10.244.2.1:8080"));
        let mut forwarding = Forwarding::of([Family::V4].into_iter(), &before, &node);
        let is_off = |family: Family| panic!("{family:?} is read");
        forwarding.update(is_off, &changes(&before, &after), &after, &node);
        assert_eq!(forwarding.notes(), [""; 0]);
    }
}
