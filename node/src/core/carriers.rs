//! The reassignment of services between `nftables` and routes: `nftables` keeps a service until the renderer `route` has reported its
//! routes, and gets it back when they are removed. So it is carried at any time, though the two renderers are independent. Pure.
//!
//! On the way back nothing is awaited: the renderer `route` keeps the routes of such a service for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_model::{Carrier, ChangeSet, ContivService, ServiceChange, ServiceId, Snapshot};
use contiv_renderer::{Rejected, renderer::LEFT_TO_NFTABLES};

/// The renderer whose reports matter.
pub(super) const ROUTE: &str = "route";

/// The state of the services that routes are to carry.
#[derive(Debug, Default)]
pub(super) struct CarrierReassignment {
    /// The services carried by routes.
    carried: BTreeSet<ServiceId>,
    /// The services not yet, or no longer, carried by routes.
    awaited: BTreeMap<ServiceId, AwaitedReport>,
}

#[derive(Debug, Clone, Copy)]
struct AwaitedReport {
    /// The event that told the renderer.
    event: u64,
    /// There was no report since the start: routes of an earlier run may carry it.
    is_unconfirmed: bool,
}

impl CarrierReassignment {
    /// Starts with all services before any work for renderers; the first snapshot is this event.
    pub(super) fn begin<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Arc<ContivService>>,
        event: u64,
    ) {
        let is_routed =
            |service: &&Arc<ContivService>| service.assignment.addresses == Carrier::Route;
        let awaited = |service: &Arc<ContivService>| {
            (
                service.id.clone(),
                AwaitedReport {
                    event,
                    is_unconfirmed: true,
                },
            )
        };
        self.awaited = all.filter(is_routed).map(awaited).collect();
    }

    /// Sets the current carriers of services in the changes of this event.
    pub(super) fn set_carriers_of_changes(&mut self, changes: &mut ChangeSet, event: u64) {
        for (id, change) in &mut changes.services {
            if let Some(old) = &mut change.old {
                self.set_carrier(old);
            }
            match &mut change.new {
                Some(new) if new.assignment.addresses == Carrier::Route => {
                    if !self.carried.contains(id) {
                        self.awaited.entry(id.clone()).or_insert(AwaitedReport {
                            event,
                            is_unconfirmed: false,
                        });
                    }
                    self.set_carrier(new);
                }
                _ => {
                    self.carried.remove(id);
                    self.awaited.remove(id);
                }
            }
        }
    }

    /// Handles a report of the renderer `route` on all events up to this one. Returns the services whose carrier changes.
    pub(super) fn reassign(&mut self, last: u64, rejected: &[Rejected]) -> BTreeSet<ServiceId> {
        let left = rejected
            .iter()
            .filter(|rejected| rejected.active_state == LEFT_TO_NFTABLES);
        let left: BTreeSet<&ServiceId> = left.map(|rejected| &rejected.service).collect();
        let back: Vec<ServiceId> = left
            .iter()
            .filter_map(|id| self.carried.take(*id))
            .collect();
        let is_done = |(id, awaited): (&ServiceId, &AwaitedReport)| {
            (awaited.event <= last && !left.contains(id)).then(|| id.clone())
        };
        let over: Vec<ServiceId> = self.awaited.iter().filter_map(is_done).collect();
        for id in &over {
            self.awaited.remove(id);
        }
        // Routes cannot carry these now, whatever carried them before.
        let mut is_refused = |id: &ServiceId| {
            self.awaited
                .get_mut(id)
                .is_some_and(|awaited| std::mem::take(&mut awaited.is_unconfirmed))
        };
        let refused: Vec<ServiceId> = left
            .into_iter()
            .filter(|id| is_refused(id))
            .cloned()
            .collect();
        let awaited = AwaitedReport {
            event: last,
            is_unconfirmed: false,
        };
        self.awaited
            .extend(back.iter().map(|id| (id.clone(), awaited)));
        self.carried.extend(over.iter().cloned());
        over.into_iter().chain(back).chain(refused).collect()
    }

    /// The change for renderers of a service whose carrier has just changed.
    pub(super) fn change(&self, service: &Arc<ContivService>) -> ServiceChange {
        let of = |carrier| {
            let mut service = ContivService::clone(service);
            service.assignment.addresses = carrier;
            Some(Arc::new(service))
        };
        let (old, new) = if self.carried.contains(&service.id) {
            (Carrier::NftablesUntilRoute, Carrier::Route)
        } else {
            (Carrier::Route, Carrier::NftablesUntilRoute)
        };
        ServiceChange {
            old: of(old),
            new: of(new),
        }
    }

    /// Sets the renderer that really carries a service.
    pub(super) fn set_carrier(&self, service: &mut Arc<ContivService>) {
        if let Some(awaited) = self.awaited.get(&service.id)
            && service.assignment.addresses == Carrier::Route
        {
            Arc::make_mut(service).assignment.addresses = if awaited.is_unconfirmed {
                Carrier::AsBefore
            } else {
                Carrier::NftablesUntilRoute
            };
        }
    }

    /// Sets the renderers that really carry all services.
    pub(super) fn with_carriers(&self, mut snapshot: Snapshot) -> Snapshot {
        for id in self.awaited.keys() {
            if let Some(service) = snapshot.services.get_mut(id) {
                self.set_carrier(service);
            }
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(carrier: Carrier) -> Arc<ContivService> {
        let mut service = ContivService::new(ServiceId::new("default", "web"));
        service.assignment.addresses = carrier;
        Arc::new(service)
    }

    /// Applies a change, and returns the carriers of the service before and after it.
    fn apply(
        carriers: &mut CarrierReassignment,
        old: Option<Carrier>,
        new: Option<Carrier>,
        event: u64,
    ) -> (Option<Carrier>, Option<Carrier>) {
        let change = ServiceChange {
            old: old.map(service),
            new: new.map(service),
        };
        let id = ServiceId::new("default", "web");
        let mut changes = ChangeSet {
            services: [(id.clone(), change)].into(),
            ..ChangeSet::default()
        };
        carriers.set_carriers_of_changes(&mut changes, event);
        let carrier = |service: &Option<Arc<ContivService>>| {
            service.as_ref().map(|service| service.assignment.addresses)
        };
        let change = &changes.services[&id];
        (carrier(&change.old), carrier(&change.new))
    }

    fn rejected() -> [Rejected; 1] {
        let service = ServiceId::new("default", "web");
        [Rejected {
            service,
            reason: String::new(),
            active_state: LEFT_TO_NFTABLES,
        }]
    }

    #[test]
    fn nftables_keeps_service_until_its_routes_are_reported() {
        use Carrier::{Nftables, NftablesUntilRoute, Route};
        let mut carriers = CarrierReassignment::default();
        let first = apply(&mut carriers, Some(Nftables), Some(Route), 7);
        assert_eq!(first, (Some(Nftables), Some(NftablesUntilRoute)));
        assert!(
            carriers.reassign(6, &[]).is_empty(),
            "a report on earlier events"
        );
        let again = apply(&mut carriers, Some(Route), Some(Route), 8);
        assert_eq!(again, (Some(NftablesUntilRoute), Some(NftablesUntilRoute)));
        assert_eq!(carriers.reassign(7, &[]).len(), 1);
        let change = carriers.change(&service(Route));
        assert_eq!(change.new, Some(service(Route)));
        assert_eq!(
            apply(&mut carriers, Some(Route), Some(Route), 9),
            (Some(Route), Some(Route))
        );
        assert_eq!(
            apply(&mut carriers, Some(Route), Some(Nftables), 10),
            (Some(Route), Some(Nftables))
        );
        let anew = apply(&mut carriers, Some(Nftables), Some(Route), 11);
        assert_eq!(anew.1, Some(NftablesUntilRoute), "from the beginning");
    }

    #[test]
    fn start_keeps_carriers_until_routes_are_reported_or_refused() {
        use Carrier::{AsBefore, NftablesUntilRoute, Route};
        let id = ServiceId::new("default", "web");
        let snapshot = Snapshot {
            services: [(id.clone(), service(Route))].into(),
            ..Snapshot::default()
        };
        let carrier = |carriers: &CarrierReassignment| {
            carriers.with_carriers(snapshot.clone()).services[&id]
                .assignment
                .addresses
        };
        for (rejected, expected) in [(&[][..], Route), (&rejected()[..], NftablesUntilRoute)] {
            let mut carriers = CarrierReassignment::default();
            carriers.begin(snapshot.services.values(), 1);
            assert_eq!(carrier(&carriers), AsBefore);
            assert_eq!(carriers.reassign(1, rejected).len(), 1, "both are news");
            assert_eq!(carrier(&carriers), expected);
            assert!(carriers.reassign(2, rejected).is_empty());
        }
    }

    #[test]
    fn service_with_refused_routes_is_carried_by_nftables() {
        use Carrier::{NftablesUntilRoute, Route};
        let mut carriers = CarrierReassignment::default();
        apply(&mut carriers, None, Some(Route), 1);
        assert!(carriers.reassign(1, &rejected()).is_empty());
        assert_eq!(carriers.reassign(2, &[]).len(), 1, "now they are there");
        assert_eq!(
            carriers.reassign(3, &rejected()).len(),
            1,
            "now they are not"
        );
        let change = carriers.change(&service(Route));
        assert_eq!(change.new, Some(service(NftablesUntilRoute)));
        let id = ServiceId::new("default", "web");
        let snapshot = Snapshot {
            services: [(id.clone(), service(Route))].into(),
            ..Snapshot::default()
        };
        assert_eq!(
            carriers.with_carriers(snapshot.clone()).services[&id],
            service(NftablesUntilRoute)
        );
        assert_eq!(carriers.reassign(4, &[]).len(), 1);
        assert_eq!(
            carriers.with_carriers(snapshot).services[&id],
            service(Route)
        );
    }
    #[test]
    fn service_back_at_nftables_or_deleted_is_not_awaited() {
        use Carrier::{Nftables, NftablesUntilRoute, Route};
        for back in [Some(Nftables), None] {
            let mut carriers = CarrierReassignment::default();
            apply(&mut carriers, Some(Nftables), Some(Route), 7);
            assert_eq!(
                apply(&mut carriers, Some(Route), back, 8),
                (Some(NftablesUntilRoute), back)
            );
            assert!(
                carriers.reassign(8, &[]).is_empty(),
                "its routes mean nothing now"
            );
            assert_eq!(
                apply(&mut carriers, back, Some(Route), 9).1,
                Some(NftablesUntilRoute)
            );
            assert!(
                carriers.reassign(8, &[]).is_empty(),
                "a report on earlier events"
            );
            assert_eq!(carriers.reassign(9, &[]).len(), 1);
        }
    }

    #[test]
    fn service_that_returned_to_routes_waits_for_the_latter_report() {
        use Carrier::{Nftables, NftablesUntilRoute, Route};
        let mut carriers = CarrierReassignment::default();
        apply(&mut carriers, Some(Nftables), Some(Route), 7);
        apply(&mut carriers, Some(Route), Some(Nftables), 8);
        apply(&mut carriers, Some(Nftables), Some(Route), 9);
        // The report on the first two events: the routes were added and removed.
        assert!(carriers.reassign(8, &[]).is_empty());
        assert_eq!(
            apply(&mut carriers, Some(Route), Some(Route), 10).1,
            Some(NftablesUntilRoute)
        );
        assert_eq!(carriers.reassign(9, &[]).len(), 1);
        assert_eq!(
            carriers.reassign(10, &rejected()).len(),
            1,
            "later its routes are refused"
        );
        assert_eq!(
            apply(&mut carriers, Some(Route), Some(Nftables), 11).0,
            Some(NftablesUntilRoute)
        );
        assert!(
            carriers.reassign(11, &rejected()).is_empty(),
            "it is no longer theirs"
        );
    }

    #[test]
    fn service_at_start_that_goes_back_to_nftables_has_no_former_carrier() {
        use Carrier::{AsBefore, Nftables, NftablesUntilRoute, Route};
        let mut carriers = CarrierReassignment::default();
        carriers.begin([service(Route)].iter(), 1);
        assert_eq!(
            apply(&mut carriers, Some(Route), Some(Nftables), 2),
            (Some(AsBefore), Some(Nftables))
        );
        assert!(carriers.reassign(2, &[]).is_empty());
        assert_eq!(
            apply(&mut carriers, Some(Nftables), Some(Route), 3).1,
            Some(NftablesUntilRoute)
        );
    }
}
