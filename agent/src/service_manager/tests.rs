use contiv_store::FeedEvent;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::test_support::{Harness, Mode, Scripted, service, snapshot};

/// A service manager that writes down what it is told, a word for each message.
fn recorded() -> (ServiceManager, UnboundedReceiver<String>) {
    let (sender, told) = mpsc::unbounded_channel();
    let manager = ServiceManager::new(move |states| {
        let word = |state: &NotifyState<'_>| match state {
            NotifyState::Ready => "READY".to_owned(),
            NotifyState::Reloading => "RELOADING".to_owned(),
            NotifyState::MonotonicUsec(_) => "TIME".to_owned(),
            NotifyState::Watchdog => "WATCHDOG".to_owned(),
            NotifyState::Status(status) => (*status).to_owned(),
            other => panic!("nobody says {other:?}"),
        };
        let _ = sender.send(states.iter().map(word).collect::<Vec<_>>().join(" "));
    });
    (manager, told)
}

/// What is told until `wanted` is, with it.
async fn told_until(told: &mut UnboundedReceiver<String>, wanted: &str) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let next = timeout(crate::test_support::LIMIT, told.recv()).await;
        let next = next.unwrap_or_else(|_| panic!("{wanted} is not told, but {all:?}")).unwrap();
        all.push(next.clone());
        if next == wanted {
            return all;
        }
    }
}

fn web() -> FeedEvent {
    snapshot(7, vec![service("web", 1)])
}

#[tokio::test]
async fn ready_is_told_once_and_only_when_every_renderer_has_its_first_snapshot() {
    let (spec, renderer) = Scripted::new("slow");
    renderer.set(Mode::Hang);
    let harness = Harness::start(vec![spec], vec![]);
    let (manager, mut told) = recorded();
    let (_reloads, reloaded) = mpsc::channel(1);
    tokio::spawn(manager.follow(harness.requests.clone(), reloaded));
    let before = told_until(&mut told, "reading the store dir:/test").await;
    harness.say(web()).await;
    let applying = told_until(&mut told, "applying the first snapshot: slow").await;
    assert!(!before.iter().chain(&applying).any(|word| word == "READY"), "{before:?} {applying:?}");
    renderer.set(Mode::Work);
    told_until(&mut told, "READY").await;
    told_until(&mut told, "WATCHDOG").await;
    let later = told_until(&mut told, "WATCHDOG").await;
    assert!(!later.iter().any(|word| word == "READY"), "{later:?}");
}

#[tokio::test]
async fn a_reload_is_over_when_every_renderer_has_everything_again() {
    let (spec, renderer) = Scripted::new("slow");
    let harness = Harness::start(vec![spec], vec![web()]);
    let (manager, mut told) = recorded();
    let (reloads, reloaded) = mpsc::channel(1);
    tokio::spawn(manager.follow(harness.requests.clone(), reloaded));
    told_until(&mut told, "READY").await;
    renderer.set(Mode::Fail);
    harness.requests.send(Request::Resync { cause: "SIGHUP" }).await.unwrap();
    reloads.send(()).await.unwrap();
    told_until(&mut told, "RELOADING TIME").await;
    let failing = told_until(&mut told, "WATCHDOG").await;
    assert!(!failing.iter().any(|word| word == "READY"), "{failing:?}");
    renderer.set(Mode::Work);
    told_until(&mut told, "READY").await;
}

#[tokio::test]
async fn a_loop_that_does_not_answer_does_not_feed_the_watchdog() {
    // Nobody takes requests out of this.
    let (requests, _taken) = mpsc::channel(1);
    let (manager, mut told) = recorded();
    let (_reloads, reloaded) = mpsc::channel(1);
    tokio::spawn(manager.follow(requests, reloaded));
    let all = told_until(&mut told, "the event loop does not answer").await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(timeout(3 * INTERVAL, told.recv()).await.is_err(), "nothing more is told");
}
