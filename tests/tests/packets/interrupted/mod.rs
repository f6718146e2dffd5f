//! `contiv controller` while the active instance is killed, frozen beyond its lease, and cut off, and things change all the
//! time. In the end the store is right; nobody wrote without the lease, and nothing was written twice or taken back.

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

/// Starts three instances, and interrupts them while `churn` changes things until it is told that it is done. Returns them,
/// for they go on, and what that says of the end.
fn interrupt_while<'lab, T: Send>(
    lab: &'lab Lab,
    etcd: &EtcdClient<'_>,
    arguments: &[&str],
    churn: impl FnOnce(&AtomicBool) -> Result<T> + Send,
) -> Result<(Vec<Instance<'lab>>, T)> {
    let homes = [&lab.node2, &lab.client, &lab.pod1];
    let mut fleet =
        homes.into_iter().map(|home| Instance::start(lab, home, arguments)).collect::<Result<Vec<_>>>()?;
    let done = AtomicBool::new(false);
    let churned = thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&done));
        let interrupted = interrupt(etcd, &mut fleet);
        done.store(true, Ordering::Relaxed);
        let churned = churning.join().map_err(|_| LabError::Unexpected("churning panicked".to_owned()))?;
        interrupted.and(churned)
    })?;
    Ok((fleet, churned))
}

/// Checks by etcd's history that only who held the lease wrote below these prefixes, and that the `number` of each value only
/// grew. It proves something from so many terms and writes on. Returns how many there were, for people.
fn is_written_once(
    lab: &Lab,
    etcd: &EtcdClient<'_>,
    prefixes: &[&str],
    number: impl Fn(&str) -> Option<i64>,
    (least_terms, most_too_few): (usize, usize),
) -> Result<String> {
    let history = History::read(lab, etcd)?;
    let written = history.is_of_holders(prefixes)?;
    let puts = history.only_goes_forward(prefixes, number)?;
    assert!(written.terms >= least_terms && puts > most_too_few, "{written:?} proves nothing");
    Ok(format!("{written:?}, {puts} of them puts"))
}
