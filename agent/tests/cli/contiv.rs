//! Runs the binary.

use std::{
    ffi::OsStr,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// The output of a run, and its exit code.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary, in an environment without settings of contiv.
pub(crate) fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contiv"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CONTIV_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Run {
    finish(command(arguments))
}

/// Runs it with this standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &str) -> Run {
    let mut command = command(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    to_run(&child.wait_with_output().unwrap())
}

pub(crate) fn finish(mut command: Command) -> Run {
    to_run(&command.output().unwrap())
}

fn to_run(output: &std::process::Output) -> Run {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A service on port 80 of 10.96.0.`last`, and its slice with one endpoint.
pub(crate) fn web(name: &str, last: u8) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{clusterIP: 10.96.0.{last}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}]
endpoints: [{{addresses: [10.1.0.{last}]}}]
"
    )
}
