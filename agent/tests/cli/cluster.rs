//! `contiv status --cluster`: real agents behind an API server, which forwards to their ports.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use contiv_store_testing::ApiServer;
use serde_json::{Value, json};

use crate::{
    agent::{Agent, folder},
    contiv::{Run, command, finish, run, text, web},
};

/// The pod of an agent on this node, whose debug HTTP has this port.
fn pod(node: &str, port: u16, status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("contiv-agent-{node}"), "namespace": "contiv",
            "labels": {"app.kubernetes.io/name": "contiv-agent"},
        },
        "spec": {"nodeName": node, "containers": [{"ports": [{"name": "debug", "containerPort": port}]}]},
        "status": status,
    })
}

fn running(node: &str, port: u16) -> Value {
    let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    pod(
        node,
        port,
        &json!({"phase": "Running", "containerStatuses": [{"state": state}]}),
    )
}

fn node(name: &str, system: &str) -> Value {
    let labels = json!({"kubernetes.io/os": system});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

fn port(agent: &Agent) -> u16 {
    agent.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// A cluster with a healthy agent on the node `n1`.
struct Cluster {
    server: ApiServer,
    kubeconfig: PathBuf,
    _agent: Agent,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let (server, folder) = (ApiServer::start().unwrap(), folder());
        let agent = Agent::start(folder.path());
        server.put(running("n1", port(&agent))).unwrap();
        server.put(node("n1", "linux")).unwrap();
        let kubeconfig = server.kubeconfig().unwrap();
        Self {
            server,
            kubeconfig,
            _agent: agent,
            _folder: folder,
        }
    }

    /// `contiv status` with these arguments and this cluster.
    fn status(&self, arguments: &[&str]) -> Run {
        run(&[
            &["status", "--kubeconfig", text(&self.kubeconfig)],
            arguments,
        ]
        .concat())
    }
}

/// The binary by another name, with this kubeconfig.
fn plugin(folder: &Path, kubeconfig: &Path, arguments: &[&str]) -> Run {
    let link = folder.join("kubectl-contiv");
    symlink(env!("CARGO_BIN_EXE_contiv"), &link).unwrap();
    let plain = command(arguments);
    let mut plugin = Command::new(link);
    for (name, _) in plain.get_envs() {
        plugin.env_remove(name);
    }
    plugin.args(plain.get_args()).env("KUBECONFIG", kubeconfig);
    finish(plugin)
}

#[test]
fn cluster_shows_each_node_and_why_one_does_not_answer() {
    let cluster = Cluster::start();
    let server = &cluster.server;
    // One with an object in quarantine.
    let folder = folder();
    let ill = Agent::start(folder.path());
    let broken = web("web", 7).replace("clusterIP: 10.96.0.7", "clusterIP: 10.96.0.777");
    fs::write(folder.path().join("manifests/web.yaml"), broken).unwrap();
    ill.wait_for("/quarantine", |quarantine| {
        quarantine.contains("spec.clusterIP")
    });
    server.put(running("n2", port(&ill))).unwrap();
    // One that accepts connections and says nothing, and one without a listener.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    server
        .put(running("n3", silent.local_addr().unwrap().port()))
        .unwrap();
    server.put(running("n4", 1)).unwrap();
    // One whose pod does not run, one without a pod, and one that can have none.
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let ended =
        json!({"terminated": {"reason": "Error", "exitCode": 2, "message": "unknown key\n"}});
    let status =
        json!({"phase": "Running", "containerStatuses": [{"state": waiting, "lastState": ended}]});
    server.put(pod("n5", 9999, &status)).unwrap();
    for (name, system) in [("n2", "linux"), ("n6", "linux"), ("n7", "windows")] {
        server.put(node(name, system)).unwrap();
    }

    let table = cluster.status(&["--request-timeout", "2s"]);
    assert_eq!((table.code, table.err.as_str()), (1, ""), "{}", table.out);
    let lines: Vec<&str> = table.out.lines().collect();
    let columns = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        columns(lines[0]),
        [
            "NODE",
            "VERSION",
            "STATE",
            "LAG",
            "DRIFT",
            "QUARANTINE",
            "P50/P99"
        ]
    );
    assert_eq!(
        columns(lines[1]),
        ["n1", version, "ready", "0", "off", "0", "-"]
    );
    assert_eq!(
        columns(lines[2])[..6],
        ["n2", version, "ready", "0", "off", "1"]
    );
    assert_eq!(
        columns(lines[5]),
        ["n5", "-", "CrashLoopBackOff", "-", "-", "-", "-"]
    );
    for part in [
        "\n\nPROBLEMS\nn2: quarantine: Service shop/web: spec.clusterIP: ",
        "\nn3: no answer: it has not answered within 2s (pod contiv/contiv-agent-n3)\n",
        "\nn4: no answer: port 1 cannot be reached: error forwarding port 1 to pod contiv-agent-n4",
        "\nn5: CrashLoopBackOff: Error, exit code 2, unknown key (pod contiv/contiv-agent-n5)\n",
        "\nn6: no agent: no pod of an agent is on it, nor waits for it\n",
        "\n\n6 nodes: 1 healthy, 1 needs attention, 4 without an answer\n",
    ] {
        assert!(table.out.contains(part), "{part}\nis not in\n{}", table.out);
    }
    assert!(!table.out.contains("n7"), "{}", table.out);

    let json = cluster.status(&["--request-timeout", "2s", "-o", "json"]);
    let value: Value = serde_json::from_str(&json.out).unwrap();
    let nodes = value["nodes"].as_array().unwrap();
    assert_eq!(
        (json.code, nodes.len(), &value["healthy"]),
        (1, 6, &json!(false))
    );
    assert_eq!(
        (&nodes[0]["healthy"], &nodes[0]["agent"]["status"]["ready"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&nodes[1]["quarantined"], &nodes[1]["state"]),
        (&json!(1), &json!("ready"))
    );
    assert_eq!(
        nodes[1]["agent"]["quarantine"][0]["object"],
        "Service shop/web"
    );
    assert_eq!(
        (&nodes[2]["agent"], &nodes[2]["state"]),
        (&Value::Null, &json!("no answer"))
    );
    assert_eq!(
        (&nodes[5]["node"], &nodes[5]["pod"]),
        (&json!("n6"), &Value::Null)
    );
}

#[test]
fn kubectl_plugin_asks_the_cluster() {
    let cluster = Cluster::start();
    let folder = tempfile::tempdir().unwrap();
    let status = plugin(folder.path(), &cluster.kubeconfig, &["status"]);
    assert_eq!(
        (status.code, status.err.as_str()),
        (0, ""),
        "{}",
        status.out
    );
    assert!(
        status.out.ends_with("\n1 node: 1 healthy\n"),
        "{}",
        status.out
    );
    let folder = tempfile::tempdir().unwrap();
    let help = plugin(folder.path(), &cluster.kubeconfig, &["status", "--help"]);
    assert!(
        help.out.contains("Usage: kubectl contiv status "),
        "{}",
        help.out
    );
    let folder = tempfile::tempdir().unwrap();
    let one = plugin(
        folder.path(),
        &cluster.kubeconfig,
        &["status", "--agent", "127.0.0.1:1"],
    );
    assert!(
        one.code == 1 && one.err.contains("no agent at http://127.0.0.1:1"),
        "{}",
        one.err
    );
}

#[test]
fn cluster_without_rights_says_which_are_needed() {
    let cluster = Cluster::start();
    cluster.server.deny("nodes", Some(403));
    let status = cluster.status(&[]);
    assert_eq!(status.code, 0, "{} {}", status.out, status.err);
    let notes = status
        .err
        .matches("note: nodes without an agent are not shown: ")
        .count();
    assert!(
        notes == 1 && status.err.contains("that needs list on nodes"),
        "{}",
        status.err
    );
    cluster.server.deny("pods/portforward", Some(403));
    let status = cluster.status(&[]);
    assert!(
        status
            .out
            .contains("that needs get and create on pods/portforward"),
        "{}",
        status.out
    );
    cluster.server.deny("pods", Some(403));
    let status = cluster.status(&[]);
    assert!(
        status.code == 1 && status.err.contains("that needs list on pods"),
        "{}",
        status.err
    );
}

#[test]
fn cluster_that_cannot_be_asked_names_file_and_field() {
    let cluster = Cluster::start();
    let kubeconfig = text(&cluster.kubeconfig);
    let none = cluster.status(&["--context", "prod"]);
    let words = format!("{kubeconfig}: contexts does not have \"prod\"; it has here");
    assert!(none.code == 1 && none.err.contains(&words), "{}", none.err);
    let missing = run(&["status", "--kubeconfig", "/nonexistent/config"]);
    assert!(
        missing.code == 1 && missing.err.contains("/nonexistent/config"),
        "{}",
        missing.err
    );
    for (arguments, place) in [
        (&["-n", "kube-system"][..], "in the namespace kube-system"),
        (&["-l", "app=x"], "in any namespace"),
    ] {
        let none = cluster.status(arguments);
        assert!(none.code == 1 && none.err.contains(place), "{}", none.err);
    }
    let both = cluster.status(&["--agent", "127.0.0.1:1"]);
    assert!(
        both.code == 2 && both.err.contains("--kubeconfig"),
        "{}",
        both.err
    );
}
