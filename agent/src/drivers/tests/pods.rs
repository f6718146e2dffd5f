//! Pods that are attached and detached.

use std::{collections::BTreeMap, time::Duration};

use contiv_model::{InterfaceName, PodId};
use contiv_node::{Answer, Core, Input, PodNotAdded, Record, message::MAX_PODS};
use tokio::sync::oneshot;

use crate::{
    drivers::Request,
    test_support::{Call, Harness, Mode, TestRenderer, service, slice, snapshot},
};

fn pod() -> PodId {
    PodId::new("default", "pod")
}

async fn add(harness: &Harness, interface: &str, limit: Duration) -> oneshot::Receiver<Answer> {
    let interface = InterfaceName::new(interface);
    let add = move |request| Input::AddPod {
        pod: pod(),
        interface,
        wait: Some((limit, request)),
    };
    let (request, answer) = Request::answered(add);
    harness.requests.send(request).await.unwrap();
    answer
}

async fn add_without_waiting(harness: &Harness, pod: PodId) {
    let addition = Input::AddPod {
        pod,
        interface: InterfaceName::new("veth1"),
        wait: None,
    };
    harness
        .requests
        .send(Request::Input(addition))
        .await
        .unwrap();
}

async fn attached(harness: &Harness) -> BTreeMap<PodId, InterfaceName> {
    harness.ask(|core| core.pods().clone()).await
}

fn kinds(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.kind).collect()
}

async fn started() -> (Harness, TestRenderer) {
    let (spec, mut renderer) = TestRenderer::new("test");
    let events = vec![snapshot(7, vec![slice("web", 1), service("web", 1)])];
    let harness = Harness::start(vec![spec], events);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    (harness, renderer)
}

const ADD_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn pod_caller_is_answered_after_every_renderer_applied() {
    let (harness, mut renderer) = started().await;
    renderer.set(Mode::Hang);
    let mut answer = add(&harness, "veth1", ADD_TIMEOUT).await;
    assert_eq!(renderer.call().await, Call::Update(vec![]));
    harness
        .renderer("dry-run", |view| view.state == "idle")
        .await;
    assert!(answer.try_recv().is_err(), "one has not applied it yet");
    renderer.set(Mode::Work);
    assert_eq!(answer.await.unwrap(), Ok(true));
    assert_eq!(
        attached(&harness).await,
        BTreeMap::from([(pod(), InterfaceName::new("veth1"))])
    );
    // The same again has no effect.
    assert_eq!(
        add(&harness, "veth1", ADD_TIMEOUT).await.await.unwrap(),
        Ok(true)
    );
}

#[tokio::test]
async fn addition_that_a_renderer_fails_on_is_reverted_everywhere() {
    let (harness, renderer) = started().await;
    renderer.set(Mode::Fail);
    let failed = add(&harness, "veth1", ADD_TIMEOUT)
        .await
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(&failed, PodNotAdded::Failed { renderer, .. } if &**renderer == "test"),
        "{failed}"
    );
    assert!(
        failed.to_string().contains("failure injected by the test"),
        "{failed}"
    );
    assert_eq!(attached(&harness).await, BTreeMap::new());
    renderer.set(Mode::Work);
    harness
        .renderer("test", |view| view.state == "idle" && view.failures == 0)
        .await;
    let records = harness.history(|_| true).await;
    assert_eq!(
        kinds(&records)[..3],
        ["snapshot", "pod-added", "pod-reverted"]
    );
}

#[tokio::test]
async fn failed_attachment_restores_the_previous_interface() {
    let (harness, renderer) = started().await;
    assert_eq!(
        add(&harness, "veth1", ADD_TIMEOUT).await.await.unwrap(),
        Ok(true)
    );
    renderer.set(Mode::Fail);
    assert!(
        add(&harness, "veth2", ADD_TIMEOUT)
            .await
            .await
            .unwrap()
            .is_err()
    );
    assert_eq!(
        attached(&harness).await,
        BTreeMap::from([(pod(), InterfaceName::new("veth1"))])
    );
}

#[tokio::test]
async fn addition_that_takes_too_long_is_reverted() {
    let (harness, mut renderer) = started().await;
    renderer.set(Mode::Hang);
    // Long enough for the other renderer, on a busy machine too.
    let answer = add(&harness, "veth1", Duration::from_secs(2)).await;
    renderer.call().await;
    assert_eq!(
        answer.await.unwrap(),
        Err(PodNotAdded::Timeout {
            renderer: "test".into()
        })
    );
    assert_eq!(attached(&harness).await, BTreeMap::new());
    renderer.set(Mode::Work);
}

#[tokio::test]
async fn addition_repeated_while_it_waits_gets_the_same_answer() {
    let (harness, mut renderer) = started().await;
    renderer.set(Mode::Hang);
    let first = add(&harness, "veth1", Duration::from_secs(2)).await;
    renderer.call().await;
    let mut again = add(&harness, "veth1", ADD_TIMEOUT).await;
    harness.history(|records| records.len() == 3).await;
    assert!(again.try_recv().is_err(), "one has not applied it yet");
    assert!(matches!(
        first.await.unwrap(),
        Err(PodNotAdded::Timeout { .. })
    ));
    assert_eq!(
        attached(&harness).await.len(),
        1,
        "the second caller still waits for it"
    );
    renderer.set(Mode::Work);
    assert_eq!(again.await.unwrap(), Ok(true));
    assert_eq!(
        attached(&harness).await,
        BTreeMap::from([(pod(), InterfaceName::new("veth1"))])
    );
}

#[tokio::test]
async fn additions_of_one_pod_that_fail_together_are_reverted() {
    let (harness, mut renderer) = started().await;
    assert_eq!(
        add(&harness, "veth0", ADD_TIMEOUT).await.await.unwrap(),
        Ok(true)
    );
    renderer.call().await;
    renderer.set(Mode::Hang);
    let first = add(&harness, "veth1", Duration::from_secs(2)).await;
    renderer.call().await;
    let second = add(&harness, "veth2", ADD_TIMEOUT).await;
    assert!(first.await.unwrap().is_err());
    assert_eq!(
        attached(&harness).await,
        BTreeMap::from([(pod(), InterfaceName::new("veth2"))])
    );
    renderer.set(Mode::Fail);
    assert!(second.await.unwrap().is_err());
    let before = BTreeMap::from([(pod(), InterfaceName::new("veth0"))]);
    assert_eq!(
        attached(&harness).await,
        before,
        "the last that a caller was promised"
    );
    renderer.set(Mode::Work);
}

#[tokio::test]
async fn addition_before_first_list_cannot_wait_but_is_kept() {
    let harness = Harness::start(vec![], vec![]);
    assert_eq!(
        add(&harness, "veth1", ADD_TIMEOUT).await.await.unwrap(),
        Err(PodNotAdded::NotReady)
    );
    assert_eq!(attached(&harness).await, BTreeMap::new());
    add_without_waiting(&harness, pod()).await;
    assert_eq!(attached(&harness).await.len(), 1);
}

#[tokio::test]
async fn number_of_pods_is_limited() {
    let harness = Harness::start(vec![], vec![snapshot(7, vec![])]);
    harness.renderer("dry-run", |view| view.ready).await;
    for number in 0..MAX_PODS {
        add_without_waiting(&harness, PodId::new("default", format!("pod{number}"))).await;
    }
    assert_eq!(
        add(&harness, "veth1", ADD_TIMEOUT).await.await.unwrap(),
        Err(PodNotAdded::TooManyPods)
    );
    assert_eq!(attached(&harness).await.len(), MAX_PODS);
}

#[tokio::test]
async fn attached_pods_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::start_with_mirror(vec![], folder.path());
    add_without_waiting(&harness, pod()).await;
    let expected = BTreeMap::from([(pod(), InterfaceName::new("veth1"))]);
    assert_eq!(attached(&harness).await, expected);
    harness.requests.send(Request::Shutdown).await.unwrap();
    harness.task.await.unwrap().unwrap();
    let harness = Harness::start_with_mirror(vec![], folder.path());
    assert_eq!(attached(&harness).await, expected);
    harness.deliver(snapshot(7, vec![])).await;
    harness.renderer("dry-run", |view| view.ready).await;
    let rendered = harness.ask(Core::snapshot).await;
    assert_eq!(
        rendered.unwrap().frontend_interfaces,
        [InterfaceName::new("veth1")].into()
    );
}
