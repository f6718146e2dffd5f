//! Checks that there are no dependency cycles between modules.
//!
//! A dependency leads from a file that names an item to the file that defines it, through all re-exports, and from a type to
//! the file that adds the methods it calls. Unit tests are left out.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

mod graph;
mod module;
mod resolve;
mod tests;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use self::{
    graph::{Arrows, Circle},
    module::{Module, modules},
};
use crate::workspace;

/// Modules that still contain cycles. No new ones may be added, and repaired ones are removed.
const KNOWN: &[&str] = &[
];

/// The modules of each target of the workspace.
fn targets() -> Vec<Vec<Module>> {
    let root = workspace::root();
    let read = |path: &Path| fs::read_to_string(root.join(path)).ok();
    let packages = workspace::packages();
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().expect("a list"));
    targets
        .map(|target| {
            let source = Path::new(target["src_path"].as_str().expect("a path"));
            modules(source.strip_prefix(&root).expect("a file of the workspace"), &read)
        })
        .collect()
}

#[test]
fn modules_need_each_other_nowhere() {
    let targets = targets();
    let circles: Vec<Circle> = targets.iter().flat_map(|modules| Arrows::of(modules).circles()).collect();
    let known: BTreeSet<PathBuf> = KNOWN.iter().map(PathBuf::from).collect();
    let new = circles.iter().filter(|circle| !known.contains(&circle.inside));
    let new: Vec<String> = new.map(ToString::to_string).collect();
    assert!(new.is_empty(), "move what they share into a module of its own:\n{}", new.join("\n"));
    let found: BTreeSet<PathBuf> = circles.into_iter().map(|circle| circle.inside).collect();
    assert_eq!(
        known.difference(&found).collect::<Vec<_>>(),
        Vec::<&PathBuf>::new(),
        "take these out of KNOWN"
    );
}
