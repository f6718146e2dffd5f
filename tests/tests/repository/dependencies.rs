//! The direct dependencies, each with its reason, and the crates that the lock file has twice.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::workspace::root;

/// The crates with more than one version, and the dependencies that keep an older one. None of them is a choice of this repository.
const DUPLICATES: [(&str, &str); 10] = [
    (
        "base64",
        "tonic, pbjson, tower-http and k8s-openapi have 0.22",
    ),
    (
        "core-foundation",
        "for macOS only, by rustls-native-certs and hickory-resolver",
    ),
    ("getrandom", "ring has 0.2, and rand 0.9 has 0.3"),
    ("hashbrown", "petgraph has 0.15"),
    ("r-efi", "for UEFI only, by getrandom"),
    ("rand", "opentelemetry_sdk has 0.9"),
    ("rand_core", "as rand"),
    ("syn", "derive macros: 1 by etcd-client, 2 by most"),
    ("synstructure", "as syn"),
    ("windows-sys", "for Windows only"),
];

/// The versions of each crate in a lock file.
fn versions(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            line.strip_prefix(" = \"")?.strip_suffix('"')
        };
        let (name, version) = (
            value("name").expect("a name"),
            value("version").expect("a version"),
        );
        versions.entry(name).or_default().insert(version);
    }
    versions
}

#[test]
fn lock_file_has_no_duplicates_but_the_known_ones() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file");
    let versions = versions(&lock);
    assert!(versions.len() > 300, "{} crates", versions.len());
    let twice: BTreeMap<_, _> = versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .collect();
    let is_known = |name: &str| DUPLICATES.iter().any(|(known, _)| *known == name);
    let new: Vec<_> = twice.iter().filter(|(name, _)| !is_known(name)).collect();
    assert!(
        new.is_empty(),
        "more than one version of {new:?}: use one, or say in DUPLICATES what keeps the other"
    );
    let gone: Vec<_> = DUPLICATES
        .iter()
        .filter(|(name, _)| !twice.contains_key(name))
        .collect();
    assert!(
        gone.is_empty(),
        "one version is left of {gone:?}: take them out of DUPLICATES"
    );
}

#[test]
fn versions_are_read_from_a_lock_file() {
    let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0.0\"\n";
    assert_eq!(
        versions(lock),
        BTreeMap::from([("a", BTreeSet::from(["1.0.0", "2.0.0"]))])
    );
}

#[test]
fn each_direct_dependency_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let section = manifest
        .split("[workspace.dependencies]")
        .nth(1)
        .expect("a section");
    let section = section.split("\n[").next().unwrap_or_default();
    let lines: Vec<&str> = section
        .lines()
        .filter(|line| line.contains(" = ") && !line.starts_with("contiv-"))
        .collect();
    assert!(lines.len() > 60, "{} dependencies", lines.len());
    let bare: Vec<&&str> = lines.iter().filter(|line| !line.contains(" # ")).collect();
    assert!(
        bare.is_empty(),
        "say at the end of the line what each is for: {bare:#?}"
    );
}
