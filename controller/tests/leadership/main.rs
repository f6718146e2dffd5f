//! Three processes compete for one lease in a real etcd of three members. Whatever happens to the holder, at most one process
//! writes at any time, another takes over, and no event is lost.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![expect(
    clippy::print_stdout,
    reason = "processes talk to the test, and tests show what they measured"
)]

mod arena;
mod contender;
mod history;

use std::time::Duration;

use arena::Arena;
use nix::sys::signal::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn killed_holder_is_replaced() {
    let mut arena = Arena::start().await;
    for _ in 0..2 {
        let holder = arena.holder().await;
        arena.work(20).await;
        arena.contenders[holder.index].signal(Signal::SIGKILL);
        arena.work(20).await;
        let next = arena.holder_after(&holder).await;
        assert_ne!(next.index, holder.index, "the dead do not come back");
        arena.work(20).await;
    }
    let history = arena.end().await;
    assert!(history.terms.len() >= 3, "{history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_paused_beyond_its_lease_writes_nothing_on_wake_up() {
    let mut arena = Arena::start().await;
    for _ in 0..2 {
        let holder = arena.holder().await;
        arena.work(20).await;
        arena.contenders[holder.index].signal(Signal::SIGSTOP);
        arena.work(20).await;
        arena.holder_after(&holder).await;
        arena.work(20).await;
        arena.contenders[holder.index].signal(Signal::SIGCONT);
        // It continues where it stopped, and the store refuses its write.
        arena.contenders[holder.index]
            .wait_until_refused(holder.term)
            .await;
        arena.work(20).await;
    }
    let history = arena.end().await;
    assert!(history.terms.len() >= 3, "{history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_that_is_partitioned_writes_nothing_when_it_is_back() {
    let mut arena = Arena::start().await;
    for _ in 0..2 {
        let holder = arena.holder().await;
        arena.work(20).await;
        arena.contenders[holder.index].cut().await;
        arena.work(20).await;
        arena.holder_after(&holder).await;
        arena.work(20).await;
        arena.contenders[holder.index].reconnect().await;
        arena.contenders[holder.index]
            .wait_until_refused(holder.term)
            .await;
        arena.work(20).await;
    }
    let history = arena.end().await;
    assert!(history.terms.len() >= 3, "{history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_of_etcd_that_dies_and_comes_back_costs_no_event() {
    let mut arena = Arena::start().await;
    for index in 0..3 {
        arena.work(20).await;
        arena.etcd[index].kill().await.unwrap();
        arena.work(20).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        arena.etcd[index].start_again().await.unwrap();
        arena.holder().await;
    }
    arena.end().await;
}

/// Not a test: the process that the tests start.
#[test]
#[ignore = "it is the process that the tests above start"]
fn contender() {
    contender::run();
}
