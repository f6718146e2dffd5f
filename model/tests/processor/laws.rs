//! Properties that hold after any events, with few ids and addresses so that conflicts happen.

mod mirror;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use contiv_model::{
    Backend, ChangeSet, ContivService, Event, InterfaceName, LocalInterfaces, Object, ObjectKey,
    PodId, Processor, ProcessorConfig, Resync, ServiceId, Snapshot,
};
use proptest::prelude::*;

use crate::builders::mk_resync;
use steps::{Step, config, steps};

/// A simple reference model of the processor's state.
#[derive(Debug, Default)]
struct ReferenceModel {
    objects: BTreeMap<ObjectKey, Object>,
    attached: BTreeMap<PodId, InterfaceName>,
    local_ips: BTreeSet<IpAddr>,
    local_interfaces: LocalInterfaces,
    failing: BTreeMap<ServiceId, BTreeSet<SocketAddr>>,
}

impl ReferenceModel {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Apply(events) => events.iter().for_each(|event| self.apply_event(event)),
            Step::Resync(Resync {
                objects,
                undecodable,
            }) => {
                self.objects.retain(|key, _| undecodable.contains(key));
                self.objects
                    .extend(objects.iter().map(|object| (object.key(), object.clone())));
            }
        }
    }

    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Put(object) => drop(self.objects.insert(object.key(), object.clone())),
            Event::Delete(key) => drop(self.objects.remove(key)),
            Event::AddPod { pod, interface } => {
                drop(self.attached.insert(pod.clone(), interface.clone()));
            }
            Event::DeletePod(pod) | Event::RevertAddPod(pod) => drop(self.attached.remove(pod)),
            Event::LocalAddresses(ips) => self.local_ips.clone_from(ips),
            Event::LocalInterfaces(interfaces) => self.local_interfaces.clone_from(interfaces),
            Event::FailingBackends(service, backends) => {
                drop(self.failing.insert(service.clone(), backends.clone()));
            }
        }
    }

    /// The state as independent events.
    fn events(&self) -> Vec<Event> {
        let objects = self.objects.values().cloned().map(Event::Put);
        let attached = self.attached.iter().map(|(pod, interface)| Event::AddPod {
            pod: pod.clone(),
            interface: interface.clone(),
        });
        let local = [
            Event::LocalAddresses(self.local_ips.clone()),
            Event::LocalInterfaces(self.local_interfaces.clone()),
        ];
        let failing = self
            .failing
            .iter()
            .map(|(service, backends)| Event::FailingBackends(service.clone(), backends.clone()));
        objects
            .chain(attached)
            .chain(local)
            .chain(failing)
            .collect()
    }

    /// The snapshot of a processor that receives only the state.
    fn snapshot(&self, config: &ProcessorConfig) -> Snapshot {
        let mut processor = Processor::new(config.clone());
        processor.resync(mk_resync(self.objects.values().cloned()));
        processor.apply(
            self.events()
                .into_iter()
                .filter(|event| !matches!(event, Event::Put(_))),
        );
        processor.snapshot()
    }
}

fn apply(processor: &mut Processor, step: Step) -> ChangeSet {
    match step {
        Step::Apply(events) => processor.apply(events),
        Step::Resync(resync) => processor.resync(resync),
    }
}

/// Asserts that every part of a change set changes something and that its old values are those of the snapshot before.
fn assert_honest(changes: &ChangeSet, before: &Snapshot) {
    for (id, change) in &changes.services {
        assert_ne!(change.old, change.new, "{id}");
        assert_eq!(change.old.as_ref(), before.services.get(id), "{id}");
    }
    assert_ne!(changes.node.as_ref(), Some(&before.node));
    for (change, before) in [
        (&changes.frontend_interfaces, &before.frontend_interfaces),
        (&changes.backend_interfaces, &before.backend_interfaces),
    ] {
        if let Some(change) = change {
            assert_ne!(&change.old, &change.new);
            assert_eq!(&change.old, before);
        }
    }
}

/// Properties of every rendered service.
fn assert_sound(service: &ContivService) {
    let ContivService {
        id,
        source_ranges,
        external_ips,
        ..
    } = service;
    assert!(
        service
            .load_balancer_ips
            .iter()
            .all(|ip| external_ips.contains(ip)),
        "{id}"
    );
    assert!(
        source_ranges.iter().all(|range| range.prefix() > 0),
        "{id}: {source_ranges:?}"
    );
    assert!(
        !service.affinity_shared || service.session_affinity_timeout > 0,
        "{id}"
    );
    for port in &service.ports {
        assert!(
            port.backends.is_sorted_by_key(Backend::endpoint),
            "{id}: sorted, each once"
        );
        for ipv4 in [true, false] {
            let of_family = |backends: Vec<&Backend>| {
                backends
                    .into_iter()
                    .filter(|backend| backend.address.is_ipv4() == ipv4)
                    .cloned()
                    .collect()
            };
            let all: Vec<Backend> = of_family(port.backends.iter().collect());
            let cluster: Vec<Backend> = of_family(port.cluster_backends());
            let local: Vec<Backend> = of_family(port.local_backends());
            assert_eq!(
                all.is_empty(),
                cluster.is_empty(),
                "{id}: no hint takes the last backend away"
            );
            assert_eq!(
                all.iter().any(|backend| backend.local),
                !local.is_empty(),
                "{id}"
            );
            assert!(local.iter().all(|backend| backend.local), "{id}");
            for chosen in [&cluster, &local] {
                assert!(
                    chosen
                        .iter()
                        .all(|backend| backend.state == chosen[0].state),
                    "{id}: never mixed"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_service_is_sound_after_any_steps(config in config(), steps in steps()) {
        let mut processor = Processor::new(config.clone());
        for step in steps {
            apply(&mut processor, step);
        }
        processor.snapshot().services.values().for_each(|service| assert_sound(service));
    }

    #[test]
    fn random_steps_equal_a_resync_of_the_result(config in config(), steps in steps()) {
        let (mut processor, mut expected) = (Processor::new(config.clone()), ReferenceModel::default());
        for step in steps {
            expected.apply(&step);
            apply(&mut processor, step);
            prop_assert_eq!(processor.snapshot(), expected.snapshot(&config));
        }
        let resync = mk_resync(expected.objects.into_values());
        prop_assert!(processor.resync(resync.clone()).is_empty());
        prop_assert!(processor.resync(resync).is_empty());
    }

    #[test]
    fn changes_lead_from_each_snapshot_to_next(config in config(), steps in steps()) {
        let mut processor = Processor::new(config.clone());
        let mut replica = processor.snapshot();
        for step in steps {
            let changes = apply(&mut processor, step);
            assert_honest(&changes, &replica);
            prop_assert_eq!(ChangeSet::between(&replica, &processor.snapshot()), changes.clone());
            replica.apply(&changes);
            prop_assert_eq!(&replica, &processor.snapshot());
        }
    }

    #[test]
    fn merged_changes_equal_the_changes_in_sequence(config in config(), steps in steps()) {
        let mut processor = Processor::new(config.clone());
        let first = processor.snapshot();
        let mut merged = ChangeSet::default();
        for step in steps {
            merged.merge(apply(&mut processor, step));
        }
        let last = processor.snapshot();
        let direct = ChangeSet::between(&first, &last);
        prop_assert_eq!(&merged.services, &direct.services);
        prop_assert_eq!(&merged.frontend_interfaces, &direct.frontend_interfaces);
        prop_assert_eq!(&merged.backend_interfaces, &direct.backend_interfaces);
        let mut replica = first;
        replica.apply(&merged);
        prop_assert_eq!(replica, last);
    }

    #[test]
    fn neither_order_nor_batches_show_in_result(
        config in config(),
        steps in steps(),
        order in prop::collection::vec(any::<u32>(), 64),
        batch in 1..8_usize,
    ) {
        let mut expected = ReferenceModel::default();
        for step in &steps {
            expected.apply(step);
        }
        let mut events: Vec<_> = expected.events().into_iter().zip(order.into_iter().cycle()).collect();
        events.sort_by_key(|(_, order)| *order);
        let events: Vec<_> = events.into_iter().map(|(event, _)| event).collect();
        let mut processor = Processor::new(config.clone());
        for batch in events.chunks(batch) {
            processor.apply(batch.to_vec());
        }
        let bytes = |snapshot: &Snapshot| serde_json::to_vec(snapshot).unwrap();
        prop_assert_eq!(bytes(&processor.snapshot()), bytes(&expected.snapshot(&config)));
    }

    #[test]
    fn mirror_image_of_steps_has_the_mirror_image_as_result(config in config(), steps in steps()) {
        // Only 127.0.0.1 can serve node ports.
        let config = ProcessorConfig { node_ports_on_loopback: false, ..config };
        let mut processor = Processor::new(config.clone());
        let mut image = Processor::new(mirror::config(config));
        for step in steps {
            apply(&mut image, mirror::step(step.clone()));
            apply(&mut processor, step);
            prop_assert_eq!(mirror::without_reasons(image.snapshot()), mirror::result(&processor.snapshot()));
        }
    }
}
