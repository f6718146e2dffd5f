//! `contiv controller` while the leader is killed, paused beyond its lease, and isolated, under continuous changes. At the end
//! the store is right; nothing was written without the lease, twice, or with an older state.

mod connector;
mod external_workloads;
mod reflector;
mod workload;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use contiv_tests::{
    cluster::EtcdClient,
    fleet::{Instance, history::History, interrupt},
    lab::{Lab, LabError, Result},
};

/// Starts three instances, which write below `prefixes`, and interrupts them while `churn` makes changes until it has to stop.
/// Returns the instances, which keep running, and the result of `churn`.
fn interrupt_while<'lab, T: Send>(
    lab: &'lab Lab,
    etcd: &EtcdClient<'_>,
    arguments: &[&str],
    prefixes: &[String],
    churn: impl FnOnce(&AtomicBool) -> Result<T> + Send,
) -> Result<(Vec<Instance<'lab>>, T)> {
    let homes = [&lab.node2, &lab.client, &lab.pod1];
    let mut fleet = homes
        .into_iter()
        .map(|home| Instance::start(lab, home, arguments))
        .collect::<Result<Vec<_>>>()?;
    let done = AtomicBool::new(false);
    let churned = thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&done));
        let interrupted = interrupt(etcd, &mut fleet, prefixes);
        done.store(true, Ordering::Relaxed);
        let churned = churning
            .join()
            .map_err(|_| LabError::Unexpected("churning panicked".to_owned()))?;
        interrupted.and(churned)
    })?;
    Ok((fleet, churned))
}

/// Checks by etcd's history that only the holder of the lease wrote below these prefixes, and that the `number` of each value
/// only grew. The check needs enough terms and writes to be meaningful. Returns a summary for people.
fn is_written_once(
    lab: &Lab,
    etcd: &EtcdClient<'_>,
    prefixes: &[String],
    number: impl Fn(&str) -> Option<i64>,
    (least_terms, most_too_few): (usize, usize),
) -> Result<String> {
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    let prefixes = prefixes.as_slice();
    let history = History::read(lab, etcd)?;
    let written = history.is_of_holders(prefixes)?;
    let puts = history.only_goes_forward(prefixes, number)?;
    assert!(
        written.terms >= least_terms && puts > most_too_few,
        "{written:?} proves nothing"
    );
    Ok(format!("{written:?}, {puts} of them puts"))
}
