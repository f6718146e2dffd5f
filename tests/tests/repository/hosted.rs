//! Checks of the hosted workflows: they call the scripts that a developer calls, with one toolchain, and build all of a release.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{collections::BTreeSet, fs};

use crate::workspace::{packages, root};

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect(name)
}

/// The toolchains that a workflow installs.
fn toolchains(workflow: &str) -> BTreeSet<&str> {
    let rest = workflow.split("rustup toolchain install ").skip(1);
    rest.filter_map(|rest| rest.split_whitespace().next())
        .collect()
}

fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map(|number| number.parse().expect("a number"))
        .collect()
}

#[test]
fn workflow_of_tests_calls_the_script() {
    assert!(
        read(".github/workflows/test.yml")
            .lines()
            .any(|line| line.trim() == "- run: scripts/test")
    );
}

#[test]
fn workflow_of_releases_builds_every_part() {
    let workflow = read(".github/workflows/release.yml");
    for part in [
        "packaging/package",
        "arch: amd64",
        "arch: arm64",
        "packaging/image",
        ".cdx.json",
        "sha256sum",
    ] {
        assert!(workflow.contains(part), "{part}");
    }
}

#[test]
fn hosted_toolchain_is_one_version_and_not_forced_on_others() {
    let (test, release) = (
        read(".github/workflows/test.yml"),
        read(".github/workflows/release.yml"),
    );
    let all: BTreeSet<&str> = toolchains(&test)
        .union(&toolchains(&release))
        .copied()
        .collect();
    assert_eq!(all.len(), 1, "{all:?}");
    let pinned = all.first().expect("one");
    assert!(
        read("CONTRIBUTING.md").contains(&format!("Rust {pinned}")),
        "CONTRIBUTING.md names {pinned}"
    );
    // With such a file rustup would download that version, even where a newer one is there.
    for file in ["rust-toolchain", "rust-toolchain.toml"] {
        assert!(
            !root().join(file).exists(),
            "{file} forces its version on every machine"
        );
    }
    for package in packages() {
        let least = package["rust_version"].as_str().expect("a rust-version");
        assert!(
            numbers(least) <= numbers(pinned),
            "{least} of {}",
            package["name"]
        );
    }
}

#[test]
fn repository_has_the_files_that_contributors_look_for() {
    for file in [
        "LICENSE",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        ".editorconfig",
        ".gitmessage",
    ] {
        assert!(!read(file).trim().is_empty(), "{file}");
    }
}
