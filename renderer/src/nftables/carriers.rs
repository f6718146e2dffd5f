//! Which renderer carried a service when the table was written: the table contains an accept for services that routes carry.
//! Pure.

use std::sync::Arc;

use contiv_model::{Carrier, ContivService, Snapshot};

use super::{
    element::{FrontendKey, Value},
    layout::SetKind,
    read::Elements,
};

/// The snapshot with a decision for services that are to keep their carrier; none if there are no such services.
pub(super) fn with_previous_carriers(snapshot: &Snapshot, found: &Elements) -> Option<Snapshot> {
    let is_undecided = |service: &&Arc<ContivService>| service.assignment.addresses == Carrier::AsBefore;
    let routed = snapshot.services.values().filter(is_undecided).filter(|service| passes(service, found));
    let routed: Vec<Arc<ContivService>> = routed.map(Arc::clone).collect();
    if routed.is_empty() {
        return None;
    }
    let mut decided = snapshot.clone();
    for mut service in routed {
        Arc::make_mut(&mut service).assignment.addresses = Carrier::Route;
        decided.services.insert(service.id.clone(), service);
    }
    Some(decided)
}

fn passes(service: &ContivService, found: &Elements) -> bool {
    let is_accepted = |frontend: &FrontendKey| {
        let elements = found.frontends.get(frontend).into_iter().flatten();
        elements
            .into_iter()
            .any(|element| element.set.kind == SetKind::Unserved && element.value == Value::Accept)
    };
    service.ports.iter().any(|port| {
        let key = |address| FrontendKey { address, protocol: port.protocol, port: port.port };
        service.addresses().map(key).any(|frontend| is_accepted(&frontend))
    })
}

#[cfg(test)]
mod tests {
    use contiv_model::{Protocol, ServiceId, ServicePort};

    use super::*;
    use crate::nftables::{
        element::{Element, Key},
        layout::{Family, Set},
    };

    #[test]
    fn service_the_table_lets_pass_stays_with_routes() {
        let frontend = FrontendKey { address: [10, 96, 0, 1].into(), protocol: Protocol::Tcp, port: 80 };
        let mut service = ContivService::new(ServiceId::new("default", "web"));
        service.cluster_ips = [frontend.address].into();
        service.ports = vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: vec![],
        }];
        let answer = |carrier, value| {
            let mut service = service.clone();
            service.assignment.addresses = carrier;
            let services = [(service.id.clone(), Arc::new(service))].into();
            let snapshot = Snapshot { services, ..Snapshot::default() };
            let set = Set::new(SetKind::Unserved, Family::V4);
            let mut found = Elements::default();
            found.frontends.insert(frontend, vec![Element { set, key: Key::Frontend(frontend), value }]);
            let decided = with_previous_carriers(&snapshot, &found)?;
            decided.services.values().next().map(|service| service.assignment.addresses)
        };
        assert_eq!(answer(Carrier::AsBefore, Value::Accept), Some(Carrier::Route));
        assert_eq!(answer(Carrier::AsBefore, Value::Drop), None);
        assert_eq!(answer(Carrier::NftablesUntilRoute, Value::Accept), None);
    }
}
