//! Runs every command in the documents: the lines of `sh` blocks, those of `console` blocks with a prompt, and `contiv …`
//! within a text. Commands that cannot be run here are in a table with what runs them instead.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use contiv_store_testing::Etcd;
use tokio::runtime::Runtime;

use crate::{
    agent::{Agent, folder},
    contiv::web,
};

/// Commands that need a kernel programmed by the agent, which the test does not have; only their arguments are tested.
const NEED_A_KERNEL: [&str; 5] =
    ["--kernel", "contiv top", "contiv verify", "contiv cleanup", "contiv support-bundle"];

/// Commands that are not run here, by prefix, and why.
const ELSEWHERE: [(&str, &str); 16] = [
    ("sudo ", "scripts/package-test follows getting-started.md and installs, upgrades, stops and purges"),
    ("systemctl ", "the same"),
    ("python3 -m http.server ", "the same"),
    ("curl --silent ", "the same: it goes to a service of the page"),
    ("sed -i ", "the same"),
    ("echo ", "the same: it writes to a file of the machine"),
    ("nft ", "the same: it changes the kernel"),
    ("ip ", "tests/tests/packets/routes asks the kernel for the same"),
    ("install target/dist/contiv ", "scripts/package-test installs the package"),
    ("target/dist/contiv agent ", "scripts/package-test starts it by its unit"),
    ("cargo ", "scripts/test runs cargo; that the names exist is tested here"),
    ("scripts/", "CI and people; that they exist is tested here"),
    ("helm ", "scripts/manifests renders the chart"),
    ("skopeo ", "a registry is needed; scripts/image-test unpacks the same layout"),
    ("contiv status --cluster", "cluster.rs runs it with an API server"),
    ("export ", "the commands that follow get a store of the test"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A command in a document.
struct DocumentedCommand {
    place: String,
    /// Without comment, `sudo` and environment variables.
    command: String,
    comment: String,
}

impl DocumentedCommand {
    fn new(place: String, line: &str) -> Self {
        // Two spaces, so that fragments of URLs are not comments.
        let (command, comment) = line.split_once("  #").unwrap_or((line, ""));
        let mut command = command.trim();
        while let Some((setting, rest)) = command.split_once(' ')
            && setting.contains('=')
            && setting.starts_with(|c: char| c.is_ascii_uppercase())
        {
            command = rest.trim_start();
        }
        let command = match command.strip_prefix("sudo ") {
            Some(rest) if rest.starts_with("contiv ") => rest,
            _ => command,
        };
        Self { place, command: command.to_owned(), comment: comment.to_owned() }
    }
}

/// All commands of a document. A line that ends with a backslash or a pipe is continued.
fn documented_commands(document: &Path) -> Vec<DocumentedCommand> {
    let name = document.strip_prefix(root()).unwrap().display();
    let text = fs::read_to_string(document).unwrap();
    let (mut language, mut begun, mut found) = (None, String::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        let line = line.trim();
        match language {
            _ if line.starts_with("```") => {
                language = if language.is_none() { line.strip_prefix("```") } else { None };
            }
            None => {
                // The text between backticks.
                let spans = line.split('`').skip(1).step_by(2).filter(|span| span.starts_with("contiv "));
                found.extend(
                    spans.filter_map(in_text).map(|span| DocumentedCommand::new(place.clone(), &span)),
                );
            }
            Some("sh") if !line.is_empty() => {
                if let Some(begin) = line.strip_suffix('\\').or(line.ends_with('|').then_some(line)) {
                    begun += begin;
                    begun.push(' ');
                } else {
                    found.push(DocumentedCommand::new(place, &(std::mem::take(&mut begun) + line)));
                }
            }
            Some("console") => {
                if let Some(command) = line.strip_prefix("$ ").or(line.strip_prefix("# ")) {
                    found.push(DocumentedCommand::new(place, command));
                }
            }
            Some(_) => {}
        }
    }
    found
}

/// The command between backticks in a runnable form; none if it has optional parts.
fn in_text(span: &str) -> Option<String> {
    if span.contains(['[', '…']) {
        return None;
    }
    let filled = span.replace("NS/NAME", "shop/web").replace("NAME", "web").replace("FILE", "cluster.yaml");
    // It may lack arguments that the text does not mention; only its words are tested.
    Some(format!("{filled} --help"))
}

fn is_elsewhere(command: &str) -> bool {
    ELSEWHERE.iter().any(|(start, _)| command.starts_with(start))
}

/// Checks a command that is not run here, and describes the problem.
fn look_at(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if command.starts_with("scripts/") {
        let is_program =
            fs::metadata(root().join(words[0])).is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
        return (!is_program).then(|| "there is no such script".to_owned());
    }
    let after = |flag| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1).copied());
    let has_test = |name: &str| {
        ["tests", "store", "agent"]
            .iter()
            .any(|package| root().join(package).join("tests").join(name).join("main.rs").exists())
    };
    if let Some(package) =
        after("-p").filter(|package| !["contiv-agent", "contiv-store", "contiv-tests"].contains(package))
    {
        return Some(format!("there is no package {package}"));
    }
    after("--test").filter(|name| !has_test(name)).map(|name| format!("there is no test {name}"))
}

/// The environment of the commands: an agent, a store in a folder, an etcd, manifests, and a `kubectl` that prints some.
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
        fs::copy(root().join("examples/web.yaml"), here.join("examples/web.yaml")).unwrap();
        fs::copy(root().join("examples/web.yaml"), here.join("manifests/demo.yaml")).unwrap();
        for input in ["cluster.yaml", "web.yaml", "billing.yaml"] {
            fs::write(here.join(input), web("web", 7)).unwrap();
        }
        fs::create_dir(here.join("store")).unwrap();
        for (number, object) in web("web", 7).split("---\n").enumerate() {
            fs::write(here.join(format!("store/{number}.yaml")), object).unwrap();
        }
        fs::create_dir(here.join("bin")).unwrap();
        let kubectl = here.join("bin/kubectl");
        let kube_proxy = root().join("agent/src/cli/migrate/golden/kubeadm.yaml");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *'configmap kube-proxy'*) cat {} ;; *) cat {}/cluster.yaml ;; esac\n",
            kube_proxy.display(),
            here.display()
        );
        fs::write(&kubectl, script).unwrap();
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
        let binaries = Path::new(env!("CARGO_BIN_EXE_contiv")).parent().unwrap();
        let others = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{others}", binaries.display(), here.join("bin").display());
        let runtime = Runtime::new().unwrap();
        let etcd = runtime.block_on(Etcd::start()).unwrap();
        Self { agent: Agent::start(here), etcd, path, folder, _runtime: runtime }
    }

    /// Runs a command and describes its failure; none if it succeeds as expected.
    fn run(&self, shown: &DocumentedCommand) -> Option<String> {
        let command = shown
            .command
            .replace("127.0.0.1:9999", &self.agent.address)
            .replace("curl -s", "curl -sS --fail")
            // The agent of the test programs no kernel.
            .replace("/renderers/nftables/", "/renderers/dry-run/")
            // An interface that this machine has.
            .replace("\"veth7\"", "\"lo\"");
        // A command that runs until it is stopped only has to accept its arguments.
        let runs_on = command.starts_with("contiv agent") || command.starts_with("contiv controller");
        let is_complete = command.contains("--check-config") || command.contains("--help");
        let command = if runs_on && !is_complete { format!("{command} --check-config") } else { command };
        // No election can be held in a folder. Nothing listens at this URL and no request is sent.
        let store = if command.starts_with("contiv controller") {
            "etcd://127.0.0.1:1".to_owned()
        } else {
            format!("dir:{}", self.folder.path().join("store").display())
        };
        let output = Command::new("timeout")
            .args(["20", "sh", "-c", &command])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
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
        let watches = code == Some(124) && (command.contains("--watch") || command.contains(" -w"));
        let needs_a_kernel = NEED_A_KERNEL.iter().any(|words| command.contains(words)) && code == Some(1);
        // A page about one machine may document the exit code of an expected problem.
        let is_documented = shown.comment.contains("exit code 1");
        let is_good = code == Some(0) || watches || needs_a_kernel || lacks_a_file || is_documented;
        (!is_good).then(|| format!("{code:?}: {error}"))
    }
}

#[test]
fn every_command_that_documents_show_works() {
    let mut documents: Vec<PathBuf> =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.extend([root().join("README.md"), root().join("CONTRIBUTING.md")]);
    documents.sort();
    let machine = Machine::start();
    let (mut ran, mut wrong) = (0, Vec::new());
    for shown in documents.iter().flat_map(|document| documented_commands(document)) {
        let problem = if is_elsewhere(&shown.command) {
            look_at(&shown.command)
        } else {
            ran += 1;
            machine.run(&shown)
        };
        wrong.extend(problem.map(|problem| format!("{}: {}\n{problem}", shown.place, shown.command)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 80, "only {ran} commands were found");
}
