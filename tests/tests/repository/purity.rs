//! The core of the node decides and does nothing else: no clock, chance, thread, lock, channel or I/O is named in it.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::workspace;

/// The pure part of `agent/src/node`.
const PURE: [&str; 4] = ["core.rs", "core", "decode.rs", "message.rs"];
/// Names that must not occur there.
const IMPURE: [&str; 14] = [
    "tokio",
    "async ",
    "await;",
    "Instant::now",
    "Timestamp::now",
    "SystemTime",
    "rand::",
    "Mutex",
    "RwLock",
    "Atomic",
    "thread::",
    "mpsc",
    "std::fs",
    "std::net::T",
];

/// All files of a folder, or the file.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| files(&entry)).collect()
}

#[test]
fn node_core_names_neither_clock_nor_chance_nor_io() {
    let node = workspace::root().join("agent/src/node");
    let mut found = Vec::new();
    for file in PURE.iter().flat_map(|part| files(&node.join(part))) {
        let is_test = file
            .file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"));
        let text = fs::read_to_string(&file).unwrap();
        // Comments may name what the code does not use, and tests have their own clock.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in (1..)
            .zip(code.lines())
            .filter(|(_, line)| !is_test && !line.trim_start().starts_with("//"))
        {
            let impure = IMPURE.iter().filter(|word| line.contains(**word));
            found.extend(impure.map(|word| format!("{}:{number}: {word}", file.display())));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
