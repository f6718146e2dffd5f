//! The scenarios of consul-k8s' sink and of its coalescing, and the mistakes of flomesh's.

use std::{
    io::{self, Write},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use contiv_connector::Aggregator;
use contiv_controller::Lease;
use contiv_proto::{
    Kind,
    message::{endpoints::Endpoints, namespace::Namespace, service::Service},
};
use contiv_store_testing::{Faults, MemoryStore};
use tokio::time::{Instant, sleep};

use crate::harness::{Running, ScriptedAction, Setup, catalog, namespace, settle};

const WEB: (&str, &[(&str, u16)]) = ("web", &[("10.0.0.1", 80), ("10.0.0.2", 80)]);
const BOTH: [&str; 2] = ["10.0.0.1 80", "10.0.0.2 80"];

/// A connector that has stored `web`.
async fn with_web() -> Running {
    let running = Running::scripted(Setup::default());
    running.act(catalog([WEB]));
    settle().await;
    running.wait_until_backends("web", &BOTH).await;
    running
}

fn foreign(name: &str) -> Service {
    Service {
        name: name.to_owned(),
        namespace: "cloud".to_owned(),
        ..Service::default()
    }
}

#[tokio::test(start_paused = true)]
async fn service_of_registry_is_created_with_its_endpoints() {
    let running = with_web().await;
    let web = running.service("web").await;
    assert!(web.cluster_ip.starts_with("10.97."), "{web:?}");
    assert_eq!(
        (web.namespace.as_str(), web.port[0].name.as_str()),
        ("cloud", "http80")
    );
    assert_eq!(running.metric("connector_endpoints"), "2");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn name_in_upper_case_is_lowered() {
    let running = Running::scripted(Setup::default());
    running.act(catalog([("Web_One", WEB.1)]));
    settle().await;
    running.wait_until_backends("web-one", &BOTH).await;
    assert_eq!(running.all::<Service>().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn foreign_service_of_same_name_is_left_alone_and_reported() {
    let running = Running::scripted(Setup::default());
    running.put(foreign("web")).await;
    running.act(catalog([WEB, ("db", &[("10.0.0.3", 5432)])]));
    settle().await;
    running.wait_until_backends("db", &["10.0.0.3 5432"]).await;
    assert_eq!(running.service("web").await, foreign("web"));
    assert_eq!(running.backends("web").await, None);
    assert_eq!(running.metric("connector_problems"), "1");
    // When it is deleted, the name is free.
    running.delete(Kind::Service, "web").await;
    settle().await;
    running.wait_until_backends("web", &BOTH).await;
    assert_eq!(running.metric("connector_problems"), "0");
}

#[tokio::test(start_paused = true)]
async fn foreign_change_of_an_object_is_undone() {
    let running = with_web().await;
    let before = running.service("web").await;
    let mut changed = before.clone();
    changed.port[0].port = 81;
    changed.annotations.clear();
    running.put(changed).await;
    running
        .put(Endpoints {
            endpoint_subsets: Vec::new(),
            ..running.all().await.remove("web").unwrap()
        })
        .await;
    settle().await;
    assert_eq!(running.service("web").await, before);
    running.wait_until_backends("web", &BOTH).await;
}

#[tokio::test(start_paused = true)]
async fn change_in_registry_changes_service() {
    let running = with_web().await;
    let before = running.service("web").await;
    running.act(catalog([("web", &[("10.0.0.2", 81)])]));
    settle().await;
    running.wait_until_backends("web", &["10.0.0.2 81"]).await;
    let after = running.service("web").await;
    let ports: Vec<i32> = after.port.iter().map(|port| port.port).collect();
    assert_eq!(
        (ports, &after.cluster_ips),
        (vec![81], &before.cluster_ips),
        "a port that is gone goes"
    );
}

#[tokio::test(start_paused = true)]
async fn foreign_deletion_of_an_object_is_undone() {
    let running = with_web().await;
    let before = running.service("web").await;
    for kind in [Kind::Service, Kind::Endpoints] {
        running.delete(kind, "web").await;
        settle().await;
        assert_eq!(
            running.service("web").await,
            before,
            "with the same address"
        );
        running.wait_until_backends("web", &BOTH).await;
    }
}

#[tokio::test(start_paused = true)]
async fn registry_reporting_nothing_has_its_services_deleted() {
    let running = with_web().await;
    running.put(foreign("other")).await;
    running.act(catalog([]));
    settle().await;
    let left: Vec<String> = running.all::<Service>().await.into_keys().collect();
    assert_eq!(left, ["other"]);
    assert!(running.all::<Endpoints>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_changes_in_second_are_one_transaction() {
    let running = with_web().await;
    let before = running.store.revision();
    for port in 100..150 {
        running.act(catalog([("web", &[("10.0.0.1", port)])]));
        sleep(Duration::from_millis(10)).await;
    }
    settle().await;
    running.wait_until_backends("web", &["10.0.0.1 149"]).await;
    assert_eq!(running.store.revision(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn constant_registry_changes_are_written_after_five_seconds() {
    let running = with_web().await;
    let (start, before) = (Instant::now(), running.store.revision());
    let mut port = 100;
    while running.store.revision() == before {
        port += 1;
        running.act(catalog([("web", &[("10.0.0.1", port)])]));
        sleep(Duration::from_millis(500)).await;
        assert!(
            start.elapsed() < Duration::from_secs(7),
            "nothing is written as long as there are changes"
        );
    }
    assert!(
        start.elapsed() >= Duration::from_secs(5),
        "it did not wait: {:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_namespace_is_there() {
    let running = Running::scripted(Setup {
        wait_for_namespace: true,
        ..Setup::default()
    });
    running.act(catalog([WEB]));
    settle().await;
    assert_eq!(running.store.revision(), MemoryStore::new().revision());
    running.put(namespace()).await;
    settle().await;
    running.wait_until_backends("web", &BOTH).await;
}

/// The lines of the log that have this.
fn lines_with(lines: &Receiver<Vec<u8>>, part: &str) -> usize {
    let text: Vec<u8> = lines.try_iter().flatten().collect();
    String::from_utf8_lossy(&text)
        .lines()
        .filter(|line| line.contains(part))
        .count()
}

struct Lines(Sender<Vec<u8>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_namespace_is_logged_once() {
    let (sender, lines) = mpsc::channel();
    let writer = move || Lines(sender.clone());
    let _guard = tracing::subscriber::set_default(
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(writer)
            .finish(),
    );
    let running = Running::scripted(Setup {
        wait_for_namespace: true,
        ..Setup::default()
    });
    for port in [80, 81, 82] {
        running.act(catalog([("web", &[("10.0.0.1", port)])]));
        settle().await;
    }
    assert_eq!(lines_with(&lines, "no service is written until it does"), 1);
    running.put(namespace()).await;
    settle().await;
    assert_eq!(lines_with(&lines, "the namespace exists now"), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_namespace_ends_with_controller() {
    let running = Running::scripted(Setup {
        wait_for_namespace: true,
        ..Setup::default()
    });
    running.act(catalog([WEB]));
    sleep(Duration::from_millis(500)).await;
    let start = Instant::now();
    running.stop().await;
    assert!(start.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn registry_that_fails_takes_nothing_away() {
    let running = with_web().await;
    let before = running.store.revision();
    for say in [
        ScriptedAction::Fail,
        ScriptedAction::Panic,
        ScriptedAction::Fail,
    ] {
        running.act(say);
        settle().await;
        assert_eq!(running.metric("connector_registry_up"), "0");
    }
    assert_eq!(running.store.revision(), before);
    running.act(catalog([("db", &[("10.0.0.3", 5432)])]));
    sleep(Duration::from_secs(60)).await;
    running.wait_until_backends("db", &["10.0.0.3 5432"]).await;
    running.wait_until_gone("web").await;
    assert_eq!(running.metric("connector_registry_up"), "1");
}

#[tokio::test(start_paused = true)]
async fn new_leader_deletes_nothing_before_the_registry_answered() {
    let (holder, lease) = Lease::manual();
    let running = Running::scripted(Setup {
        lease,
        ..Setup::default()
    });
    holder.grant();
    running.act(catalog([WEB]));
    settle().await;
    holder.revoke();
    sleep(Duration::from_secs(1)).await;
    // Another process changed the stored service meanwhile.
    let before = running.service("web").await;
    let mut newer = before.clone();
    newer.name = "newer".to_owned();
    running.put(newer).await;
    let behind: Endpoints = running.all().await.remove("web").unwrap();
    running
        .put(Endpoints {
            name: "newer".to_owned(),
            ..behind
        })
        .await;
    let revision = running.store.revision();
    holder.grant();
    settle().await;
    assert_eq!(
        running.store.revision(),
        revision,
        "what was said before the lease was lost is too old"
    );
    running.act(catalog([WEB]));
    settle().await;
    running.wait_until_gone("newer").await;
    assert_eq!(running.service("web").await, before);
}

#[tokio::test(start_paused = true)]
async fn service_with_tags_becomes_several_which_go_with_it() {
    let aggregator = Aggregator {
        suffix_tag: "version".to_owned(),
        ..Aggregator::default()
    };
    let running = Running::scripted(Setup {
        aggregator,
        ..Setup::default()
    });
    let ScriptedAction::All(mut tagged) = catalog([WEB]) else {
        unreachable!()
    };
    let mut service = (**tagged["web"].as_ref().unwrap()).clone();
    let mut first = service.instances.pop_first().unwrap();
    first.tags.insert("version=v2".to_owned());
    service.instances.insert(first);
    tagged.insert("web".to_owned(), Some(service.into()));
    running.act(ScriptedAction::All(tagged));
    settle().await;
    running.wait_until_backends("web", &BOTH).await;
    running
        .wait_until_backends("web-v2", &["10.0.0.1 80"])
        .await;
    running.act(catalog([]));
    settle().await;
    assert!(running.all::<Service>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn store_converges_to_the_registry_despite_faults() {
    for seed in 0..20 {
        let running = Running::scripted(Setup {
            faults: Faults::seeded(seed),
            ..Setup::default()
        });
        for port in 80..90 {
            let address = format!("10.0.0.{port}");
            running.act(catalog([
                ("web", &[(address.as_str(), port)]),
                ("db", &[("10.0.0.1", port)]),
            ]));
            sleep(Duration::from_millis(1500)).await;
        }
        running.act(catalog([WEB]));
        sleep(Duration::from_secs(20)).await;
        running.store.stop_faults();
        sleep(Duration::from_secs(120)).await;
        running.wait_until_backends("web", &BOTH).await;
        running.wait_until_gone("db").await;
        assert_eq!(running.all::<Endpoints>().await.len(), 1);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn changed_namespace_moves_services_while_running() {
    let running = with_web().await;
    assert!(running.sink.is_sync_namespace("cloud"));
    running.sink.set_sync_namespace("edge").unwrap();
    assert!(running.sink.is_sync_namespace("edge") && !running.sink.is_sync_namespace("cloud"));
    settle().await;
    let web = running.service("web").await;
    assert_eq!(
        (web.namespace.as_str(), running.all::<Service>().await.len()),
        ("edge", 1)
    );
    running.wait_until_backends("web", &BOTH).await;
    // In the new namespace changes of registry and store have effect.
    running.act(catalog([("web", &[("10.0.0.3", 80)])]));
    settle().await;
    running.wait_until_backends("web", &["10.0.0.3 80"]).await;
    assert!(running.sink.set_sync_namespace("a/b").is_err());
    running.sink.set_sync_namespace("").unwrap();
    settle().await;
    assert_eq!(running.service("web").await.namespace, "default");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn namespace_changed_to_one_that_is_missing_is_waited_for() {
    let running = Running::scripted(Setup {
        wait_for_namespace: true,
        ..Setup::default()
    });
    running.put(namespace()).await;
    running.act(catalog([WEB]));
    settle().await;
    running.wait_until_backends("web", &BOTH).await;
    running.sink.set_sync_namespace("edge").unwrap();
    settle().await;
    assert_eq!(running.service("web").await.namespace, "cloud");
    running
        .put(Namespace {
            name: "edge".to_owned(),
            ..Namespace::default()
        })
        .await;
    settle().await;
    assert_eq!(running.service("web").await.namespace, "edge");
    running.stop().await;
}

/// A comparison shows in the queue: each sync is one addition.
#[tokio::test(start_paused = true)]
async fn everything_is_compared_again_after_the_sync_period() {
    let syncs = async |sync_period: Duration| {
        let running = Running::scripted(Setup {
            sync_period,
            ..Setup::default()
        });
        running.act(catalog([WEB]));
        settle().await;
        let before = running.syncs();
        sleep(Duration::from_secs(100)).await;
        let syncs = running.syncs() - before;
        running.stop().await;
        syncs
    };
    assert_eq!(syncs(Duration::from_secs(10)).await, 10);
    assert_eq!(syncs(Duration::from_secs(600)).await, 0);
}
