//! Writes 200 changes a second to etcd, also while members of it are down.

use std::{
    fmt,
    ops::AddAssign,
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    cluster::{EtcdClient, Service},
    lab::{Family, Host, Lab},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::run_state::RunState;

/// The number of writers. Each makes this share of all changes, so that one that waits for a dead member does not delay the
/// rest.
pub(super) const WRITERS: u64 = 16;
/// The time between two changes of one writer; all together make 200 changes a second.
const WRITER_INTERVAL: Duration = Duration::from_millis(1000 / 200 * WRITERS);
/// The longest delay that a writer makes up for by writing faster.
const MAX_CATCH_UP: Duration = Duration::from_secs(5);

/// The services that change.
pub(super) const NAMES: [&str; 12] = [
    "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11",
];

/// The results of the changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) written: usize,
    pub(super) refused: usize,
}

impl AddAssign for Changes {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.refused += other.refused;
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} changes, and {} that etcd refused",
            self.written, self.refused
        )
    }
}

/// A changing service in its initial state, without backends.
pub(super) fn service(number: usize) -> Service {
    Service::new(
        NAMES[number],
        100 + u8::try_from(number).unwrap_or_default(),
        &[],
    )
}

/// Some pods, all, or none.
fn random_backends(lab: &Lab, random: &mut StdRng) -> Vec<&'static Host> {
    lab.pods()
        .map(|pod| pod.host)
        .into_iter()
        .filter(|_| random.random())
        .collect()
}

/// Makes one change after the other. Changes that etcd refuses because of a fault are not repeated: the expected state is
/// the content of etcd at the end.
pub(super) fn write(
    scene: &RunState<'_>,
    etcd: &EtcdClient<'_>,
    writer: u64,
    seed: u64,
) -> Changes {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(WRITERS) + writer);
    let mut changes = Changes::default();
    let mut member = 0;
    let mut due = Instant::now();
    while !scene.is_over() {
        let store_writes = scene.store_writes.read();
        let service = service(random.random_range(0..NAMES.len()));
        let service = Service {
            backends: random_backends(scene.lab, &mut random),
            ..service
        };
        let written = match random.random_range(0..20) {
            0 => etcd.delete_service_at_once(member, &service),
            1 | 2 => etcd.put_service_at_once(member, &service),
            3..12 => etcd.put_slice_at_once(member, &service, Family::V4),
            _ => etcd.put_slice_at_once(member, &service, Family::V6),
        };
        if written.is_ok() {
            changes.written += 1;
        } else {
            changes.refused += 1;
            member = random.random_range(0..etcd.count());
        }
        drop(store_writes);
        due = (due + WRITER_INTERVAL).max(Instant::now().checked_sub(MAX_CATCH_UP).unwrap_or(due));
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    changes
}
