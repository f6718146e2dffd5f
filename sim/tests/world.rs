//! Whole nodes in simulated time. Long runs: `scripts/simulate`.

use std::time::Duration;

use contiv_sim::world::{Stats, World};

const HOUR: Duration = Duration::from_secs(3600);

fn run(seed: u64, duration: Duration) -> Stats {
    let mut world = World::new(seed);
    world
        .run(duration)
        .unwrap_or_else(|violation| panic!("{violation}"));
    world.stats()
}

#[test]
fn simulated_nodes_keep_every_invariant() {
    let mut stats = Stats::default();
    for seed in 1000..1008 {
        stats.add(run(seed, 3 * HOUR));
    }
    assert!(
        stats.inputs > 2000 && stats.faults > 500 && stats.restarts > 30,
        "{stats:?}"
    );
    assert!(stats.rests >= 8 && stats.flows > 1000, "{stats:?}");
}

#[test]
fn invalid_service_of_a_restored_store_may_keep_a_newer_frontend() {
    assert!(run(5005, HOUR).rests > 0);
}

#[test]
fn service_of_the_mirror_whose_deletion_was_held_keeps_its_frontend() {
    assert!(run(1, 6 * HOUR).rests > 0);
}

#[test]
fn same_seed_gives_the_same_run() {
    let trace = |seed| {
        let mut world = World::new(seed);
        world.run(HOUR).unwrap();
        (world.stats(), world.trace())
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7).1, trace(8).1);
}
