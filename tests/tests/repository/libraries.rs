//! The store and the controller runtime can be used by other projects.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{collections::BTreeSet, env, fs, process::Command};

use crate::workspace::root;

/// A controller outside the workspace, over etcd alone.
const EXAMPLE: &str = "examples/controller";
/// The packages that it may be built from.
const MAX_PACKAGES: usize = 120;

/// Runs cargo without network, with a target folder of its own, and returns what it prints.
fn cargo(arguments: &[&str]) -> String {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .arg("--offline")
        .env("CARGO_TARGET_DIR", root().join("target/libraries"))
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "cargo {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

#[test]
fn controller_of_another_project_compiles_and_is_small() {
    let manifest = format!("{EXAMPLE}/Cargo.toml");
    // The same versions as here, which are downloaded already. Cargo leaves out those that the example does not need.
    fs::copy(
        root().join("Cargo.lock"),
        root().join(EXAMPLE).join("Cargo.lock"),
    )
    .expect("the lock file is copied");
    let tree = cargo(&[
        "tree",
        "--manifest-path",
        &manifest,
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    let packages: BTreeSet<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .collect();
    assert!(
        packages.len() > 50 && packages.len() <= MAX_PACKAGES,
        "{} packages: {packages:#?}",
        packages.len()
    );
    cargo(&["check", "--quiet", "--manifest-path", &manifest]);
}

#[test]
fn libraries_can_be_packaged() {
    cargo(&[
        "package",
        "--quiet",
        "--package",
        "contiv-proto",
        "--package",
        "contiv-store",
        "--package",
        "contiv-controller",
        "--no-verify",
        "--allow-dirty",
    ]);
}
