//! Checks that there are no dependency cycles between modules.
//!
//! A dependency leads from a file that names an item to the file that defines it, through all re-exports, and from a type to
//! the file that adds the methods it calls. Unit tests are left out.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

mod graph;
mod module;
mod resolve;
mod tests;

use std::{collections::BTreeSet, fs, path::Path};

use self::{
    graph::{Arrows, Circle},
    module::{Module, modules},
};
use crate::workspace;

/// The layers of the agent from top to bottom, as `docs/builders/architecture.md` draws them: each module uses those of its own layer and of
/// layers below.
const LAYERS: &[&[&str]] = &[
    &["cli", "fuzz"],
    &["agent", "controller"],
    &["self_check"],
    &[
        "balance",
        "flows",
        "http",
        "local_addresses",
        "metrics",
        "otlp",
        "process",
        "service_manager",
    ],
    &["controllers", "drivers"],
    &["config", "health", "mirror"],
    &[
        "capabilities",
        "connections",
        "counters",
        "shared_tables",
        "environment",
        "kernel_evidence",
        "logging",
        "round_trip",
        "state_dir",
        "tls",
    ],
];

/// Reads a file of the workspace.
fn read(path: &Path) -> Option<String> {
    fs::read_to_string(workspace::root().join(path)).ok()
}

/// The modules of each target of the workspace.
fn targets() -> Vec<Vec<Module>> {
    let root = workspace::root();
    let packages = workspace::packages();
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().expect("a list"));
    targets
        .map(|target| {
            let source = Path::new(target["src_path"].as_str().expect("a path"));
            modules(
                source.strip_prefix(&root).expect("a file of the workspace"),
                &read,
            )
        })
        .collect()
}

#[test]
fn modules_need_each_other_nowhere() {
    let targets = targets();
    let circles: Vec<Circle> = targets
        .iter()
        .flat_map(|modules| Arrows::of(modules).circles())
        .collect();
    let circles: Vec<String> = circles.iter().map(ToString::to_string).collect();
    assert!(
        circles.is_empty(),
        "move what they share into a module of its own:\n{}",
        circles.join("\n")
    );
}

/// The top module of the agent that a file is in; none for the root.
fn top_module(file: &Path) -> Option<&str> {
    let inside = file.strip_prefix("agent/src").expect("a file of the agent");
    let top = inside.components().next()?.as_os_str().to_str()?;
    Some(top.strip_suffix(".rs").unwrap_or(top)).filter(|top| *top != "lib")
}

#[test]
fn agent_modules_use_no_higher_layer() {
    let modules = modules(Path::new("agent/src/lib.rs"), &read);
    let tops: BTreeSet<&str> = modules
        .iter()
        .filter_map(|module| top_module(&module.file))
        .collect();
    let named: BTreeSet<&str> = LAYERS.iter().copied().flatten().copied().collect();
    assert_eq!(tops, named, "the modules of the agent, and those in LAYERS");
    let layer = |file: &Path| {
        let top = top_module(file);
        LAYERS
            .iter()
            .position(|layer| top.is_some_and(|top| layer.contains(&top)))
    };
    let arrows = Arrows::of(&modules);
    let upwards = arrows
        .iter()
        .filter(|(from, to, _)| layer(to) < layer(from));
    assert_eq!(
        upwards.map(|(_, _, arrow)| arrow).collect::<Vec<_>>(),
        Vec::<&str>::new()
    );
}
