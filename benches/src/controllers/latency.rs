//! The latency of single changes: from etcd's acknowledgement of a workload to its slices in etcd, and to the kernel's commit.

use std::time::{Duration, Instant};

use contiv_store::{Change, Store, WatchEvent, WatchStream};
use contiv_tests::lab::{LabError, Result};
use futures::StreamExt;
use tokio::time::timeout;

use super::cluster::{SERVICES_PER_WORKLOAD, WORKLOADS, address, put_workload, slices_prefix};
use crate::{cluster::Client, netlink::Commits, statistics::Samples};

/// The number of measured changes.
const CHANGES: usize = 400;
/// Longer than any change takes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The times until all slices of the workload were in etcd, and until all of them were in the kernel. Must be called in the
/// namespace of the node.
pub(super) fn measure(client: &Client) -> Result<(Samples, Samples)> {
    let mut commits = Commits::listen()?;
    let prefix = slices_prefix();
    let watch = client.runtime.block_on(async {
        let revision = client.store.list(&prefix).await?.revision;
        client.store.watch(&prefix, revision).await
    });
    let mut watch = watch.map_err(unexpected)?;
    let (mut in_etcd, mut in_kernel) = (Vec::new(), Vec::new());
    for number in 0..CHANGES {
        let workload = number * 7919 % WORKLOADS;
        let new = address(workload, 1 + number / WORKLOADS);
        let change = vec![put_workload(workload, new)?];
        client
            .runtime
            .block_on(client.store.commit(change))
            .map_err(unexpected)?;
        let acknowledged = Instant::now();
        let text = format!("\"{new}\"");
        client
            .runtime
            .block_on(wait_for_slices(&mut watch, text.as_bytes()))?;
        in_etcd.push(acknowledged.elapsed());
        let mut missing = SERVICES_PER_WORKLOAD;
        while missing > 0 {
            let commit = commits
                .next(CHANGE_TIMEOUT)?
                .ok_or_else(|| LabError::TooLate {
                    event: format!("change {number} is in the kernel"),
                    limit: CHANGE_TIMEOUT,
                })?;
            missing = missing.saturating_sub(
                commit
                    .backends
                    .iter()
                    .filter(|backend| **backend == new)
                    .count(),
            );
            if missing == 0 {
                in_kernel.push(commit.at.saturating_duration_since(acknowledged));
            }
        }
    }
    Ok((
        in_etcd.into_iter().collect(),
        in_kernel.into_iter().collect(),
    ))
}

/// Waits until all slices of a workload have its new address.
async fn wait_for_slices(watch: &mut WatchStream, address: &[u8]) -> Result<()> {
    let mut missing = SERVICES_PER_WORKLOAD;
    while missing > 0 {
        let next = timeout(CHANGE_TIMEOUT, watch.next()).await;
        let late = || LabError::TooLate {
            event: "the slices are in etcd".to_owned(),
            limit: CHANGE_TIMEOUT,
        };
        let event = next
            .map_err(|_| late())?
            .ok_or_else(late)?
            .map_err(unexpected)?;
        let WatchEvent::Changed(batch) = event else {
            continue;
        };
        let has_address = |change: &&Change| match change {
            Change::Put(entry) => entry
                .value
                .windows(address.len())
                .any(|window| window == address),
            Change::Delete { .. } => false,
        };
        missing = missing.saturating_sub(batch.changes.iter().filter(has_address).count());
    }
    Ok(())
}

fn unexpected(error: impl std::fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}
