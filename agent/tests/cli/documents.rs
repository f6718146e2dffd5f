//! Every command that the documents show is run: lines of `console` blocks that begin with `$ contiv` or `# contiv`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    agent::{Agent, folder},
    contiv::web,
};

/// What needs a kernel that the agent programs, which the test does not have; only that the words are right is tested.
const NEED_A_KERNEL: [&str; 5] =
    ["--kernel", "contiv top", "contiv verify", "contiv cleanup", "contiv support-bundle"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Each command with the place where it is shown. A line that ends with a backslash goes on.
fn commands(document: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(document).unwrap().replace("\\\n", " ");
    let mut in_console = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            in_console = language == "console";
        } else if let Some(command) =
            line.trim_start().strip_prefix("$ ").or(line.trim_start().strip_prefix("# "))
            && in_console
            && command.starts_with("contiv ")
        {
            found.push((format!("{}:{}", document.display(), number + 1), command.to_owned()));
        }
    }
    found
}

#[test]
fn every_command_that_the_documents_show_works() {
    let folder = folder();
    let here = folder.path();
    fs::create_dir(here.join("examples")).unwrap();
    fs::copy(root().join("examples/web.yaml"), here.join("examples/web.yaml")).unwrap();
    fs::copy(root().join("examples/web.yaml"), here.join("manifests/demo.yaml")).unwrap();
    for input in ["cluster.yaml", "web.yaml", "billing.yaml"] {
        fs::write(here.join(input), web("web", 7)).unwrap();
    }
    let agent = Agent::start(here);
    let store = here.join("store");
    fs::create_dir(&store).unwrap();
    fs::write(store.join("web.yaml"), web("web", 7)).unwrap();
    let binaries = Path::new(env!("CARGO_BIN_EXE_contiv")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());

    let mut documents: Vec<PathBuf> =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.extend([root().join("README.md"), root().join("CONTRIBUTING.md")]);
    documents.sort();
    let (mut count, mut wrong) = (0, Vec::new());
    for (place, shown) in documents.iter().flat_map(|document| commands(document)) {
        count += 1;
        // What runs until it is stopped only has to understand its words.
        let runs_on = shown.starts_with("contiv agent") || shown.starts_with("contiv controller");
        let (command, comment) = shown.split_once("  #").unwrap_or((&shown, ""));
        let command = if runs_on && !command.contains("--check-config") {
            format!("{command} --check-config")
        } else {
            command.to_owned()
        };
        // No election can be held in a folder. Nobody listens there, and nobody is asked.
        let store = if command.starts_with("contiv controller") {
            "etcd://127.0.0.1:1".to_owned()
        } else {
            format!("dir:{}", store.display())
        };
        let output = Command::new("timeout")
            .args(["20", "sh", "-c", &command])
            .current_dir(here)
            .env("PATH", &path)
            .env("CONTIV_AGENT", format!("http://{}", agent.address))
            .env("CONTIV_STORE", store)
            .output()
            .unwrap();
        let code = output.status.code();
        let error = String::from_utf8_lossy(&output.stderr);
        // A file of the configuration that only that command needs.
        let lacks_a_file = command.contains("/etc/contiv/") && error.contains("No such file");
        // `--watch` goes on until it is stopped.
        let watches = code == Some(124) && (command.contains("--watch") || command.contains(" -w"));
        let needs_a_kernel = NEED_A_KERNEL.iter().any(|words| command.contains(words)) && code == Some(1);
        if !(code == Some(0) || watches || needs_a_kernel || lacks_a_file || comment.contains("exit code 1"))
        {
            wrong.push(format!("{place}: {shown}\n{code:?}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 15, "only {count} commands were found");
}
