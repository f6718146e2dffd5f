//! From the renderer's input to the kernel, beside the floor: the same elements, already encoded and sent as they are.

use std::{thread, time::Duration};

use contiv_model::{ChangeSet, Processor};
use contiv_renderer::{
    Renderer,
    nftables::{Nftables, offline::OfflineTable},
};
use contiv_tests::lab::{Lab, LabError, Result};

use super::common::{SECTION, decode_error, repetitions};
use crate::{
    command::run,
    figures::{Figure, Limit},
    netlink::Kernel,
    statistics::{Samples, timed},
    workload::{Variant, Workload},
};

/// The number of measured changes of each kind; fewer with very many services, for which the kernel is slow.
const fn count(workload: Workload) -> u32 {
    if workload.services > 20_000 { 60 } else { 200 }
}
/// The limit of a change with another number of slots, at any number of services.
const MAX_CHANGE: Duration = Duration::from_micros(100);
/// The kernel frees deleted objects and grows hash tables asynchronously, which is not measured.
const KERNEL_SETTLE_TIME: Duration = Duration::from_millis(300);

/// The times of one of the two ways.
#[derive(Default)]
struct Times {
    cold: Vec<Duration>,
    replaced: Vec<Duration>,
    resized: Vec<Duration>,
}

/// Measures in the namespace of the node.
pub(super) fn measure(lab: &Lab, workload: Workload) -> Result<Vec<Figure>> {
    let mut processor = workload.processor().map_err(|error| decode_error(&error))?;
    let snapshot = processor.snapshot();
    let replaced = changes(workload, &mut processor, Variant::Replaced)?;
    let restored = restore(workload, &mut processor)?;
    let resized = changes(workload, &mut processor, |number| {
        if number % 2 == 0 {
            Variant::OneLess
        } else {
            Variant::Original
        }
    })?;

    let (mut encode, mut floor, mut ours) = (Times::default(), Times::default(), Times::default());
    let (mut restart, mut replace) = (Vec::new(), Vec::new());
    for _ in 0..repetitions(workload.services) {
        // A separate namespace for the floor, so that the two alternate and a change of the machine's speed affects both.
        let kernel = lab.node2.run(Kernel::open)?;
        let (duration, (mut offline, batches)) =
            timed(|| OfflineTable::resync(&snapshot, kernel.batch_limit));
        encode.cold.push(duration);
        floor.cold.push(kernel.commit(&batches)?);
        drop(batches);
        let mut renderer = Nftables::new();
        ours.cold.push(call(|| renderer.resync(&snapshot))?);
        thread::sleep(KERNEL_SETTLE_TIME);
        for (changes, encode, floor, ours) in [
            (
                &replaced,
                &mut encode.replaced,
                &mut floor.replaced,
                &mut ours.replaced,
            ),
            (
                &resized,
                &mut encode.resized,
                &mut floor.resized,
                &mut ours.resized,
            ),
        ] {
            for change in changes {
                let (duration, batches) = timed(|| offline.update(change));
                encode.push(duration);
                floor.push(kernel.commit(&batches)?);
                ours.push(call(|| renderer.update(change))?);
            }
            kernel.commit(&offline.update(&restored))?;
            call(|| renderer.update(&restored))?;
        }
        lab.node2.run(remove_table)?;

        drop(renderer);
        let after = processor.snapshot();
        restart.push(call(|| Nftables::new().resync(&after))?);
        // A table without one of its base chains is useless and is deleted in the transaction that creates the new one.
        run(&[
            "nft",
            "flush chain inet contiv nat-output; delete chain inet contiv nat-output",
        ])?;
        replace.push(call(|| Nftables::new().resync(&after))?);
        remove_table()?;
    }
    Ok(figures(workload, encode, floor, ours, restart, replace))
}

/// The kernel's time alone for a cold start.
pub(super) fn cold_floor(lab: &Lab, workload: Workload) -> Result<Duration> {
    let snapshot = workload
        .processor()
        .map_err(|error| decode_error(&error))?
        .snapshot();
    let mut times = Vec::new();
    for _ in 0..repetitions(workload.services) {
        let kernel = lab.node2.run(Kernel::open)?;
        let (_, batches) = OfflineTable::resync(&snapshot, kernel.batch_limit);
        times.push(kernel.commit(&batches)?);
        lab.node2.run(remove_table)?;
    }
    Ok(times.into_iter().collect::<Samples>().median())
}

fn figures(
    workload: Workload,
    encode: Times,
    floor: Times,
    ours: Times,
    restart: Vec<Duration>,
    replace: Vec<Duration>,
) -> Vec<Figure> {
    let median = |times: Vec<Duration>| times.into_iter().collect::<Samples>().median();
    let figure = |name: &str, measured: Duration| {
        Figure::new(
            SECTION,
            name,
            (workload.services, workload.backends),
            measured,
        )
    };
    let cold_floor = median(floor.cold);
    let mut cold = figure("kernel, cold", median(ours.cold)).beside(cold_floor);
    let mut slots = figure("kernel, one backend less or more", median(ours.resized))
        .beside(median(floor.resized));
    // With fewer services the differences are noise.
    if workload.services >= 10_000 {
        cold = cold.with_limit(Limit::TimesFloor(1.2));
        slots = slots.with_limit(Limit::AtMost(MAX_CHANGE.into()));
    }
    vec![
        figure("plan and encode everything", median(encode.cold)),
        figure(
            "plan and encode one replaced backend",
            median(encode.replaced),
        ),
        figure(
            "plan and encode one backend less or more",
            median(encode.resized),
        ),
        cold,
        figure("kernel, everything replaced", median(replace)).beside(cold_floor),
        figure("kernel, restart", median(restart)).beside(cold_floor),
        figure("kernel, one replaced backend", median(ours.replaced))
            .beside(median(floor.replaced)),
        slots,
    ]
}

/// Changes of services all over the table, one after the other.
fn changes(
    workload: Workload,
    processor: &mut Processor,
    variant: impl Fn(u32) -> Variant,
) -> Result<Vec<ChangeSet>> {
    let change = |number| {
        let event = workload
            .change(changed(workload, number), variant(number))
            .map_err(|error| decode_error(&error))?;
        Ok(processor.apply([event]))
    };
    (0..count(workload)).map(change).collect()
}

/// Reverts all changes.
fn restore(workload: Workload, processor: &mut Processor) -> Result<ChangeSet> {
    let original = |number| {
        workload
            .change(changed(workload, number), Variant::Original)
            .map_err(|error| decode_error(&error))
    };
    Ok(processor.apply(
        (0..count(workload))
            .map(original)
            .collect::<Result<Vec<_>>>()?,
    ))
}

/// The service of a change. Two in a row change the same one: one backend less, then one more.
const fn changed(workload: Workload, number: u32) -> usize {
    (number / 2) as usize * 7919 % workload.services
}

fn call<T, E: std::fmt::Display>(work: impl FnOnce() -> Result<T, E>) -> Result<Duration> {
    let (duration, result) = timed(work);
    result
        .map(|_| duration)
        .map_err(|error| LabError::Unexpected(error.to_string()))
}

fn remove_table() -> Result<()> {
    run(&["nft", "delete table inet contiv"])?;
    thread::sleep(KERNEL_SETTLE_TIME);
    Ok(())
}
