//! Checks the dependencies between the crates as `docs/builders/architecture.md` draws them.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::workspace;

/// Each crate of the workspace, and the crates of the workspace that it may depend on.
const ARROWS: [(&str, &[&str]); 20] = [
    ("contiv-proto", &[]),
    ("contiv-model", &["contiv-proto"]),
    ("contiv-model-testing", &["contiv-model", "contiv-proto"]),
    ("contiv-store", &["contiv-proto"]),
    ("contiv-store-testing", &["contiv-store", "contiv-proto"]),
    ("contiv-allocator", &[]),
    ("contiv-controller", &["contiv-store"]),
    (
        "contiv-reflector",
        &[
            "contiv-allocator",
            "contiv-controller",
            "contiv-store",
            "contiv-proto",
        ],
    ),
    (
        "contiv-connector",
        &["contiv-controller", "contiv-store", "contiv-proto"],
    ),
    ("contiv-connector-testing", &[]),
    (
        "contiv-external-workloads",
        &["contiv-controller", "contiv-store", "contiv-proto"],
    ),
    ("contiv-renderer", &["contiv-model"]),
    (
        "contiv-renderer-testing",
        &["contiv-renderer", "contiv-model"],
    ),
    (
        "contiv-node",
        &[
            "contiv-external-workloads",
            "contiv-renderer",
            "contiv-store",
            "contiv-model",
            "contiv-proto",
        ],
    ),
    (
        "contiv-agent",
        &[
            "contiv-node",
            "contiv-allocator",
            "contiv-renderer",
            "contiv-connector",
            "contiv-external-workloads",
            "contiv-reflector",
            "contiv-controller",
            "contiv-store",
            "contiv-model",
            "contiv-proto",
        ],
    ),
    (
        "contiv-sim",
        &[
            "contiv-allocator",
            "contiv-node",
            "contiv-renderer",
            "contiv-store",
            "contiv-model",
            "contiv-proto",
        ],
    ),
    ("contiv-mutants", &[]),
    // Only the connector's registries for tests.
    (
        "contiv-tests",
        &[
            "contiv-renderer",
            "contiv-connector",
            "contiv-store",
            "contiv-model",
        ],
    ),
    (
        "contiv-workload",
        &["contiv-renderer", "contiv-model", "contiv-proto"],
    ),
    (
        "contiv-benches",
        &[
            "contiv-allocator",
            "contiv-tests",
            "contiv-workload",
            "contiv-renderer",
            "contiv-store",
            "contiv-model",
            "contiv-proto",
        ],
    ),
];

/// External crates that only some of our crates may use. A `*` at the end matches any suffix.
const RESERVED: [(&str, &[&str]); 7] = [
    // The proxy that lies decodes its messages.
    ("etcd-client", &["contiv-store", "contiv-store-testing"]),
    ("kube", &["contiv-store"]),
    ("netlink-*", &["contiv-renderer"]),
    ("rtnetlink", &["contiv-renderer"]),
    // An independent reader of the table.
    ("nftables", &["contiv-renderer"]),
    ("axum", &["contiv-agent"]),
    ("clap", &["contiv-agent", "contiv-benches"]),
];

/// The dependencies of each crate of any kind: normal, build and development. A crate of fakes
/// (`contiv-store-testing`) that only tests use counts as the crate that it is for.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Describes every dependency that is not allowed.
fn violations(dependencies: &Dependencies) -> Vec<String> {
    let mut found = Vec::new();
    for (krate, needed) in dependencies {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| name == krate) else {
            found.push(format!(
                "{krate} is new: say in ARROWS what it may depend on"
            ));
            continue;
        };
        for dependency in needed {
            // A crate may enable its own features for its tests.
            let ours = dependency != krate && ARROWS.iter().any(|(name, _)| name == dependency);
            if ours && !allowed.contains(&dependency.as_str()) {
                found.push(format!("{krate} must not depend on {dependency}"));
            }
            let reserved = RESERVED
                .iter()
                .find(|(pattern, _)| matches(pattern, dependency));
            if let Some((_, owners)) = reserved
                && !owners.contains(&krate.as_str())
            {
                found.push(format!(
                    "{krate} must not name {dependency}: that is for {}",
                    owners.join(", ")
                ));
            }
        }
    }
    found
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == name, |start| name.starts_with(start))
}

/// The crate that a dependency counts as.
fn counted_name(dependency: &Value) -> String {
    let name = dependency["name"].as_str().expect("a name");
    let subject = name
        .strip_suffix("-testing")
        .filter(|_| dependency["kind"] == "dev");
    subject.unwrap_or(name).to_owned()
}

/// The dependencies that Cargo reports for the workspace.
fn dependencies() -> Dependencies {
    let names = |values: &Value| {
        values
            .as_array()
            .expect("a list")
            .iter()
            .map(counted_name)
            .collect()
    };
    let packages = workspace::packages();
    let entry = |package: &Value| {
        (
            package["name"].as_str().expect("a name").to_owned(),
            names(&package["dependencies"]),
        )
    };
    packages.iter().map(entry).collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                rust_files(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn every_arrow_between_crates_is_one_of_those_drawn() {
    let dependencies = dependencies();
    assert!(
        dependencies.len() >= 6,
        "these are not all crates: {:?}",
        dependencies.keys()
    );
    assert_eq!(violations(&dependencies), Vec::<String>::new());
}

#[test]
fn arrows_and_reserved_crates_are_all_in_use() {
    let dependencies = dependencies();
    let mut unused = Vec::new();
    for (krate, allowed) in ARROWS {
        let needed = dependencies
            .get(krate)
            .unwrap_or_else(|| panic!("there is no crate {krate}"));
        unused.extend(
            allowed
                .iter()
                .filter(|name| !needed.contains(**name))
                .map(|name| (krate, *name)),
        );
    }
    for (pattern, owners) in RESERVED {
        let is_used = |owner: &&&str| {
            dependencies
                .get(**owner)
                .is_some_and(|all| all.iter().any(|name| matches(pattern, name)))
        };
        unused.extend(
            owners
                .iter()
                .filter(|owner| !is_used(owner))
                .map(|owner| (*owner, pattern)),
        );
    }
    assert_eq!(unused, []);
}

#[test]
fn only_the_wire_module_of_the_model_names_wire_messages() {
    let source = workspace::root().join("model/src");
    let naming: Vec<PathBuf> = rust_files(&source)
        .into_iter()
        .filter(|path| {
            fs::read_to_string(path)
                .expect("a source file")
                .contains("contiv_proto")
        })
        .filter(|path| !path.starts_with(source.join("wire")) && *path != source.join("wire.rs"))
        .collect();
    assert_eq!(naming, Vec::<PathBuf>::new());
}

#[test]
fn wrong_arrow_of_any_kind_is_found() {
    let depends = |krate: &str, on: &str| {
        Dependencies::from([(krate.to_owned(), BTreeSet::from([on.to_owned()]))])
    };
    for (krate, on) in [
        ("contiv-model", "contiv-store"),
        ("contiv-tests", "contiv-agent"),
        ("contiv-renderer", "contiv-proto"),
        ("contiv-agent", "etcd-client"),
        ("contiv-agent", "netlink-sys"),
        ("contiv-tests", "netlink-packet-core"),
        ("contiv-renderer", "clap"),
        ("contiv-new", "serde"),
        // Fakes are no part of what ships.
        ("contiv-agent", "contiv-store-testing"),
        ("contiv-controller", "contiv-store-testing"),
    ] {
        assert_eq!(violations(&depends(krate, on)).len(), 1, "{krate} -> {on}");
    }
    for (krate, on) in [
        ("contiv-store", "contiv-store"),
        ("contiv-store", "etcd-client"),
        ("contiv-renderer", "netlink-sys"),
        ("contiv-renderer", "nftables"),
        ("contiv-agent", "contiv-controller"),
        ("contiv-model", "serde"),
    ] {
        assert_eq!(
            violations(&depends(krate, on)),
            Vec::<String>::new(),
            "{krate} -> {on}"
        );
    }
}

#[test]
fn binary_of_packet_tests_has_default_features() {
    let binary = contiv_tests::agent::binary().expect("it is built with the tests");
    let output = Command::new(binary)
        .args(["version", "-o", "json"])
        .output()
        .expect("it starts");
    let version: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let packages = workspace::packages();
    let agent = packages
        .iter()
        .find(|package| package["name"] == "contiv-agent")
        .expect("the agent");
    let default = agent["features"]
        .get("default")
        .cloned()
        .unwrap_or_else(|| Value::Array(Vec::new()));
    assert_eq!(version["features"], default);
}

#[test]
fn fakes_in_dev_dependencies_count_as_their_subject() {
    let dependency =
        |kind: Value| serde_json::json!({ "name": "contiv-store-testing", "kind": kind });
    assert_eq!(counted_name(&dependency("dev".into())), "contiv-store");
    assert_eq!(
        counted_name(&dependency("build".into())),
        "contiv-store-testing"
    );
    assert_eq!(
        counted_name(&dependency(Value::Null)),
        "contiv-store-testing"
    );
}

/// Rust files in `folder` that no `mod` of the file `root` names: they are not compiled, and their tests never run.
fn undeclared(folder: &Path, root: &Path) -> Vec<PathBuf> {
    let declarations = fs::read_to_string(root).expect("the root of a module");
    let is_declared = |name: &str| {
        declarations
            .lines()
            .map(|line| line.trim().trim_start_matches("pub(crate) "))
            .any(|line| line.trim_start_matches("pub ") == format!("mod {name};"))
    };
    let entries = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries
        .filter(|path| path != root)
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs"))
        .flat_map(|path| {
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let missing = (!is_declared(name)).then(|| path.clone());
            let roots = [path.join("mod.rs"), path.with_extension("rs")];
            let root = roots
                .into_iter()
                .find(|root| path.is_dir() && root.exists());
            let inside = root
                .map(|root| undeclared(&path, &root))
                .unwrap_or_default();
            missing.into_iter().chain(inside)
        })
        .collect()
}

#[test]
fn test_files_are_all_modules_of_their_target() {
    let packages = workspace::packages();
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().expect("a list"));
    let roots = targets
        .filter(|target| target["kind"][0] == "test")
        .map(|target| PathBuf::from(target["src_path"].as_str().expect("a path")))
        // A target that is one file has no modules.
        .filter(|root| root.ends_with("main.rs"));
    let roots: Vec<PathBuf> = roots.collect();
    assert!(
        roots.contains(&workspace::root().join("tests/tests/packets/main.rs")),
        "{roots:?}"
    );
    for root in roots {
        assert_eq!(
            undeclared(root.parent().expect("a folder"), &root),
            Vec::<PathBuf>::new()
        );
    }
}
