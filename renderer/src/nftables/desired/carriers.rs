//! Determines which services routes carried when the table was written: the table contains their frontends. Pure.

use std::sync::Arc;

use contiv_model::{Carrier, ContivService, Snapshot};

use super::{element::FrontendKey, shared_address::SharedAddress};
use crate::nftables::{
    desired::existing_elements::Elements,
    layout::{Set, SetKind},
};

/// A copy of the snapshot in which services with the carrier `AsBefore` get the carrier `Route`, if routes carried them
/// according to the table. None if there are no such services.
pub(crate) fn with_previous_carriers(snapshot: &Snapshot, found: &Elements) -> Option<Snapshot> {
    let is_undecided =
        |service: &&Arc<ContivService>| service.assignment.addresses == Carrier::AsBefore;
    let routed = snapshot
        .services
        .values()
        .filter(is_undecided)
        .filter(|service| was_routed(service, found));
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

fn was_routed(service: &ContivService, found: &Elements) -> bool {
    let is_routed = |frontend: &FrontendKey| {
        let mut current = found.frontends.get(frontend).into_iter().flatten();
        current.any(|element| element.set.kind == SetKind::RoutedFrontends)
            // A table of an earlier layout names only the addresses in a set that is still there.
            || !found.shaped.contains(&Set::new(SetKind::RoutedFrontends, frontend.family()))
                && found.others.contains(&SharedAddress::routed(frontend.address).element())
    };
    service.ports.iter().any(|port| {
        let key = |address| FrontendKey {
            address,
            protocol: port.protocol,
            port: port.port,
        };
        service
            .addresses()
            .map(key)
            .any(|frontend| is_routed(&frontend))
    })
}

#[cfg(test)]
mod tests {
    use contiv_model::{Protocol, ServiceId, ServicePort};

    use super::*;
    use crate::nftables::{
        desired::element::{Element, Key, Value},
        layout::Family,
    };

    #[test]
    fn service_routed_in_the_table_stays_with_routes() {
        let frontend = FrontendKey {
            address: [10, 96, 0, 1].into(),
            protocol: Protocol::Tcp,
            port: 80,
        };
        let mut service = ContivService::new(ServiceId::new("default", "web"));
        service.cluster_ips = [frontend.address].into();
        service.ports = vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: vec![],
        }];
        let answer = |carrier, kind| {
            let mut service = service.clone();
            service.assignment.addresses = carrier;
            let services = [(service.id.clone(), Arc::new(service))].into();
            let snapshot = Snapshot {
                services,
                ..Snapshot::default()
            };
            let set = Set::new(kind, Family::V4);
            let mut found = Elements {
                shaped: Set::all().collect(),
                ..Elements::default()
            };
            let element = match kind {
                // That of an earlier layout.
                SetKind::Routed => SharedAddress::routed(frontend.address).element(),
                _ => Element {
                    set,
                    key: Key::Frontend(frontend),
                    value: Value::None,
                },
            };
            if kind == SetKind::Routed {
                found
                    .shaped
                    .remove(&Set::new(SetKind::RoutedFrontends, Family::V4));
                found.others.insert(element);
            } else {
                found.frontends.insert(frontend, vec![element]);
            }
            let decided = with_previous_carriers(&snapshot, &found)?;
            decided
                .services
                .values()
                .next()
                .map(|service| service.assignment.addresses)
        };
        assert_eq!(
            answer(Carrier::AsBefore, SetKind::RoutedFrontends),
            Some(Carrier::Route)
        );
        assert_eq!(
            answer(Carrier::AsBefore, SetKind::Routed),
            Some(Carrier::Route)
        );
        assert_eq!(answer(Carrier::AsBefore, SetKind::NoLocalEndpoints), None);
        assert_eq!(
            answer(Carrier::NftablesUntilRoute, SetKind::RoutedFrontends),
            None
        );
    }
}
