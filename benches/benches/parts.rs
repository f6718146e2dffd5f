//! The parts inside the process, one by one and without a kernel: decode, merge, plan with encode.
//!
//! ```text
//! cargo bench -p contiv-benches                    # all
//! cargo bench -p contiv-benches -- one_backend     # those with this in their name
//! ```

use contiv_allocator as _;
use contiv_model::{ChangeSet, Event, NodeName, Processor, ProcessorConfig};
use contiv_renderer::nftables::offline::OfflineTable;
use contiv_workload::{Variant, Workload};
use divan::{Bencher, counter::ItemsCount};

/// Services, each with four backends.
const SIZES: [usize; 3] = [100, 1000, 10_000];
/// A limit that no batch reaches.
const BATCH_LIMIT: usize = 1 << 28;

const fn workload(services: usize) -> Workload {
    Workload {
        services,
        backends: 4,
    }
}

fn processor(services: usize) -> Processor {
    workload(services)
        .processor()
        .unwrap_or_else(|error| panic!("{error}"))
}

fn change(services: usize, variant: Variant) -> Event {
    workload(services)
        .change(services / 2, variant)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[divan::bench(args = SIZES)]
fn decode_everything(bencher: Bencher<'_, '_>, services: usize) {
    let values: Vec<_> = workload(services).values().collect();
    bencher
        .counter(ItemsCount::new(values.len()))
        .bench(|| Workload::decode(&values));
}

#[divan::bench(args = SIZES)]
fn combine_everything(bencher: Bencher<'_, '_>, services: usize) {
    let resync = workload(services)
        .resync()
        .unwrap_or_else(|error| panic!("{error}"));
    let empty = || {
        (
            Processor::new(ProcessorConfig::new(NodeName::new("node"))),
            resync.clone(),
        )
    };
    bencher
        .counter(ItemsCount::new(services))
        .with_inputs(empty)
        .bench_values(|(mut processor, resync)| {
            processor.resync(resync);
            processor
        });
}

#[divan::bench(args = SIZES)]
fn plan_and_encode_everything(bencher: Bencher<'_, '_>, services: usize) {
    let snapshot = processor(services).snapshot();
    bencher
        .counter(ItemsCount::new(services))
        .bench(|| OfflineTable::resync(&snapshot, BATCH_LIMIT));
}

#[divan::bench(args = SIZES)]
fn combine_one_backend_replaced(bencher: Bencher<'_, '_>, services: usize) {
    let mut processor = processor(services);
    let there_and_back = [
        change(services, Variant::Replaced(1)),
        change(services, Variant::Original),
    ];
    let mut events = there_and_back.into_iter().cycle();
    bencher
        .with_inputs(|| events.next())
        .bench_local_values(|event| processor.apply(event));
}

#[divan::bench(args = SIZES)]
fn plan_and_encode_one_backend_replaced(bencher: Bencher<'_, '_>, services: usize) {
    plan_and_encode(bencher, services, Variant::Replaced(1));
}

#[divan::bench(args = SIZES)]
fn plan_and_encode_one_backend_less(bencher: Bencher<'_, '_>, services: usize) {
    plan_and_encode(bencher, services, Variant::OneLess);
}

/// Alternates between a change and its reversal.
fn plan_and_encode(bencher: Bencher<'_, '_>, services: usize, variant: Variant) {
    let mut processor = processor(services);
    let (mut offline, _) = OfflineTable::resync(&processor.snapshot(), BATCH_LIMIT);
    let there: ChangeSet = processor.apply([change(services, variant)]);
    let back: ChangeSet = processor.apply([change(services, Variant::Original)]);
    let mut is_there = false;
    bencher.bench_local(|| {
        is_there = !is_there;
        offline.update(if is_there { &there } else { &back })
    });
}

fn main() {
    divan::main();
}
