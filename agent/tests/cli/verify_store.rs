//! `contiv verify --store`: an agent that has missed a change of its store.

use std::time::{Duration, Instant};

use contiv_store_testing::{Etcd, LyingEtcd};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    agent::{Agent, folder},
    contiv::{Run, run, run_with_input, web},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn verify(agent: &Agent, more: &[&str]) -> Run {
    let agent = ["verify", "--agent", &agent.address, "--store"];
    run(&[&agent[..], more].concat())
}

fn apply(store: &str, manifests: &str) {
    let applied = run_with_input(&["apply", "--store", store, "-f", "-"], manifests);
    assert_eq!(applied.code, 0, "{applied:?}");
}

#[test]
fn changes_that_the_agent_has_missed_are_named() {
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start()).unwrap();
    let liar = runtime
        .block_on(LyingEtcd::start(&etcd.endpoint()))
        .unwrap();
    for (name, last) in [("web", 7), ("db", 8), ("cache", 9)] {
        apply(&etcd.url(), &web(name, last));
    }
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::watching(&format!("etcd://{}", liar.endpoint()), state.path());
    let equal = verify(&agent, &[]);
    assert_eq!((equal.code, equal.err.as_str()), (0, ""), "{equal:?}");
    assert!(
        equal.out.starts_with("store: 6 compared at revision ")
            && equal.out.ends_with(", all equal\n"),
        "{equal:?}"
    );

    // All that changes now is lost, except for the last change.
    liar.rewrite_watches(|response| {
        response.events.retain(|event| {
            let key = event.kv.as_ref().map(|pair| pair.key.as_slice());
            key.is_some_and(|key| String::from_utf8_lossy(key).contains("/last/"))
        });
        true
    });
    let deleted = run(&[
        "delete",
        "--store",
        &etcd.url(),
        "-n",
        "shop",
        "service/web",
    ]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
    apply(&etcd.url(), &web("db", 8).replace("port: 80,", "port: 81,"));
    apply(&etcd.url(), &web("new", 10));
    apply(&etcd.url(), &web("last", 11));
    agent.wait_for("/objects/service", |services| {
        services.contains("shop/last")
    });

    let different = verify(&agent, &[]);
    assert_eq!(different.code, 1, "{different:?}");
    let rows: Vec<Vec<&str>> = different
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(
        rows.iter()
            .any(|row| row[..] == ["not", "stored", "service", "shop/web", "-", "-", "-"])
            && rows
                .iter()
                .any(|row| row[..] == ["missing", "service", "shop/new", "-", "-", "-"])
            && rows
                .iter()
                .any(|row| row[..2] == ["different", "service"] && row.contains(&"81")),
        "{}",
        different.out
    );
    assert!(
        different
            .out
            .lines()
            .all(|line| line.chars().count() <= 160)
    );
    assert!(different.err.contains("contiv resync"), "{}", different.err);
    let json: Value = serde_json::from_str(&verify(&agent, &["-o", "json"]).out).unwrap();
    assert_eq!(json["is_same_revision"], true);
    assert!(json["differences"].as_array().unwrap().len() >= 3, "{json}");
    let names = verify(&agent, &["-o", "name"]).out;
    assert!(names.contains("service shop/web\n"), "{names}");

    let resync = run(&["resync", "--agent", &agent.address]);
    assert_eq!(resync.code, 0, "{resync:?}");
    let start = Instant::now();
    while verify(&agent, &[]).code != 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "a list does not help");
    }
}

#[test]
fn store_without_revisions_is_compared_as_it_is() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let equal = verify(&agent, &[]);
    assert_eq!((equal.code, equal.err.as_str()), (0, ""), "{equal:?}");
    assert_eq!(
        equal.out,
        "store: 2 compared with the store as it is now, all equal\n"
    );
}
