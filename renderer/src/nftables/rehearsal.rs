//! One change of no consequence, so that the next real one finds warm caches.
//!
//! Between two changes the processor does other things, and most of what one change costs is then waiting for memory:
//! planning and encoding execute some 900 cache lines of instructions, each once. The renderer's thread is awake before
//! the change has been decoded and combined, and does this instead of waiting.

use std::{hint::black_box, net::Ipv4Addr, sync::Arc};

use contiv_model::{
    Backend, ChangeSet, ContivService, Protocol, ServiceChange, ServiceId, ServicePort, Snapshot,
};

use super::offline::Offline;

/// More than the batch of one change needs.
const BATCH_LIMIT: usize = 1 << 16;

/// A service with four backends of which one is replaced, there and back, in a table that is programmed nowhere.
#[derive(Debug)]
pub(super) struct Rehearsal {
    offline: Offline,
    there: ChangeSet,
    back: ChangeSet,
}

impl Default for Rehearsal {
    fn default() -> Self {
        let (one, other) = (Arc::new(service(1)), Arc::new(service(2)));
        let services = [(one.id.clone(), Arc::clone(&one))].into();
        let (offline, _) = Offline::resync(&Snapshot { services, ..Snapshot::default() }, BATCH_LIMIT);
        let change = |old: &Arc<ContivService>, new: &Arc<ContivService>| {
            let change = ServiceChange { old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) };
            ChangeSet { services: [(old.id.clone(), change)].into(), ..ChangeSet::default() }
        };
        Self { offline, there: change(&one, &other), back: change(&other, &one) }
    }
}

impl Rehearsal {
    pub(super) fn run(&mut self) {
        black_box(self.offline.update(&self.there));
        std::mem::swap(&mut self.there, &mut self.back);
    }
}

/// Of addresses for documentation; the last one differs.
fn service(last: u8) -> ContivService {
    let addresses = [[192, 0, 2, 11], [192, 0, 2, 12], [192, 0, 2, 13], [198, 51, 100, last]];
    let backend = |address: [u8; 4]| Backend::new((Ipv4Addr::from(address), 8080).into());
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends: addresses.map(backend).to_vec(),
    };
    ContivService {
        cluster_ips: [Ipv4Addr::new(203, 0, 113, 1).into()].into(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new("contiv", "rehearsal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_one_backend_is_replaced() {
        let mut rehearsal = Rehearsal::default();
        let lengths: Vec<usize> = (0..4)
            .map(|_| {
                let batches = rehearsal.offline.update(&rehearsal.there);
                std::mem::swap(&mut rehearsal.there, &mut rehearsal.back);
                batches.iter().map(Vec::len).sum()
            })
            .collect();
        assert!(lengths[0] > 0 && lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
        rehearsal.run();
    }
}
