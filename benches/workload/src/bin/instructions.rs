//! Replaces one backend among a thousand services under callgrind: `benches/instructions` counts the instructions of the two
//! functions below and their callees. The counts do not depend on the machine's load, so a test can check them.

use std::hint::black_box;

use contiv_model::{ChangeSet, Event, Processor};
use contiv_renderer::nftables::offline::OfflineTable;
use contiv_workload::{UndecodableValue, Variant, Workload};

const WORKLOAD: Workload = Workload {
    services: 1000,
    backends: 4,
};
/// A limit that no batch of this workload reaches.
const BATCH_LIMIT: usize = 1 << 28;

/// Merges one change. Never inlined, since callgrind finds it by its name.
#[inline(never)]
fn combine_one_change(processor: &mut Processor, event: Event) -> ChangeSet {
    processor.apply([event])
}

/// Plan, compare and encode.
#[inline(never)]
fn encode_one_change(offline: &mut OfflineTable, changes: &ChangeSet) -> Vec<Vec<u8>> {
    offline.update(changes)
}

fn main() -> Result<(), UndecodableValue> {
    let mut processor = WORKLOAD.processor()?;
    let (mut offline, _) = OfflineTable::resync(&processor.snapshot(), BATCH_LIMIT);
    let event = WORKLOAD.change(WORKLOAD.services / 2, Variant::Replaced(1))?;
    let changes = combine_one_change(&mut processor, event);
    black_box(encode_one_change(&mut offline, &changes));
    Ok(())
}
