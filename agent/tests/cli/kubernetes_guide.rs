//! The commands of docs/users/migration.md as they are printed, by real `kubectl` and `helm`, on a cluster of three nodes with kube-proxy:
//! an API server in memory, whose `DaemonSets` have a pod on each node that they select.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use contiv_store_testing::ApiServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::documented::{DocumentedCommand, documented_commands, root};

/// The folders in which a command of a document finds this build's `contiv`, and `kubectl` and `helm` as `scripts/deps` installs them.
pub(crate) fn path_with_tools() -> String {
    let cache = env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let tools =
        env::var_os("CONTIV_TOOLS").map_or_else(|| cache.join("contiv-tools"), PathBuf::from);
    let others = env::var("PATH").unwrap();
    for tool in ["kubectl", "helm"] {
        let is_there = env::split_paths(&others)
            .chain([tools.clone()])
            .any(|folder| folder.join(tool).exists());
        assert!(is_there, "no {tool}; get it by: scripts/deps --manifests");
    }
    let contiv = Path::new(env!("CARGO_BIN_EXE_contiv")).parent().unwrap();
    format!("{}:{}:{others}", contiv.display(), tools.display())
}

/// An API server with nodes of these names, each with kube-proxy as kubeadm installs it.
pub(crate) fn cluster_with_kube_proxy(nodes: &[&str]) -> ApiServer {
    let server = ApiServer::start().unwrap();
    for name in nodes {
        server.put(node(name)).unwrap();
    }
    let configuration =
        fs::read_to_string(root().join("agent/src/cli/commands/migrate/golden/kubeadm.yaml"))
            .unwrap();
    server
        .put(serde_saphyr::from_str(&configuration).unwrap())
        .unwrap();
    let labels = json!({"k8s-app": "kube-proxy"});
    server
        .put(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "kube-proxy", "namespace": "kube-system", "labels": labels, "generation": 1},
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"kubernetes.io/os": "linux"},
                        "containers": [{"name": "kube-proxy", "image": "registry.k8s.io/kube-proxy:v1.36.2"}],
                    },
                },
            },
        }))
        .unwrap();
    server
}

pub(crate) fn node(name: &str) -> Value {
    let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// Runs a command in this folder, with a kubeconfig for the server.
pub(crate) fn shell(command: &str, folder: &Path, server: &ApiServer) -> Output {
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-c", command]).current_dir(folder);
    // Settings and caches of the tools.
    shell
        .env("HOME", folder)
        .env("PATH", path_with_tools())
        .env("KUBECONFIG", server.kubeconfig().unwrap());
    shell.output().unwrap()
}

/// The cluster, and a folder in which the guide's commands run.
struct Migration {
    server: ApiServer,
    folder: TempDir,
    commands: Vec<DocumentedCommand>,
}

impl Migration {
    fn new(nodes: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(root().join("packaging"), folder.path().join("packaging")).unwrap();
        let mut commands = documented_commands(&root().join("docs/users/migration.md"));
        // All others ask an agent or the kernel of a node.
        commands.retain(|shown| {
            ["kubectl ", "helm ", "test ", "contiv migrate "]
                .iter()
                .any(|start| shown.command.starts_with(start))
                && !shown.command.ends_with("--help")
        });
        Self {
            server: cluster_with_kube_proxy(nodes),
            folder,
            commands,
        }
    }

    /// The commands of a section: a number, or the beginning of its heading.
    fn section(&self, heading: &str) -> Vec<&DocumentedCommand> {
        let of_section = self
            .commands
            .iter()
            .filter(|shown| shown.section.starts_with(heading));
        let commands: Vec<_> = of_section.collect();
        assert!(!commands.is_empty(), "no command below {heading}");
        commands
    }

    /// Runs a command with another node in the place of `worker-1`. Afterwards every node still has a proxy.
    fn run(&self, shown: &DocumentedCommand, node: &str) {
        let command = shown.command.replace("worker-1", node);
        let output = shell(&command, self.folder.path(), &self.server);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {command}\n{error}",
            shown.place
        );
        for (node, proxies) in self.proxies() {
            assert!(
                !proxies.is_empty(),
                "{}: {command}\nleaves {node} without a proxy",
                shown.place
            );
        }
    }

    fn run_section(&self, heading: &str) {
        for shown in self.section(heading) {
            self.run(shown, "worker-1");
        }
    }

    /// Moves a node to contiv: sections 2 to 4.
    fn move_node(&self, node: &str) {
        for heading in ["2 ", "3 ", "4 "] {
            for shown in self.section(heading) {
                self.run(shown, node);
            }
        }
    }

    /// The `DaemonSets` with a pod on each node.
    fn proxies(&self) -> BTreeMap<String, BTreeSet<String>> {
        let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = self.server.objects("nodes");
        let mut proxies: BTreeMap<_, BTreeSet<_>> = nodes
            .iter()
            .map(|node| (name(&node["metadata"]["name"]), BTreeSet::new()))
            .collect();
        for pod in self.server.objects("pods") {
            let owner = &pod["metadata"]["ownerReferences"][0];
            if owner["kind"] == "DaemonSet" {
                proxies
                    .get_mut(&name(&pod["spec"]["nodeName"]))
                    .unwrap()
                    .insert(name(&owner["name"]));
            }
        }
        proxies
    }

    fn daemon_sets(&self) -> BTreeMap<String, Value> {
        let all = self.server.objects("daemonsets").into_iter();
        all.map(|object| {
            (
                object["metadata"]["name"].as_str().unwrap().to_owned(),
                object,
            )
        })
        .collect()
    }
}

fn all_have(proxies: &BTreeMap<String, BTreeSet<String>>, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    for (node, proxies) in proxies {
        assert_eq!(*proxies, expected, "{node}");
    }
}

#[test]
fn migration_guide_leaves_no_node_without_proxy() {
    let nodes = ["worker-1", "worker-2", "worker-3"];
    let migration = Migration::new(&nodes);
    migration.run_section("1 ");
    for node in nodes {
        migration.move_node(node);
    }
    all_have(&migration.proxies(), &["contiv-agent"]);

    migration.run_section("5 ");
    let daemon_sets = migration.daemon_sets();
    assert_eq!(
        daemon_sets.keys().collect::<Vec<_>>(),
        ["contiv-agent"],
        "kube-proxy is deleted"
    );
    let selector = &daemon_sets["contiv-agent"]["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(
        *selector,
        json!({"kubernetes.io/os": "linux"}),
        "the agent is for all nodes"
    );
    migration.server.put(node("worker-4")).unwrap();
    all_have(&migration.proxies(), &["contiv-agent"]);

    let back = migration.section("Back");
    for node in ["worker-1", "worker-2", "worker-3", "worker-4"] {
        for shown in &back {
            migration.run(shown, node);
        }
    }
    all_have(&migration.proxies(), &["kube-proxy"]);
    migration.run_section("The whole cluster");
    assert_eq!(
        migration.daemon_sets().keys().collect::<Vec<_>>(),
        ["kube-proxy"]
    );
    for left in [
        "clusterroles",
        "clusterrolebindings",
        "serviceaccounts",
        "secrets",
    ] {
        assert_eq!(migration.server.objects(left), [] as [Value; 0], "{left}");
    }
}

#[test]
fn kube_proxy_is_not_deleted_while_node_lacks_contiv() {
    let migration = Migration::new(&["worker-1", "worker-2"]);
    migration.run_section("1 ");
    migration.move_node("worker-1");
    // Without what makes the agent run on all nodes.
    let commands = migration.section("5 ");
    let deletion = commands
        .iter()
        .find(|shown| shown.command.contains("delete daemonset"))
        .unwrap();
    let output = shell(
        &deletion.command,
        migration.folder.path(),
        &migration.server,
    );
    assert!(!output.status.success(), "{}", deletion.command);
    assert!(
        migration.daemon_sets().contains_key("kube-proxy"),
        "{}",
        deletion.command
    );
    assert_eq!(
        migration.proxies()["worker-2"],
        BTreeSet::from(["kube-proxy".to_owned()])
    );
}
