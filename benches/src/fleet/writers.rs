//! Writers: one change after the other as quickly as etcd acknowledges, or at a constant rate.

use std::{
    pin::pin,
    thread,
    time::{Duration, Instant},
};

use contiv_store::Store;
use contiv_tests::lab::{Lab, Result};
use futures::future::{Either, select};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    cluster::{Client, put, unexpected},
    workload::{Variant, Workload},
};

/// A change that etcd has acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcknowledgedPut {
    pub(super) revision: i64,
    pub(super) sent: Instant,
    pub(super) acknowledged: Instant,
}

/// Puts of one phase.
#[derive(Debug, Default)]
pub(super) struct Puts {
    pub(super) acknowledged: Vec<AcknowledgedPut>,
    /// Not acknowledged, or not within ten seconds.
    pub(super) failed: usize,
}

impl Puts {
    fn add(&mut self, put: Option<AcknowledgedPut>) {
        match put {
            Some(put) => self.acknowledged.push(put),
            None => self.failed += 1,
        }
    }
}

/// Each of so many writers puts again as soon as etcd has acknowledged, until the time is over or the writers together have put
/// the most.
pub(super) fn write_closed_loop(
    lab: &Lab,
    client: &Client,
    workload: Workload,
    writers: usize,
    duration: Duration,
    most: usize,
) -> Result<Puts> {
    let end = Instant::now() + duration;
    run(lab, client, async {
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let store = client.store.clone();
            tasks.spawn(async move {
                let mut puts = Puts::default();
                for number in 0..most / writers {
                    if Instant::now() >= end {
                        break;
                    }
                    puts.add(write(&*store, workload, writer, number).await);
                }
                puts
            });
        }
        let all = tasks.join_all().await;
        all.into_iter().fold(Puts::default(), |mut sum, puts| {
            sum.acknowledged.extend(puts.acknowledged);
            sum.failed += puts.failed;
            sum
        })
    })
}

/// So many changes a second, even if etcd is slow.
pub(super) fn write_at_rate(
    lab: &Lab,
    client: &Client,
    workload: Workload,
    rate: u32,
    duration: Duration,
) -> Result<Puts> {
    let puts = usize::try_from(u64::from(rate) * duration.as_secs()).map_err(unexpected)?;
    run(lab, client, async {
        let mut ticks = interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut tasks = JoinSet::new();
        for number in 0..puts {
            ticks.tick().await;
            let store = client.store.clone();
            tasks.spawn(async move {
                write(&*store, workload, number % workload.services, number).await
            });
        }
        let mut sum = Puts::default();
        for put in tasks.join_all().await {
            sum.add(put);
        }
        sum
    })
}

/// Puts now and then while something else is done.
pub(super) fn write_meanwhile<T>(
    lab: &Lab,
    client: &Client,
    workload: Workload,
    pause: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (end, ended) = oneshot::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            run(lab, client, async {
                let mut puts = Puts::default();
                let mut ticks = interval(pause);
                let mut ended = pin!(ended);
                while let Either::Right(_) = select(&mut ended, pin!(ticks.tick())).await {
                    let number = puts.acknowledged.len();
                    puts.add(write(&*client.store, workload, 0, number).await);
                }
                puts
            })
        });
        let result = work();
        // The writer waits for it.
        let _: Result<(), ()> = end.send(());
        writer
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
        result
    })
}

fn run(lab: &Lab, client: &Client, work: impl Future<Output = Puts> + Send) -> Result<Puts> {
    lab.node.run(|| Ok(client.runtime.block_on(work)))
}

async fn write(
    store: &dyn Store,
    workload: Workload,
    service: usize,
    number: usize,
) -> Option<AcknowledgedPut> {
    let marker = u32::try_from(number).unwrap_or_default();
    let change = put(workload.slice(service, 0, Variant::Replaced(marker)));
    let sent = Instant::now();
    let revision = store.commit(change).await.ok()?;
    Some(AcknowledgedPut {
        revision,
        sent,
        acknowledged: Instant::now(),
    })
}
