//! The bugs that `scripts/mutants` plants: each must still have its place.

use std::fs;

use crate::workspace::root;

#[test]
fn each_mutant_replaces_a_text_that_occurs_once() {
    let mutants =
        fs::read_to_string(root().join("sim/mutants/mutants.txt")).expect("the list of mutants");
    let all: Vec<&str> = mutants.split("=== ").skip(1).collect();
    assert!(all.len() >= 30, "{} mutants", all.len());
    let mut wrong = Vec::new();
    for mutant in all {
        let (name, rest) = mutant.split_once("\n--- ").expect("a name and a file");
        let (file, rest) = rest.split_once("\n<<<\n").expect("a file and a text");
        // Tests that must find it are named after the file.
        let file = file.lines().next().unwrap_or_default();
        let (before, _) = rest
            .split_once("\n>>>\n")
            .expect("a text and its replacement");
        let source = fs::read_to_string(root().join(file)).unwrap_or_default();
        let times = source.matches(before).count();
        if times != 1 {
            wrong.push(format!("{name}: {file} has its text {times} times"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
