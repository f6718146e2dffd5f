//! `contiv diff`: what manifests and configurations would change for connections through the services of a real etcd.

use std::fs;

use contiv_store_testing::Etcd;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    agent::Agent,
    contiv::{Run, run, run_with_input, text, web},
};

/// An agent on an etcd with two services.
struct Cluster {
    agent: Agent,
    folder: TempDir,
    _etcd: Etcd,
    _runtime: Runtime,
}

impl Cluster {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let etcd = runtime.block_on(Etcd::start()).unwrap();
        let applied = run_with_input(
            &["apply", "--store", &etcd.url(), "-f", "-"],
            &[web("web", 7), web("db", 8)].join("\n---\n"),
        );
        assert_eq!(applied.code, 0, "{applied:?}");
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::watching(&etcd.url(), &folder.path().join("state"));
        Self {
            agent,
            folder,
            _etcd: etcd,
            _runtime: runtime,
        }
    }

    fn manifests(&self, more: &[&str], manifests: &str) -> Run {
        let arguments = ["diff", "--agent", &self.agent.address, "-f", "-"];
        run_with_input(&[&arguments[..], more].concat(), manifests)
    }

    /// With the configuration of the agent, in which a text is another one.
    fn config(&self, more: &[&str], from: &str, to: &str) -> Run {
        let now = self.agent.get("/config");
        assert!(now.contains(from), "{now}");
        let file = self.folder.path().join("new.toml");
        fs::write(&file, now.replace(from, to)).unwrap();
        let arguments = ["diff", "--agent", &self.agent.address, "--config"];
        run(&[&arguments[..], &[text(&file)], more].concat())
    }
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

#[test]
fn manifests_are_compared_with_the_store_by_connections() {
    let cluster = Cluster::start();
    let same = cluster.manifests(&[], &web("web", 7));
    assert_eq!(same.code, 0, "{same:?}");
    assert_eq!(same.out, "nothing would change for connections\n");

    let other_port = web("web", 7).replace("port: 80,", "port: 81,");
    let changed = cluster.manifests(&["-o", "json"], &other_port);
    assert_eq!(changed.code, 1, "{changed:?}");
    let all = json(&changed);
    let rows = all["changes"].as_array().unwrap();
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
    assert_eq!(all["settings"], Value::Array(Vec::new()));

    let added = cluster.manifests(&[], &web("new", 9));
    assert_eq!(added.code, 1, "{added:?}");
    assert!(
        added.out.contains("shop/new") && added.out.contains("no service"),
        "{added:?}"
    );
    let broken = web("web", 7).replace("port: 80,", "port: 0,");
    let refused = cluster.manifests(&[], &broken);
    assert_eq!(refused.code, 2, "as with diff(1): {refused:?}");
    assert!(refused.err.contains("shop/web"), "{refused:?}");
    assert!(
        refused.out.starts_with("whether something would change")
            && refused.out.lines().count() == 1,
        "{refused:?}"
    );
    let empty = cluster.manifests(&[], "");
    assert_eq!(empty.code, 2, "a wrong path must not pass: {empty:?}");
    assert!(empty.err.contains("there is no object in -"), "{empty:?}");

    let unchanged = cluster.manifests(&[], &web("web", 7));
    assert_eq!(unchanged.code, 0, "it writes nothing: {unchanged:?}");
    let names = cluster.manifests(&["-o", "name"], &web("new", 9));
    assert_eq!(names.out, "shop/new\n");
}

#[test]
fn configuration_is_compared_with_that_of_the_agent() {
    let mut cluster = Cluster::start();
    let same = cluster.config(&[], "masquerade-all = false", "masquerade-all = false");
    assert_eq!(same.code, 0, "{same:?}");
    assert_eq!(same.out, "nothing would change for connections\n");

    let other_proxy = cluster.config(
        &[],
        "service-proxy-name = \"\"",
        "service-proxy-name = \"other\"",
    );
    assert_eq!(other_proxy.code, 1, "{other_proxy:?}");
    for expected in [
        "shop/db",
        "shop/web",
        "service-proxy-name",
        "changes of connections",
        "no service",
        "when the agent is restarted",
    ] {
        assert!(
            other_proxy.out.contains(expected),
            "{expected}: {other_proxy:?}"
        );
    }
    let longest = other_proxy.out.lines().map(|line| line.chars().count());
    assert!(longest.max() <= Some(120), "{}", other_proxy.out);

    let log = cluster.config(
        &["-o", "json"],
        "log-level = \"info\"",
        "log-level = \"warn\"",
    );
    assert_eq!(log.code, 0, "{log:?}");
    let all = json(&log);
    assert_eq!(all["changes"], Value::Array(Vec::new()));
    assert_eq!(all["connections"], Value::Array(Vec::new()));
    assert_eq!(
        (&all["result"], all["compared"]["services"].as_u64()),
        (&"same".into(), Some(2)),
        "{all:#}"
    );
    let setting = &all["settings"][0];
    assert_eq!(
        (&setting["setting"], &setting["effect"]),
        (&"log-level".into(), &"none on connections".into()),
        "{all:#}"
    );

    // Pods of other nodes would be dropped.
    let wide = cluster.config(
        &[],
        "service-cidrs = []",
        "service-cidrs = [\"10.0.0.0/8\"]",
    );
    assert_eq!(wide.code, 1, "{wide:?}");
    assert!(
        !wide.out.contains("nothing would change") && wide.out.contains("not compared"),
        "{wide:?}"
    );
    let elsewhere = cluster.config(&["-o", "json"], "store = \"", "store = \"dir:/nowhere\" #");
    assert_eq!(elsewhere.code, 2, "{elsewhere:?}");
    assert_eq!(json(&elsewhere)["result"], "unknown", "{elsewhere:?}");
    for renderer in ["route", "nftables"] {
        let to = format!("[\"{renderer}\"]");
        let others = cluster.config(&[], "[\"dry-run\"]", &to);
        assert_eq!(others.code, 2, "{others:?}");
        assert!(others.err.contains("`renderers`"), "{others:?}");
    }

    // What the agent has from flags.
    let short = cluster.folder.path().join("short.toml");
    fs::write(&short, "renderers = [\"dry-run\"]\n").unwrap();
    let arguments = ["diff", "--agent", &cluster.agent.address, "--config"];
    let short = run(&[&arguments[..], &[text(&short)]].concat());
    assert!(
        short.out.contains("(not in the file)")
            && short.out.contains("state-dir")
            && !short.out.contains("store "),
        "{short:?}"
    );
    let manifest = cluster.folder.path().join("web.yaml");
    fs::write(&manifest, web("web", 7)).unwrap();
    let manifest = run(&[&arguments[..], &[text(&manifest)]].concat());
    assert_eq!(manifest.code, 2, "{manifest:?}");
    assert!(
        manifest.err.contains("-f compares manifests"),
        "{manifest:?}"
    );

    let wrong = cluster.config(&[], "masquerade-all", "masquerade-al");
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong.err.contains("new.toml:") && wrong.err.contains("did you mean \"masquerade-all\"?"),
        "{wrong:?}"
    );

    // Without the agent, by its file.
    let old = cluster.folder.path().join("old.toml");
    let of_agent = cluster.agent.get("/config");
    fs::write(&old, of_agent.replace("dry-run", "nftables")).unwrap();
    let new = cluster.folder.path().join("kube-proxy.yaml");
    let of_kube_proxy = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n\
                         nftables: {masqueradeAll: true}\n";
    fs::write(&new, of_kube_proxy).unwrap();
    cluster.agent.stop();
    let arguments = ["diff", "--from-config", text(&old), "--config", text(&new)];
    let offline = run(&arguments);
    assert!(
        offline.out.contains("masquerade-all") && !offline.out.contains("node-name"),
        "{offline:?}"
    );
    let absent = run(&["diff", "--agent", "127.0.0.1:1", "--config", text(&old)]);
    assert_eq!(absent.code, 2, "1 would be a difference: {absent:?}");
    let both = run(&[
        "diff",
        "--agent",
        "127.0.0.1:1",
        "--from-config",
        text(&old),
    ]);
    assert_eq!(both.code, 2, "{both:?}");
    assert!(both.err.contains("leave out --agent"), "{both:?}");
}
