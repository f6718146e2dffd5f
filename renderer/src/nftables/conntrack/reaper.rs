//! The handle of the thread that deletes stale flows. Programming passes changes to it, and never waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
};

use contiv_model::{ChangeSet, ContivService, ServiceChange, ServiceId, Snapshot};

use super::{
    backends::Backends,
    observer::StaleFlowObserver,
    request::{Request, Services, Totals},
    seqlock::{Programming, ProgrammingSeqlock},
    worker::Worker,
};
use crate::{kernel::Kernel, nftables::FrontendKey};

/// Requests that can wait while the thread is busy. It receives new ones between any two flows, so the queue fills only if the
/// kernel takes longer for one piece of a dump than programming takes for a thousand changes.
const QUEUE_CAPACITY: usize = 1024;

/// Starts the thread with the first request, in the network namespace of the caller. When it is dropped, the thread finishes
/// its pending requests.
#[derive(Debug)]
pub(crate) struct StaleFlowReaper {
    kernel: Arc<dyn Kernel>,
    queue: Option<SyncSender<Request>>,
    node_ips: BTreeSet<IpAddr>,
    /// A request about changes was lost: the next request must cover everything.
    incomplete: bool,
    /// The services before the changes of lost requests: as many as there are services at most, and those that were removed.
    unreported: Services,
    seqlock: Arc<ProgrammingSeqlock>,
    totals: Arc<Totals>,
    observer: Option<Arc<dyn StaleFlowObserver>>,
}

impl StaleFlowReaper {
    /// A reaper of the flows of this kernel, that has nothing to do yet.
    pub(crate) fn new(kernel: Arc<dyn Kernel>) -> Self {
        Self {
            kernel,
            queue: None,
            node_ips: BTreeSet::new(),
            incomplete: false,
            unreported: Services::new(),
            seqlock: Arc::default(),
            totals: Arc::default(),
            observer: None,
        }
    }

    /// Reports the searches to `observer`. Must be called before the first request.
    pub(crate) fn observe(&mut self, observer: Option<Arc<dyn StaleFlowObserver>>) {
        self.observer = observer;
    }

    /// Announces services before they are programmed. Programming lasts until the returned value is dropped: a search that runs
    /// meanwhile can meet flows to their backends before it receives the changes.
    ///
    /// Nothing is sent unless a search runs, which is rare: sending would delay the programming.
    pub(crate) fn coming<'a>(
        &mut self,
        services: impl Iterator<Item = &'a Arc<ContivService>>,
    ) -> Programming {
        let (programming, is_searching) = self.seqlock.program();
        if is_searching {
            let services: Vec<_> = services.cloned().collect();
            let incomplete = self.incomplete;
            if !services.is_empty() {
                self.send(Request::Coming(services));
                self.incomplete |= incomplete;
            }
        }
        programming
    }

    /// Reports changes that were programmed. `services` are those after them.
    pub(crate) fn changed(&mut self, changes: &ChangeSet, services: &Services) {
        let node_ips = changes
            .node
            .as_ref()
            .map(|node| node.node_port_ips().copied().collect());
        if let Some(node_ips) = node_ips.filter(|node_ips| *node_ips != self.node_ips) {
            self.node_ips = node_ips;
            self.incomplete = true;
        }
        if self.incomplete {
            self.keep_unreported(old_services(&changes.services));
            let (before, services) = (mem::take(&mut self.unreported), services.clone());
            let node_ips = self.node_ips.clone();
            self.send(Request::Reconciled {
                before,
                services,
                node_ips,
                found: Vec::new(),
            });
        } else if !changes.services.is_empty() {
            self.send(Request::Changed(changes.services.clone()));
        }
    }

    /// Reports that everything was programmed. `before` are the services that this process had programmed before, none if they are
    /// the same. `found` are the backends by frontend that were there before, by whichever process.
    pub(crate) fn reconciled(
        &mut self,
        snapshot: &Snapshot,
        before: Services,
        found: Vec<(FrontendKey, Backends)>,
    ) {
        self.keep_unreported(before);
        let before = mem::take(&mut self.unreported);
        self.node_ips = snapshot.node.node_port_ips().copied().collect();
        let (services, node_ips) = (snapshot.services.clone(), self.node_ips.clone());
        self.send(Request::Reconciled {
            before,
            services,
            node_ips,
            found,
        });
    }

    /// Searches, deleted flows, and failed searches, by name.
    pub(crate) fn totals(&self) -> [(&'static str, usize); 3] {
        let Totals {
            searches,
            deleted,
            failures,
            ..
        } = &*self.totals;
        let totals = [
            ("stale-flow-searches", searches),
            ("stale-flows-deleted", deleted),
            ("stale-flow-failures", failures),
        ];
        totals.map(|(name, total)| (name, total.load(Ordering::Relaxed)))
    }

    fn send(&mut self, request: Request) {
        let Some(queue) = self.queue.take().or_else(|| self.start()) else {
            return self.keep_lost(request);
        };
        match queue.try_send(request) {
            Ok(()) => self.incomplete = false,
            Err(TrySendError::Full(request)) => self.keep_lost(request),
            // The next request starts the thread again.
            Err(TrySendError::Disconnected(request)) => return self.keep_lost(request),
        }
        self.queue = Some(queue);
    }

    /// Keeps the earlier services of a request that the thread did not get.
    fn keep_lost(&mut self, request: Request) {
        self.incomplete = true;
        match request {
            Request::Coming(_) => (),
            Request::Changed(changes) => self.keep_unreported(old_services(&changes)),
            Request::Reconciled { before, .. } => self.keep_unreported(before),
        }
    }

    /// Of several states of a service the first counts: flows of later ones were reported, or never had time to begin.
    fn keep_unreported(&mut self, mut services: Services) {
        services.append(&mut self.unreported);
        self.unreported = services;
    }

    fn start(&mut self) -> Option<SyncSender<Request>> {
        let (queue, requests) = sync_channel(QUEUE_CAPACITY);
        let (kernel, seqlock) = (Arc::clone(&self.kernel), Arc::clone(&self.seqlock));
        let worker = Worker::new(
            kernel,
            requests,
            seqlock,
            Arc::clone(&self.totals),
            self.observer.clone(),
        );
        match self.kernel.spawn("stale-flows", Box::new(worker)) {
            Ok(()) => Some(queue),
            Err(error) => {
                self.totals.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "no thread for deleting stale flows; they stay until they time out");
                None
            }
        }
    }
}

/// The services before these changes, except new ones.
fn old_services(changes: &BTreeMap<ServiceId, ServiceChange>) -> Services {
    let old = changes
        .iter()
        .filter_map(|(id, change)| Some((id.clone(), Arc::clone(change.old.as_ref()?))));
    old.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use contiv_model::NodeFacts;

    use super::*;
    use crate::linux::Linux;

    /// A reaper whose thread is the test, with space for one request.
    fn reaper() -> (StaleFlowReaper, Receiver<Request>) {
        let (queue, requests) = sync_channel(1);
        (
            StaleFlowReaper {
                queue: Some(queue),
                ..StaleFlowReaper::new(Linux::shared())
            },
            requests,
        )
    }

    fn state() -> (ChangeSet, Services) {
        let service = Arc::new(ContivService::new(ServiceId::new("default", "dns")));
        let services = Services::from([(service.id.clone(), service)]);
        let after = Snapshot {
            services: services.clone(),
            ..Snapshot::default()
        };
        (ChangeSet::between(&Snapshot::default(), &after), services)
    }

    #[test]
    fn full_queue_makes_the_next_request_search_everything() {
        let (mut reaper, requests) = reaper();
        let (changes, services) = state();
        reaper.changed(&changes, &services);
        reaper.changed(&changes, &services);
        assert!(matches!(requests.try_recv(), Ok(Request::Changed(_))));
        assert!(requests.try_recv().is_err(), "the second did not fit");
        // An announcement is sent, but does not replace the request that was lost.
        Arc::clone(&reaper.seqlock).search(|| drop(reaper.coming(services.values())));
        assert!(matches!(requests.try_recv(), Ok(Request::Coming(_))));
        reaper.changed(&ChangeSet::default(), &services);
        let Ok(Request::Reconciled {
            services: all,
            before,
            ..
        }) = requests.try_recv()
        else {
            panic!("not everything")
        };
        assert_eq!((all, before), (services.clone(), Services::new()));
        reaper.changed(&changes, &services);
        assert!(
            matches!(requests.try_recv(), Ok(Request::Changed(_))),
            "now all is known again"
        );
    }

    #[test]
    fn services_before_lost_changes_come_with_the_next_request() {
        let (mut reaper, requests) = reaper();
        let (changes, services) = state();
        let version = |timeout| {
            let (id, service) = services.iter().next().unwrap();
            let service = ContivService {
                session_affinity_timeout: timeout,
                ..ContivService::clone(service)
            };
            Services::from([(id.clone(), Arc::new(service))])
        };
        let between = |old: &Services, new: &Services| {
            let snapshot = |services: &Services| Snapshot {
                services: services.clone(),
                ..Snapshot::default()
            };
            ChangeSet::between(&snapshot(old), &snapshot(new))
        };
        reaper.changed(&changes, &services);
        reaper.changed(&between(&services, &version(1)), &version(1));
        // This does not fit either.
        reaper.changed(&between(&version(1), &version(2)), &version(2));
        assert!(matches!(requests.try_recv(), Ok(Request::Changed(_))));
        reaper.changed(&between(&version(2), &version(3)), &version(3));
        let Ok(Request::Reconciled {
            before,
            services: all,
            ..
        }) = requests.try_recv()
        else {
            panic!("not everything")
        };
        assert_eq!(
            (before, all),
            (services.clone(), version(3)),
            "the thread knows the state of the first request"
        );
        assert!(reaper.unreported.is_empty());
    }

    #[test]
    fn flow_changes_are_announced_only_during_a_search() {
        let (mut reaper, requests) = reaper();
        let (_, services) = state();
        drop(reaper.coming(services.values()));
        assert!(
            requests.try_recv().is_err(),
            "without a search nothing is announced"
        );
        Arc::clone(&reaper.seqlock).search(|| drop(reaper.coming(services.values())));
        assert!(matches!(requests.try_recv(), Ok(Request::Coming(_))));
    }

    #[test]
    fn node_port_addresses_changed_make_everything_suspect() {
        let (mut reaper, requests) = reaper();
        let facts = |address: &str| NodeFacts {
            node_ips: BTreeSet::from([address.parse().unwrap()]),
            ..NodeFacts::default()
        };
        for (address, expected) in [
            ("172.31.0.1", true),
            ("172.31.0.1", false),
            ("172.31.0.2", true),
        ] {
            let changes = ChangeSet {
                node: Some(facts(address)),
                ..ChangeSet::default()
            };
            reaper.changed(&changes, &Services::new());
            assert_eq!(
                matches!(requests.try_recv(), Ok(Request::Reconciled { .. })),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn node_port_addresses_of_each_reconciliation_replace_those_before() {
        let (mut reaper, requests) = reaper();
        for address in ["172.31.0.1", "172.31.0.2"] {
            let expected = BTreeSet::from([address.parse().unwrap()]);
            let node = NodeFacts {
                node_ips: expected.clone(),
                ..NodeFacts::default()
            };
            reaper.reconciled(
                &Snapshot {
                    node,
                    ..Snapshot::default()
                },
                Services::new(),
                Vec::new(),
            );
            let Ok(Request::Reconciled { node_ips, .. }) = requests.try_recv() else {
                panic!("not everything")
            };
            assert_eq!(node_ips, expected);
        }
    }

    #[test]
    fn stopped_thread_makes_the_search_state_incomplete() {
        let (mut reaper, requests) = reaper();
        drop(requests);
        let (_, services) = state();
        let before = Snapshot {
            services: services.clone(),
            ..Snapshot::default()
        };
        reaper.changed(
            &ChangeSet::between(&before, &Snapshot::default()),
            &Services::new(),
        );
        assert!(reaper.queue.is_none() && reaper.incomplete);
        assert_eq!(
            reaper.unreported, services,
            "its flows must be searched later"
        );
    }
}
