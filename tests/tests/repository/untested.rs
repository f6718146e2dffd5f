//! Targets that Cargo builds no tests for, to spare the build, contain none.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::workspace::{files, packages};

/// Languages of code in documentation that is no example to run.
const OTHER_LANGUAGES: [&str; 5] = ["text", "toml", "sh", "json", "yaml"];

/// The files of a target: all of a library, else the main file.
fn sources(target: &Value) -> Vec<PathBuf> {
    let main = Path::new(target["src_path"].as_str().expect("a path"));
    let mut sources = vec![main.to_owned()];
    if target["kind"] == json!(["lib"]) {
        sources.clear();
        files(main.parent().expect("a folder"), &mut sources);
        sources.retain(|path| path.extension() == Some(OsStr::new("rs")));
    }
    sources
}

fn has_test(code: &str) -> bool {
    code.lines().any(|line| {
        matches!(line.trim(), "#[test]" | "proptest! {") || line.trim().starts_with("#[tokio::test")
    })
}

/// Whether its documentation has an example that rustdoc would run.
fn has_example(code: &str) -> bool {
    let lines = code.lines().map(str::trim);
    let docs = lines.filter_map(|line| {
        line.strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
    });
    let fences = docs.filter_map(|line| line.trim().strip_prefix("```"));
    // Every second one ends a block.
    fences
        .step_by(2)
        .any(|language| !OTHER_LANGUAGES.contains(&language))
}

#[test]
fn targets_left_out_of_tests_contain_none() {
    let mut checked = 0;
    for package in packages() {
        for target in package["targets"].as_array().expect("targets") {
            let is_product = target["kind"] == json!(["lib"]) || target["kind"] == json!(["bin"]);
            for path in sources(target).into_iter().filter(|_| is_product) {
                let code = fs::read_to_string(&path).expect("a source file");
                let path = path.display();
                assert!(
                    target["test"] == true || !has_test(&code),
                    "{path} has tests, but Cargo.toml says test = false"
                );
                let has_no_doctests = target["doctest"] == true || !has_example(&code);
                assert!(
                    has_no_doctests || target["kind"] == json!(["bin"]),
                    "{path} has examples, but Cargo.toml says doctest = false"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "{checked} files were read");
}

#[test]
fn tests_and_examples_are_told_from_other_code() {
    assert!(
        has_test("mod tests {\n    #[test]\n    fn a() {}\n}")
            && has_test("#[tokio::test(flavor = \"x\")]")
    );
    assert!(!has_test("/// See the attribute `#[test]`."));
    let documented = |language: &str| {
        format!("//! ```{language}\n//! let a = 1;\n//! ```\n//! ```text\n//! ```\n")
    };
    assert!(
        ["", "rust", "no_run", "compile_fail,E0596"]
            .iter()
            .all(|language| has_example(&documented(language)))
    );
    assert!(
        !OTHER_LANGUAGES
            .iter()
            .any(|language| has_example(&documented(language)))
    );
}
