//! Elections on a paused clock with a store in memory.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::*;
use crate::test_support::{delete, ms};
use contiv_store_testing::{Faults, MemoryStore};

const KEY: &str = "/election";

struct Process {
    wire: MemoryStore,
    election: Election,
    lease: Lease,
}

fn enter(store: &MemoryStore, identity: &str) -> Process {
    let wire = store.another_client();
    let (election, lease) =
        Election::enter(wire.shared(), ElectionConfig::new(KEY, identity)).unwrap();
    Process {
        wire,
        election,
        lease,
    }
}

fn three(store: &MemoryStore) -> Vec<Process> {
    ["a", "b", "c"]
        .map(|identity| enter(store, identity))
        .into()
}

/// The index of the leader. There must never be two.
fn holder(processes: &[Process]) -> Option<usize> {
    let holders: Vec<usize> = (0..processes.len())
        .filter(|index| processes[*index].lease.is_held())
        .collect();
    assert!(holders.len() < 2, "{holders:?} hold it");
    holders.first().copied()
}

/// How long it takes until a process holds the lease.
async fn until_held(processes: &[Process], limit: Duration) -> Duration {
    let start = Instant::now();
    while holder(processes).is_none() {
        assert!(start.elapsed() <= limit, "nobody holds it after {limit:?}");
        sleep(ms(10)).await;
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_of_several_wins_and_keeps_it() {
    let processes = three(&MemoryStore::new());
    until_held(&processes, Duration::from_secs(1)).await;
    let first = holder(&processes);
    for _ in 0..10_000 {
        sleep(ms(100)).await;
        assert_eq!(holder(&processes), first);
    }
}

#[tokio::test(start_paused = true)]
async fn resigning_leader_hands_over_at_once() {
    let store = MemoryStore::new();
    let mut processes = three(&store);
    for _ in 0..3 {
        assert!(until_held(&processes, Duration::from_secs(1)).await < Duration::from_secs(1));
        let first = processes.remove(holder(&processes).unwrap());
        first.election.resign().await;
        assert!(!first.lease.is_held());
    }
    assert_eq!(store.list(KEY).await.unwrap().entries, []);
}

#[tokio::test(start_paused = true)]
async fn dropped_leader_hands_over_at_once() {
    let store = MemoryStore::new();
    let mut processes = three(&store);
    until_held(&processes, Duration::from_secs(1)).await;
    drop(processes.remove(holder(&processes).unwrap()));
    assert!(until_held(&processes, Duration::from_secs(1)).await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn partitioned_leader_steps_down_before_another_wins() {
    let processes = three(&MemoryStore::new());
    until_held(&processes, Duration::from_secs(1)).await;
    let first = holder(&processes).unwrap();
    processes[first].wire.cut();
    let start = Instant::now();
    while processes[first].lease.is_held() {
        sleep(ms(10)).await;
        assert_eq!(
            holder(&processes),
            processes[first].lease.is_held().then_some(first)
        );
    }
    let stepped_down = start.elapsed();
    assert!(
        (8..=10).contains(&stepped_down.as_secs()),
        "{stepped_down:?}"
    );
    let taken_over = stepped_down + until_held(&processes, Duration::from_secs(30)).await;
    assert!((28..=30).contains(&taken_over.as_secs()), "{taken_over:?}");
    let second = holder(&processes);
    processes[first].wire.reconnect();
    sleep(Duration::from_secs(100)).await;
    assert_eq!(holder(&processes), second, "who comes back waits");
}

#[tokio::test(start_paused = true)]
async fn briefly_partitioned_leader_keeps_the_lease() {
    let processes = three(&MemoryStore::new());
    until_held(&processes, Duration::from_secs(1)).await;
    let first = holder(&processes).unwrap();
    for _ in 0..10 {
        processes[first].wire.cut();
        sleep(Duration::from_secs(5)).await;
        processes[first].wire.reconnect();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(holder(&processes), Some(first));
    }
}

#[tokio::test(start_paused = true)]
async fn leader_whose_key_is_deleted_by_hand_steps_down() {
    let store = MemoryStore::new();
    let processes = three(&store);
    until_held(&processes, Duration::from_secs(1)).await;
    let first = holder(&processes).unwrap();
    let fence = processes[first].lease.fence().unwrap();
    delete(&store, KEY).await;
    sleep(ms(10)).await;
    until_held(&processes, Duration::from_secs(5)).await;
    assert_ne!(
        processes[holder(&processes).unwrap()]
            .lease
            .fence()
            .unwrap(),
        fence
    );
}

#[tokio::test(start_paused = true)]
async fn fence_is_revision_at_which_key_was_created() {
    let store = MemoryStore::new();
    let processes = vec![enter(&store, "a")];
    until_held(&processes, Duration::from_secs(1)).await;
    let [entry] = store.list(KEY).await.unwrap().entries.try_into().unwrap();
    assert!(entry.value.starts_with(b"a "), "{entry:?}");
    let fence = Fence {
        key: KEY.to_owned(),
        create_revision: entry.create_revision,
    };
    assert_eq!(processes[0].lease.fence(), Some(fence));
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_lost_loses_no_election() {
    // The answer of every transaction is lost, but the key is observed all the same.
    let store = MemoryStore::with_faults(Faults {
        lost_answer: 1.0,
        ..Faults::NONE
    });
    let processes = vec![enter(&store, "a")];
    until_held(&processes, Duration::from_secs(5)).await;
}

/// Despite all faults there are never two leaders, and soon there is one again.
#[tokio::test(start_paused = true)]
async fn two_leaders_never_exist_despite_faults() {
    let mut winners = BTreeSet::new();
    for seed in 0..4 {
        let store = MemoryStore::with_faults(Faults::seeded(seed));
        let mut random = StdRng::seed_from_u64(seed);
        let processes = three(&store);
        for _ in 0..300 {
            let process = &processes[random.random_range(0..3)];
            match random.random_range(0..6) {
                0 => process.wire.cut(),
                1 => process.wire.break_watches(),
                2 => store.compact(),
                _ => process.wire.reconnect(),
            }
            for _ in 0..random.random_range(0..400) {
                sleep(ms(25)).await;
                winners.extend(holder(&processes).map(|index| (seed, index)));
            }
        }
        for process in &processes {
            process.wire.reconnect();
        }
        until_held(&processes, Duration::from_secs(45)).await;
    }
    assert!(winners.len() > 8, "it went round: {winners:?}");
}

#[tokio::test]
async fn times_that_do_not_fit_are_refused() {
    let config = ElectionConfig::new(KEY, "a");
    for config in [
        ElectionConfig {
            step_down_after: config.ttl,
            ..config.clone()
        },
        ElectionConfig {
            keep_alive_every: config.step_down_after,
            ..config.clone()
        },
        ElectionConfig {
            keep_alive_every: Duration::ZERO,
            ..config.clone()
        },
        ElectionConfig {
            ttl: ms(900),
            step_down_after: ms(500),
            keep_alive_every: ms(100),
            ..config
        },
    ] {
        let error = Election::enter(MemoryStore::new().shared(), config)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("keep_alive_every < step_down_after < ttl"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn store_without_leases_is_refused_with_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = contiv_store::dir::DirStore::open(folder.path())
        .await
        .unwrap();
    let error = Election::enter(Arc::new(store), ElectionConfig::new(KEY, "a")).unwrap_err();
    assert_eq!(error, ElectionError::NoLeases);
}
