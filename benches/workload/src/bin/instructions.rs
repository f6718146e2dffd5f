//! One replaced backend among a thousand services, for callgrind: `scripts/instructions` counts what the two
//! functions below and all that they call execute. Counts do not depend on the machine's load, so a test can hold them.

use std::hint::black_box;

use contiv_model::{ChangeSet, Event, Processor};
use contiv_renderer::nftables::offline::OfflineTable;
use contiv_workload::{UndecodableValue, Variant, Workload};

const WORKLOAD: Workload = Workload { services: 1000, backends: 4 };
/// More than any batch of this workload has.
const BATCH_LIMIT: usize = 1 << 28;

/// Combine. Never inlined, since callgrind finds it by its name.
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
