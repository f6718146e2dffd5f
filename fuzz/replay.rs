// Replays a fuzzing corpus in the tests of a crate, which includes this file.

/// Gives every file of `fuzz/corpus/TARGET/` to `law`, which panics if one of them breaks it.
fn replay(target: &str, law: impl Fn(&[u8])) {
    let mut folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|it| it.join("fuzz/corpus"));
    let folder = folders.find(|folder| folder.exists()).expect("the repository has fuzzers").join(target);
    let entries = std::fs::read_dir(&folder).expect("the corpus is checked in").map(|entry| entry.unwrap().path());
    let files: std::collections::BTreeSet<_> = entries.collect();
    assert!(files.len() > 5, "{} is no corpus", folder.display());
    for file in files {
        // Shown if the law is broken.
        println!("{}", file.display());
        law(&std::fs::read(file).unwrap());
    }
}
