//! An agent on a real etcd that goes on from what an earlier run saved: it ends as one that lists the store.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_node::Core;
use contiv_store::{
    Entry, Operation, Store,
    etcd::{EtcdAccess, EtcdStore},
    open_as_node,
};
use contiv_store_testing::Etcd;
use tempfile::TempDir;

use crate::{
    drivers::Request,
    test_support::{
        Harness, TEST_TIMEOUT, bad_service, local_slice, loopback, node, service, slice,
    },
};

/// What is stored at first.
fn stored() -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..30)
        .map(|number| service(&format!("s{number:02}"), 1))
        .collect();
    entries.extend([
        service("web", 2),
        slice("web", 2),
        local_slice("db", &[true, false]),
        service("db", 4),
        node(loopback(40)),
    ]);
    entries
}

fn put(entry: Entry) -> Operation {
    let Entry { key, value, .. } = entry;
    Operation::Put { key, value }
}

fn delete(entry: Entry) -> Operation {
    Operation::Delete { key: entry.key }
}

fn client(etcd: &Etcd) -> Arc<dyn Store> {
    Arc::new(EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap())
}

/// What an agent reads of it.
async fn read_by_agent(etcd: &Etcd) -> Arc<dyn Store> {
    let url = etcd.url().parse().unwrap();
    open_as_node(&url, EtcdAccess::default(), "n1")
        .await
        .unwrap()
}

async fn write(etcd: &Etcd, operations: Vec<Operation>) -> i64 {
    client(etcd).commit(operations).await.unwrap()
}

/// An etcd, and the folder of an agent that watches it.
struct Stage {
    etcd: Etcd,
    folder: TempDir,
}

/// What an agent ends with.
#[derive(Debug, PartialEq)]
struct End {
    revision: i64,
    status: (bool, bool, bool),
    services: String,
    quarantined: Vec<String>,
    nodes: String,
    problem: Option<String>,
}

impl Stage {
    /// After a run of an agent that has saved everything.
    async fn start() -> Self {
        let stage = Self {
            etcd: Etcd::start().await.unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        write(&stage.etcd, stored().into_iter().map(put).collect()).await;
        stage.run(async |_| {}).await;
        stage
    }

    /// Runs an agent until it has everything, during which something is done.
    async fn run(&self, work: impl AsyncFnOnce(&Etcd)) -> End {
        let harness =
            Harness::start_on_etcd(read_by_agent(&self.etcd).await, self.folder.path(), true);
        settled(&harness, &self.etcd).await;
        work(&self.etcd).await;
        end(harness, &self.etcd).await
    }

    /// Starts the agent again, after another one that lists the store and has the same folder: both must end alike. Whether the
    /// first one has listed the store.
    async fn start_again(&self, name: &str) -> bool {
        let copy = tempfile::tempdir().unwrap();
        copy_files(self.folder.path(), copy.path());
        let lister = Harness::start_on_etcd(read_by_agent(&self.etcd).await, copy.path(), false);
        settled(&lister, &self.etcd).await;
        let expected = end(lister, &self.etcd).await;
        let before = requests(&self.etcd).await;
        let harness =
            Harness::start_on_etcd(read_by_agent(&self.etcd).await, self.folder.path(), true);
        settled(&harness, &self.etcd).await;
        let after = requests(&self.etcd).await;
        assert_eq!(end(harness, &self.etcd).await, expected, "{name}");
        assert!(after.transactions > before.transactions, "{name}");
        // One shows that the member answers.
        after.ranges - before.ranges > 1
    }
}

fn copy_files(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// The revision of the last change below the root, as etcd's command has it, which asks by another method.
async fn newest_revision(etcd: &Etcd) -> i64 {
    let status = etcd
        .ctl(&["endpoint", "status", "-w", "json"])
        .await
        .unwrap();
    let at = status.split_once("\"revision\":").unwrap().1;
    let digits: String = at.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Waits until the agent has everything.
async fn settled(harness: &Harness, etcd: &Etcd) {
    let (start, newest) = (Instant::now(), newest_revision(etcd).await);
    loop {
        let status = harness.status().await;
        if status.ready && !status.from_mirror && status.revision >= newest {
            return;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "{newest}: {status:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn end(harness: Harness, etcd: &Etcd) -> End {
    settled(&harness, etcd).await;
    let status = harness.status().await;
    let quarantined = harness.ask(|core| core.quarantine(0)).await;
    let end = End {
        revision: status.revision,
        status: (status.ready, status.synced, status.held_deletions.is_some()),
        services: format!("{:?}", harness.ask(Core::services).await),
        quarantined: quarantined
            .into_iter()
            .map(|entry| format!("{} {}", entry.source, entry.reason))
            .collect(),
        nodes: format!("{:?}", harness.ask(Core::nodes).await),
        problem: status.node_problem,
    };
    harness.requests.send(Request::Shutdown).await.unwrap();
    harness.task.await.unwrap().unwrap();
    end
}

/// How many requests an etcd has had.
#[derive(Debug, Clone, Copy)]
struct Requests {
    ranges: u64,
    transactions: u64,
}

async fn requests(etcd: &Etcd) -> Requests {
    let text = etcd.metrics().await.unwrap();
    Requests {
        ranges: started(&text, "\"Range\""),
        transactions: started(&text, "\"Txn\""),
    }
}

async fn all_requests(etcd: &Etcd) -> u64 {
    started(&etcd.metrics().await.unwrap(), "")
}

/// How many requests with a method that contains this were begun.
fn started(metrics: &str, method: &str) -> u64 {
    let is_wanted =
        |line: &&str| line.starts_with("grpc_server_started_total{") && line.contains(method);
    let number = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    metrics.lines().filter(is_wanted).filter_map(number).sum()
}

/// The numbered services, without some.
fn deletions(numbers: std::ops::Range<usize>) -> Vec<Operation> {
    numbers
        .map(|number| delete(service(&format!("s{number:02}"), 1)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_store_is_not_listed_again() {
    let stage = Stage::start().await;
    assert!(!stage.start_again("unchanged").await);
    // What is quarantined, kept or held differs from what is saved, and is read again.
    let deviations = [
        ("a value that cannot be used", vec![put(bad_service("web"))]),
        ("a new one", vec![put(bad_service("new"))]),
        ("the node is gone", vec![delete(node(loopback(40)))]),
        ("deletions that are held", deletions(0..25)),
    ];
    let mut ends = Vec::new();
    for (name, operations) in deviations {
        let end = stage
            .run(async |etcd| {
                write(etcd, operations).await;
            })
            .await;
        assert!(!stage.start_again(name).await, "{name}: {end:?}");
        let End {
            status: (_, _, is_held),
            quarantined,
            problem,
            ..
        } = stage.run(async |_| {}).await;
        ends.push((quarantined.len(), problem.is_some(), is_held));
    }
    let expected = [
        (1, false, false),
        (2, false, false),
        (2, true, false),
        // The node is one of those that are held.
        (2, false, true),
    ];
    assert_eq!(ends, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_while_no_agent_runs_are_delivered() {
    let stage = Stage::start().await;
    let changes = [
        ("put", vec![put(service("new", 7))]),
        ("overwritten", vec![put(service("web", 8))]),
        ("deleted", vec![delete(service("db", 4))]),
        ("cannot be used", vec![put(bad_service("web"))]),
    ];
    for (name, operations) in changes {
        write(&stage.etcd, operations).await;
        assert!(!stage.start_again(name).await, "{name}");
    }
    write(&stage.etcd, vec![delete(service("new", 7))]).await;
    write(&stage.etcd, vec![put(service("new", 9))]).await;
    assert!(!stage.start_again("deleted and put").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_is_not_as_it_was_saved_is_listed() {
    let mut stage = Stage::start().await;
    let before = stage.etcd.back_up().await.unwrap();
    let saved = write(&stage.etcd, vec![delete(service("web", 2))]).await;
    stage.run(async |_| {}).await;
    // Compacted.
    write(&stage.etcd, vec![put(service("new", 7))]).await;
    let newest = write(&stage.etcd, vec![put(service("new", 8))]).await;
    stage
        .etcd
        .ctl(&["compact", &newest.to_string()])
        .await
        .unwrap();
    assert!(stage.start_again("compacted").await);
    // A lower revision, then the same one with another change, then a higher one.
    for number in 0..4 {
        stage.etcd.kill().await.unwrap();
        stage.etcd.start_restored(&before).await.unwrap();
        for _ in 0..number {
            stage.etcd.ctl(&["put", "/elsewhere", "1"]).await.unwrap();
        }
        assert!(newest_revision(&stage.etcd).await < saved + 4);
        assert!(
            stage
                .start_again(&format!("restored, {number} writes"))
                .await
        );
        // The agent has saved the restored state; it must find the deletion again.
        write(&stage.etcd, vec![delete(service("web", 2))]).await;
        stage.run(async |_| {}).await;
    }
    // Another cluster, with the same keys and revisions, of which an old one has another value.
    stage = Stage::start().await;
    let (first, rest) = (service("s00", 9), stored().split_off(1));
    let other = Etcd::start().await.unwrap();
    write(
        &other,
        std::iter::once(first).chain(rest).map(put).collect(),
    )
    .await;
    assert_eq!(
        newest_revision(&other).await,
        newest_revision(&stage.etcd).await
    );
    stage.etcd = other;
    assert!(stage.start_again("another cluster").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_lists_without_delay_and_later_ones_need_few_requests() {
    let stage = Stage {
        etcd: Etcd::start().await.unwrap(),
        folder: tempfile::tempdir().unwrap(),
    };
    write(&stage.etcd, stored().into_iter().map(put).collect()).await;
    for name in ["first", "second"] {
        let before = all_requests(&stage.etcd).await;
        let harness =
            Harness::start_on_etcd(read_by_agent(&stage.etcd).await, stage.folder.path(), true);
        let start = Instant::now();
        while !harness.status().await.ready {
            assert!(start.elapsed() < TEST_TIMEOUT, "{name}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let count = all_requests(&stage.etcd).await - before;
        assert!(count <= 10, "{name}: {count}");
        end(harness, &stage.etcd).await;
    }
}
