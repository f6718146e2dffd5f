use contiv_controller::{
    BoxError, Context, Controller, Key, Lease, Manager, Outcome, ResourceType,
    lease::election::Election,
};
use contiv_node::Input;
use contiv_store::FeedEvent;
use contiv_store_testing::MemoryStore;
use serde_json::json;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    config::{ControllerName, controller::ControllerConfig},
    controllers::{Observer, Report, Reports},
    drivers::Request,
    test_support::{Harness, Mode, TestRenderer, service, snapshot},
};

/// A service manager that records its messages, a word for each.
fn recorded() -> (ServiceManager, UnboundedReceiver<String>) {
    let (sender, notified) = mpsc::unbounded_channel();
    let manager = ServiceManager::new(move |states| {
        let word = |state: &NotifyState<'_>| match state {
            NotifyState::Ready => "READY".to_owned(),
            NotifyState::Reloading => "RELOADING".to_owned(),
            NotifyState::MonotonicUsec(_) => "TIME".to_owned(),
            NotifyState::Watchdog => "WATCHDOG".to_owned(),
            NotifyState::Status(status) => (*status).to_owned(),
            other => panic!("nobody says {other:?}"),
        };
        sender
            .send(states.iter().map(word).collect::<Vec<_>>().join(" "))
            .is_ok()
    });
    (manager, notified)
}

/// The same, without space for the first message of these kinds.
fn recorded_without_room_for(
    refused: &'static [&'static str],
) -> (ServiceManager, UnboundedReceiver<String>) {
    let (inner, notified) = recorded();
    let refused = watch::Sender::new(refused.to_vec());
    let manager = ServiceManager::new(move |states| {
        let kind = states[0].to_string();
        let is_refused = refused.send_if_modified(|refused| {
            let position = refused.iter().position(|refused| kind.starts_with(refused));
            position.map(|position| refused.remove(position)).is_some()
        });
        !is_refused && (inner.send)(states)
    });
    (manager, notified)
}

#[tokio::test(start_paused = true)]
async fn message_without_room_is_sent_at_the_next_tick() {
    let (manager, mut notified) = recorded_without_room_for(&["READY", "STATUS", "RELOADING"]);
    let (reloads, reloaded) = mpsc::channel(1);
    let query = || {
        let status = ProcessStatus {
            alive: true,
            ready: true,
            at_rest: true,
            status: "at work".to_owned(),
        };
        std::future::ready(Some(status))
    };
    tokio::spawn(manager.run(query, std::future::pending(), reloaded));
    let started = messages_until(&mut notified, "READY").await;
    assert_eq!(started, ["WATCHDOG", "WATCHDOG", "at work", "READY"]);
    reloads.send(()).await.unwrap();
    let reload = messages_until(&mut notified, "READY").await;
    let reload: Vec<_> = reload.iter().filter(|word| *word != "WATCHDOG").collect();
    assert_eq!(reload, ["RELOADING TIME", "READY"]);
}

/// The messages up to `expected`, including it.
async fn messages_until(notified: &mut UnboundedReceiver<String>, expected: &str) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let next = timeout(crate::test_support::TEST_TIMEOUT, notified.recv()).await;
        let next = next
            .unwrap_or_else(|_| panic!("{expected} is not sent, but {all:?}"))
            .unwrap();
        all.push(next.clone());
        if next == expected {
            return all;
        }
    }
}

fn run_manager(
    manager: ServiceManager,
    requests: mpsc::Sender<Request>,
    reloads: mpsc::Receiver<()>,
) -> impl Future<Output = ()> {
    let readiness = readiness_of_node(requests.clone());
    manager.run(move || node_status(requests.clone()), readiness, reloads)
}

fn web() -> FeedEvent {
    snapshot(7, vec![service("web", 1)])
}

#[tokio::test]
async fn ready_is_notified_once_after_every_first_snapshot() {
    let (spec, renderer) = TestRenderer::new("slow");
    renderer.set(Mode::Hang);
    let harness = Harness::start(vec![spec], vec![]);
    let (manager, mut notified) = recorded();
    let (_reloads, reloaded) = mpsc::channel(1);
    tokio::spawn(run_manager(manager, harness.requests.clone(), reloaded));
    let before = messages_until(&mut notified, "reading the store dir:/test").await;
    harness.deliver(web()).await;
    let applying = messages_until(&mut notified, "applying the first snapshot: slow").await;
    assert!(
        !before.iter().chain(&applying).any(|word| word == "READY"),
        "{before:?} {applying:?}"
    );
    renderer.set(Mode::Work);
    messages_until(&mut notified, "READY").await;
    messages_until(&mut notified, "WATCHDOG").await;
    let later = messages_until(&mut notified, "WATCHDOG").await;
    assert!(!later.iter().any(|word| word == "READY"), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn ready_is_notified_at_once_and_not_at_the_next_tick() {
    let (requests, mut asked) = mpsc::channel(1);
    let (manager, mut notified) = recorded();
    let (_reloads, reloaded) = mpsc::channel(1);
    let is_ready = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let query = {
        let is_ready = Arc::clone(&is_ready);
        move || {
            let ready = is_ready.load(std::sync::atomic::Ordering::Relaxed);
            let status = ProcessStatus {
                alive: true,
                ready,
                at_rest: true,
                status: "at work".to_owned(),
            };
            std::future::ready(Some(status))
        }
    };
    tokio::spawn(manager.run(query, readiness_of_node(requests), reloaded));
    messages_until(&mut notified, "at work").await;
    let Some(Request::AwaitReady(reply)) = asked.recv().await else {
        panic!()
    };
    let start = Instant::now();
    is_ready.store(true, std::sync::atomic::Ordering::Relaxed);
    reply.send(()).unwrap();
    messages_until(&mut notified, "READY").await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn reload_is_over_when_every_renderer_has_everything_again() {
    let (spec, renderer) = TestRenderer::new("slow");
    let harness = Harness::start(vec![spec], vec![web()]);
    let (manager, mut notified) = recorded();
    let (reloads, reloaded) = mpsc::channel(1);
    tokio::spawn(run_manager(manager, harness.requests.clone(), reloaded));
    messages_until(&mut notified, "READY").await;
    renderer.set(Mode::Fail);
    harness
        .requests
        .send(Request::Input(Input::Resync { cause: "SIGHUP" }))
        .await
        .unwrap();
    reloads.send(()).await.unwrap();
    messages_until(&mut notified, "RELOADING TIME").await;
    let failing = messages_until(&mut notified, "WATCHDOG").await;
    assert!(!failing.iter().any(|word| word == "READY"), "{failing:?}");
    renderer.set(Mode::Work);
    messages_until(&mut notified, "READY").await;
}

#[tokio::test]
async fn loop_that_does_not_answer_does_not_feed_watchdog() {
    // The receiver never reads requests.
    let (requests, _taken) = mpsc::channel(1);
    let (manager, mut notified) = recorded();
    let (_reloads, reloaded) = mpsc::channel(1);
    tokio::spawn(run_manager(manager, requests, reloaded));
    let all = messages_until(&mut notified, "the node does not answer").await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(
        timeout(3 * STATUS_QUERY_INTERVAL, notified.recv())
            .await
            .is_err(),
        "no further message"
    );
}

/// An instance with one controller, which is synced when `has_synced` is true.
struct Instance {
    store: MemoryStore,
    notified: UnboundedReceiver<String>,
    manager: Option<Manager>,
    _election: Election,
    _report_guard: mpsc::Sender<()>,
}

impl Instance {
    fn start(cluster: &MemoryStore, identity: &str, has_synced: bool) -> Self {
        let client = cluster.another_client();
        let store = client.shared();
        let config = ControllerConfig {
            identity: identity.to_owned(),
            ..ControllerConfig::default()
        };
        let (election, lease) = Election::enter(Arc::clone(&store), config.election()).unwrap();
        let observer = Observer::start(Arc::clone(&store), lease);
        let names = ResourceType::new("name", "/names/", |entry| {
            String::from_utf8(entry.value.to_vec())
        });
        let controller =
            Controller::for_type(&names).with_reconciler(|_: Context<String>, _: Key| async {
                Ok::<_, BoxError>(Outcome::Done)
            });
        let mut manager = Manager::new(store, Lease::always_leader());
        manager.register(controller.build().unwrap()).unwrap();
        let mut reports = Reports::new();
        let report = move || Report {
            has_synced,
            details: json!({}),
        };
        reports.insert(ControllerName::Connector, Arc::new(report));
        let progress = manager.progress().with("the election", election.liveness());
        let query = move || controllers_status(progress.clone(), observer.clone(), reports.clone());
        let (service_manager, notified) = recorded();
        let (report_guard, reports_end) = mpsc::channel(1);
        tokio::spawn(service_manager.run(query, std::future::pending(), reports_end));
        Self {
            store: client,
            notified,
            manager: Some(manager),
            _election: election,
            _report_guard: report_guard,
        }
    }

    fn run(&mut self) {
        tokio::spawn(self.manager.take().unwrap().run(CancellationToken::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn controllers_are_ready_as_active_or_standby_and_report_it() {
    let store = MemoryStore::new();
    let mut active = Instance::start(&store, "one", true);
    active.run();
    let before = messages_until(&mut active.notified, "active").await;
    assert!(!before.iter().any(|word| word == "READY"), "{before:?}");
    messages_until(&mut active.notified, "READY").await;
    let mut standby = Instance::start(&store, "two", true);
    standby.run();
    messages_until(&mut standby.notified, "standing by; one is active").await;
    messages_until(&mut standby.notified, "READY").await;
    messages_until(&mut standby.notified, "WATCHDOG").await;
}

#[tokio::test(start_paused = true)]
async fn controller_not_synced_is_named_and_blocks_no_start() {
    let mut instance = Instance::start(&MemoryStore::new(), "one", false);
    instance.run();
    messages_until(
        &mut instance.notified,
        "active; not everything is read yet: connector",
    )
    .await;
    messages_until(&mut instance.notified, "READY").await;
}

#[tokio::test(start_paused = true)]
async fn controller_that_does_not_answer_does_not_feed_watchdog() {
    let store = MemoryStore::new();
    let mut instance = Instance::start(&store, "one", true);
    // Its manager does not run.
    let all = messages_until(&mut instance.notified, "controller name does not answer").await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(
        timeout(5 * STATUS_QUERY_INTERVAL, instance.notified.recv())
            .await
            .is_err(),
        "no further message"
    );
    instance.run();
    messages_until(&mut instance.notified, "WATCHDOG").await;
}

#[tokio::test(start_paused = true)]
async fn controllers_without_store_stay_alive_and_report_why() {
    let store = MemoryStore::new();
    let mut instance = Instance::start(&store, "one", true);
    instance.run();
    messages_until(&mut instance.notified, "READY").await;
    instance.store.cut();
    while !instance
        .notified
        .recv()
        .await
        .unwrap()
        .starts_with("the store cannot be watched: ")
    {}
    messages_until(&mut instance.notified, "WATCHDOG").await;
}
