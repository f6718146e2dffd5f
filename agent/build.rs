//! Sets the commit and the features that `contiv version` prints. What is built without git, as from a
//! tarball, does not know the commit; `CONTIV_COMMIT` says it then.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=CONTIV_COMMIT");
    let given = std::env::var("CONTIV_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    // Without this line cargo would look at every file of the package.
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(commit) = given.or_else(git_revision) {
        println!("cargo::rustc-env=CONTIV_BUILD_COMMIT={commit}");
    }
    println!(
        "cargo::rustc-env=CONTIV_BUILD_FEATURES={}",
        features().join(",")
    );
}

/// The features of this crate that are on, by name.
fn features() -> Vec<String> {
    let names = std::env::vars()
        .filter_map(|(name, _)| name.strip_prefix("CARGO_FEATURE_").map(str::to_lowercase));
    let mut features: Vec<String> = names
        .filter(|name| name != "default")
        .map(|name| name.replace('_', "-"))
        .collect();
    features.sort();
    features
}

/// The commit of the repository that this package is in; none if the package is part of another repository, or of none.
fn git_revision() -> Option<String> {
    // The sources may have been unpacked inside of another working tree.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let head = git(&["rev-parse", "--git-path", "HEAD"])?;
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let branch = branch.and_then(|branch| git(&["rev-parse", "--git-path", &branch]));
    for path in [
        Some(head),
        branch,
        git(&["rev-parse", "--git-path", "packed-refs"]),
    ]
    .into_iter()
    .flatten()
    {
        if std::path::Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    Some(commit)
}

/// The output of git; none if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}
