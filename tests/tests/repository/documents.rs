//! Checks that names in the documents exist in the code.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// All Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names of all tests: functions with an attribute such as `#[test]` or `#[tokio::test(…)]`, with no blank line between.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        for (start, keyword) in text.match_indices("fn ") {
            let attributes = text[..start].rsplit("\n\n").next().unwrap_or_default();
            if attributes.contains("test]") || attributes.contains("::test(") {
                let rest = &text[start + keyword.len()..];
                names.insert(
                    rest.chars()
                        .take_while(|c| c.is_alphanumeric() || *c == '_')
                        .collect(),
                );
            }
        }
    }
    names
}

/// The words between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The rows of the tables of a document whose last column is headed `proof`: the line, and the cells.
fn rows_with_proof(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut rows = Vec::new();
    let mut has_proof = false;
    for (number, line) in text.lines().enumerate() {
        let Some(inner) = line
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
        else {
            has_proof = false;
            continue;
        };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if cells.last() == Some(&"proof") {
            has_proof = true;
        } else if has_proof && !cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            rows.push((number + 1, cells));
        }
    }
    rows
}

#[test]
fn every_row_of_behaviour_table_names_tests_that_exist() {
    assert!(check("docs/proof/behaviour.md") > 50);
}

#[test]
fn every_promise_of_reliability_names_tests_that_exist() {
    assert!(check("docs/proof/reliability.md") > 5);
}

#[test]
fn every_scenario_of_controller_names_tests_that_exist() {
    assert!(check("docs/proof/controllers.md") > 270);
}

#[test]
fn every_part_of_contivs_processor_names_tests_that_exist() {
    assert!(check("docs/proof/contiv.md") > 180);
}

#[test]
fn every_promise_of_kubernetes_names_tests_that_exist() {
    assert!(check("docs/proof/kubernetes.md") > 30);
}

#[test]
fn every_service_test_of_kubernetes_names_tests_that_exist() {
    assert!(check("docs/proof/conformance.md") > 70);
}

/// A folder has only manifests, whose keys begin with `/vnf-agent/`: an example with other keys has nothing to do there.
#[test]
fn examples_show_a_store_that_can_have_their_keys() {
    let mut examples = Vec::new();
    sources(&root().join("controller/examples"), &mut examples);
    assert!(examples.len() > 3, "{examples:?}");
    for example in examples {
        let text = fs::read_to_string(&example).unwrap();
        let comment: Vec<&str> = text
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .collect();
        let shows_folder = comment.iter().any(|line| line.contains("-- dir:"));
        let words = comment
            .iter()
            .flat_map(|line| line.split(['`', ' ']))
            .filter(|word| word.len() > 1);
        let is_other_key = |word: &&str| {
            word.starts_with('/') && !word.starts_with("/vnf-agent/") && !word.starts_with("/tmp/")
        };
        let other_keys: Vec<&str> = words.filter(is_other_key).collect();
        assert!(
            !shows_folder || other_keys.is_empty(),
            "{}: {other_keys:?}",
            example.display()
        );
    }
}

/// Checks a document and returns the number of rows.
fn check(document: &str) -> usize {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let tests = tests();
    let rows = rows_with_proof(&text);
    let count = rows.len();
    let is_name =
        |word: &&str| word.contains('_') && word.chars().all(|c| c.is_alphanumeric() || c == '_');
    let mut wrong = Vec::new();
    for (line, cells) in rows {
        let proof = cells.last().copied().unwrap_or_default();
        for name in quoted(proof)
            .filter(is_name)
            .filter(|name| !tests.contains(*name))
        {
            wrong.push(format!("line {line}: there is no test {name}"));
        }
        let refers = quoted(proof).any(|word| is_name(&word)) || proof.contains("the same test");
        let is_matrix = proof
            .split(['*', ';', ' '])
            .any(|word| word == "M" || word == "O");
        let says_why = proof.starts_with("no test: ");
        if !refers && !is_matrix && !says_why {
            wrong.push(format!(
                "line {line}: no test proves {:?}, and it does not say why",
                cells[0]
            ));
        }
    }
    assert!(wrong.is_empty(), "{document}:\n{}", wrong.join("\n"));
    count
}

/// The first paragraph below the title of a page; comments are passed over.
fn first_paragraph(text: &str) -> &str {
    let mut paragraphs = text.split("\n\n").map(str::trim);
    paragraphs
        .find(|text| !text.starts_with('#') && !text.starts_with("<!--"))
        .unwrap_or_default()
}

#[test]
fn every_page_begins_with_its_readers() {
    let shelves = ["docs/users", "docs/builders", "docs/proof"]
        .map(|shelf| fs::read_dir(root().join(shelf)).unwrap());
    let pages = shelves
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = pages
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect();
    pages.extend(
        [
            "docs/README.md",
            "docs/decisions/README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        ]
        .map(|page| root().join(page)),
    );
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let first = first_paragraph(&text);
        assert!(
            first.starts_with("For "),
            "{} begins with {first:?}, not with \"For\" and its readers",
            page.display()
        );
    }
}

/// The output of packaging/release-notes for a version, and whether it succeeds.
fn release_notes(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(root().join("packaging/release-notes"))
        .args(arguments)
        .output()
        .unwrap();
    let text = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn release_notes_are_the_changelog_of_the_version_or_unreleased() {
    let changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## [1.2.3] - 2026-01-31\n\n\n### Added\n\n- one\n  goes on\n\n\
        ## 1.2.2\n\n- old\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, changelog).unwrap();
    let path = file.path().to_string_lossy();
    for (version, expected) in [
        ("1.2.3", "# contiv 1.2.3\n\n### Added\n\n- one\n  goes on\n"),
        ("1.2.2", "# contiv 1.2.2\n\n- old\n"),
        ("2.0.0", "# contiv 2.0.0\n\n- new\n"),
    ] {
        assert_eq!(
            release_notes(&[version, &path]),
            (true, expected.to_owned())
        );
    }
    fs::write(&file, "# Changelog\n").unwrap();
    let (is_good, error) = release_notes(&["2.0.0", &path]);
    assert!(
        !is_good && error.contains("neither a section 2.0.0 nor one Unreleased"),
        "{error}"
    );
}

#[test]
fn release_notes_of_this_version_are_same_bytes_each_time() {
    let (is_good, notes) = release_notes(&[env!("CARGO_PKG_VERSION")]);
    assert!(
        is_good && notes.lines().filter(|line| line.starts_with("- ")).count() > 20,
        "{notes}"
    );
    assert_eq!(release_notes(&[env!("CARGO_PKG_VERSION")]), (true, notes));
}

#[test]
fn documents_claim_no_kernel_version_that_nothing_checks() {
    // The agent tests the kernel's features at its start; no kernel version is compared.
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let claims: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("kernel of 5."))
        .collect();
    assert!(claims.is_empty(), "{claims:#?}");
}
