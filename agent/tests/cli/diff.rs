//! `contiv diff`: what manifests would change for connections through the services of a real etcd.

use contiv_store_testing::Etcd;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    agent::Agent,
    contiv::{Run, run_with_input, web},
};

fn diff(agent: &Agent, more: &[&str], manifests: &str) -> Run {
    let arguments = ["diff", "--agent", &agent.address, "-f", "-"];
    run_with_input(&[&arguments[..], more].concat(), manifests)
}

#[test]
fn manifests_are_compared_with_the_store_by_connections() {
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start()).unwrap();
    let applied = run_with_input(
        &["apply", "--store", &etcd.url(), "-f", "-"],
        &[web("web", 7), web("db", 8)].join("\n---\n"),
    );
    assert_eq!(applied.code, 0, "{applied:?}");
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::watching(&etcd.url(), state.path());

    let same = diff(&agent, &[], &web("web", 7));
    assert_eq!(same.code, 0, "{same:?}");
    assert_eq!(same.out, "nothing would change for connections\n");

    let other_port = web("web", 7).replace("port: 80,", "port: 81,");
    let changed = diff(&agent, &["-o", "json"], &other_port);
    assert_eq!(changed.code, 1, "{changed:?}");
    let rows: Value = serde_json::from_str(&changed.out).unwrap();
    let rows = rows.as_array().unwrap();
    let verdicts: Vec<[&str; 2]> = rows
        .iter()
        .map(|row| ["old", "new"].map(|side| row[side]["verdict"].as_str().unwrap()))
        .collect();
    assert!(
        verdicts.iter().any(|[old, _]| *old == "served")
            && verdicts.iter().any(|[_, new]| *new == "served"),
        "the old port ends, the new one begins: {rows:#?}"
    );
    assert!(
        rows.iter().all(|row| row["service"] == "shop/web"),
        "the other service stays: {rows:#?}"
    );

    let added = diff(&agent, &[], &web("new", 9));
    assert_eq!(added.code, 1, "{added:?}");
    assert!(
        added.out.contains("shop/new") && added.out.contains("no service"),
        "{added:?}"
    );
    let broken = web("web", 7).replace("port: 80,", "port: 0,");
    let refused = diff(&agent, &[], &broken);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("shop/web"), "{refused:?}");

    let unchanged = diff(&agent, &[], &web("web", 7));
    assert_eq!(unchanged.code, 0, "it writes nothing: {unchanged:?}");
}
