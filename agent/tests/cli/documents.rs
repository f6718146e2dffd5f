//! Runs every command in the documents: the lines of `sh` blocks, those of `console` blocks with a prompt, and `contiv …`
//! within a text. Commands that cannot be run here are in a table with what runs them instead.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
};

use contiv_store_testing::{ApiServer, Etcd};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    agent::{Agent, folder},
    contiv::web,
    documented::{DocumentedCommand, documented_commands, root},
    kubernetes_guide::{cluster_with_kube_proxy, path_with_tools},
};

/// Commands that need a kernel programmed by the agent, which the test does not have; only their arguments are tested.
const NEED_A_KERNEL: [&str; 5] = [
    "--kernel",
    "contiv top",
    "contiv verify",
    "contiv cleanup",
    "contiv support-bundle",
];

/// Commands that are not run here, by prefix, and why: they install, stop or set something of a whole machine, build a release, or need
/// a registry of images.
const ELSEWHERE: [(&str, &str); 13] = [
    (
        "sudo apt ",
        "packaging/package-test installs, upgrades and purges the package in a Debian of its own",
    ),
    ("sudo systemctl disable ", "the same, for the unit"),
    ("install target/dist/contiv ", "the same"),
    ("echo br_netfilter ", "it loads a module of the machine"),
    (
        "sudo sysctl ",
        "the settings of the machine are there with that module",
    ),
    (
        "ip ",
        "tests/tests/packets/routes asks the kernel for the same",
    ),
    (
        "cargo ",
        "scripts/test runs cargo; that the names exist is tested here",
    ),
    ("scripts/", "CI and people; that they exist is tested here"),
    ("packaging/", "the same"),
    ("benches/", "the same"),
    (
        "curl -s -H 'Content-Type: application/json' -d '{\"namespace\"",
        "tests/tests/packets/service_interfaces.rs attaches a pod: only the interface of one is taken, which no machine must have",
    ),
    (
        "curl -s -X DELETE 127.0.0.1:9999/pods/",
        "the same detaches it",
    ),
    (
        "skopeo ",
        "a registry is needed; packaging/image-test unpacks the same layout",
    ),
];

/// Whether `tests/tests/packets/pages.rs` runs the command on a machine of its own, after those before it on the page.
fn is_followed_in_order(shown: &DocumentedCommand) -> bool {
    let is_of_page = shown.place.starts_with("docs/users/getting-started.md:")
        || shown.section == "Four broken services";
    is_of_page
        && !["contiv ", "target/dist/contiv "]
            .iter()
            .any(|start| shown.command.starts_with(start))
}

fn is_elsewhere(shown: &DocumentedCommand) -> bool {
    is_followed_in_order(shown)
        || ELSEWHERE
            .iter()
            .any(|(start, _)| shown.command.starts_with(start))
}

/// Checks a command that is not run here, and describes the problem.
fn look_at(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if ["scripts/", "packaging/", "benches/"]
        .iter()
        .any(|folder| command.starts_with(folder))
    {
        let is_program = fs::metadata(root().join(words[0]))
            .is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
        return (!is_program).then(|| "there is no such script".to_owned());
    }
    let after = |flag| {
        words
            .iter()
            .position(|word| *word == flag)
            .and_then(|at| words.get(at + 1).copied())
    };
    let has_test = |name: &str| {
        ["tests", "store", "agent"].iter().any(|package| {
            root()
                .join(package)
                .join("tests")
                .join(name)
                .join("main.rs")
                .exists()
        })
    };
    if let Some(package) = after("-p")
        .filter(|package| !["contiv-agent", "contiv-store", "contiv-tests"].contains(package))
    {
        return Some(format!("there is no package {package}"));
    }
    after("--test")
        .filter(|name| !has_test(name))
        .map(|name| format!("there is no test {name}"))
}

/// The environment of the commands: an agent, a store in a folder, an etcd, manifests, and a cluster for real `kubectl` and `helm`.
struct Machine {
    folder: tempfile::TempDir,
    agent: Agent,
    etcd: Etcd,
    path: String,
    _runtime: Runtime,
}

impl Machine {
    fn start() -> Self {
        let folder = folder();
        let here = folder.path();
        fs::create_dir(here.join("examples")).unwrap();
        fs::copy(
            root().join("examples/web.yaml"),
            here.join("examples/web.yaml"),
        )
        .unwrap();
        // The agent of the test is n1.
        let demo = fs::read_to_string(root().join("examples/web.yaml"))
            .unwrap()
            .replace("worker-1", "n1");
        fs::write(here.join("manifests/demo.yaml"), demo).unwrap();
        symlink(root().join("packaging"), here.join("packaging")).unwrap();
        fs::create_dir(here.join("bin")).unwrap();
        symlink(
            env!("CARGO_BIN_EXE_contiv"),
            here.join("bin/kubectl-contiv"),
        )
        .unwrap();
        for input in ["cluster.yaml", "web.yaml", "billing.yaml"] {
            fs::write(here.join(input), web("web", 7)).unwrap();
        }
        fs::create_dir(here.join("store")).unwrap();
        for (number, object) in web("web", 7).split("---\n").enumerate() {
            fs::write(here.join(format!("store/{number}.yaml")), object).unwrap();
        }
        let runtime = Runtime::new().unwrap();
        let etcd = runtime.block_on(Etcd::start()).unwrap();
        let path = format!("{}:{}", path_with_tools(), here.join("bin").display());
        Self {
            agent: Agent::start(here),
            etcd,
            path,
            folder,
            _runtime: runtime,
        }
    }

    /// A cluster of nodes that kube-proxy serves, as one finds it before the first command of a document; with the service of the
    /// manifests, and with pods of agents, each of which is the agent of this test.
    fn cluster(&self) -> ApiServer {
        let nodes = ["n1", "worker-1"];
        let server = cluster_with_kube_proxy(&nodes);
        for object in serde_saphyr::from_multiple(&web("web", 7)).unwrap() {
            server.put(object).unwrap();
        }
        let port: u16 = self
            .agent
            .address
            .rsplit(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        for node in nodes {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("agent-on-{node}"), "namespace": "contiv",
                    "labels": {"app.kubernetes.io/name": "contiv-agent"},
                },
                "spec": {"nodeName": node, "containers": [{"ports": [{"name": "debug", "containerPort": port}]}]},
                "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
            });
            server.put(pod).unwrap();
        }
        server
    }

    /// Runs a command and describes its failure; none if it succeeds as expected.
    fn run(&self, shown: &DocumentedCommand, cluster: &ApiServer) -> Option<String> {
        let command = shown
            .command
            .replace("127.0.0.1:9999", &self.agent.address)
            .replace("curl -s", "curl -sS --fail")
            // The agent of the test programs no kernel.
            .replace("/renderers/nftables/", "/renderers/dry-run/")
            // This build.
            .replace("target/dist/contiv ", "contiv ");
        // A command that runs until it is stopped only has to accept its arguments.
        let runs_on =
            command.starts_with("contiv agent") || command.starts_with("contiv controller");
        let is_complete = command.contains("--check-config") || command.contains("--help");
        let command = if runs_on && !is_complete {
            format!("{command} --check-config")
        } else {
            command
        };
        // No election can be held in a folder. Nothing listens at this URL and no request is sent.
        let store = if command.starts_with("contiv controller") {
            "etcd://127.0.0.1:1".to_owned()
        } else {
            format!("dir:{}", self.folder.path().join("store").display())
        };
        let is_endless = command.contains("--watch") || command.contains(" -w ");
        let output = Command::new("timeout")
            .args([if is_endless { "5" } else { "60" }, "sh", "-c", &command])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", cluster.kubeconfig().unwrap())
            .env("CONTIV_AGENT", format!("http://{}", self.agent.address))
            .env("CONTIV_STORE", store)
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", self.etcd.url().replace("etcd://", ""))
            .output()
            .unwrap();
        let code = output.status.code();
        let error = String::from_utf8_lossy(&output.stderr);
        // A configuration file that only this command needs.
        let lacks_a_file = error.contains("/etc/contiv/") && error.contains("No such file");
        // `--watch` continues until it is stopped.
        let watches = code == Some(124) && is_endless;
        let needs_a_kernel =
            NEED_A_KERNEL.iter().any(|words| command.contains(words)) && code == Some(1);
        // A page about one machine may document the exit code of an expected problem.
        let is_documented = shown.comment.contains("exit code 1");
        let is_good = code == Some(0) || watches || needs_a_kernel || lacks_a_file || is_documented;
        (!is_good).then(|| format!("{code:?}: {error}"))
    }
}

#[test]
fn every_command_that_documents_show_works() {
    let shelves = ["docs/users", "docs/builders", "docs/proof"]
        .map(|shelf| fs::read_dir(root().join(shelf)).unwrap());
    let mut documents: Vec<PathBuf> = shelves
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "packaging/kubernetes/chart/README.md",
    ];
    documents.extend(others.map(|name| root().join(name)));
    documents.sort();
    let machine = Machine::start();
    let (mut ran, mut wrong) = (0, Vec::new());
    for document in documents {
        let cluster = machine.cluster();
        for shown in documented_commands(&document) {
            let problem = if is_elsewhere(&shown) {
                look_at(&shown.command)
            } else {
                ran += 1;
                machine.run(&shown, &cluster)
            };
            wrong.extend(
                problem.map(|problem| format!("{}: {}\n{problem}", shown.place, shown.command)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 80, "only {ran} commands were found");
}
