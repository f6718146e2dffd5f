// Replays a fuzzing corpus in the tests of a crate, which includes this file.

/// Calls `check` with every file of `fuzz/corpus/TARGET/`; it panics if a property is violated.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let mut folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("fuzz/corpus"));
    let folder = folders
        .find(|folder| folder.exists())
        .expect("the repository has fuzzers")
        .join(target);
    let entries = std::fs::read_dir(&folder)
        .expect("the corpus is checked in")
        .map(|entry| entry.unwrap().path());
    let files: std::collections::BTreeSet<_> = entries.collect();
    assert!(files.len() > 5, "{} is no corpus", folder.display());
    for file in files {
        // Printed if the test fails.
        println!("{}", file.display());
        check(&std::fs::read(file).unwrap());
    }
}
