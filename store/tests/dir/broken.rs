//! Manifests become invalid and are repaired.

use super::{folder::*, *};

#[tokio::test]
async fn broken_object_keeps_its_last_valid_state() {
    let file = |a: i32, b: i32| format!("{}---\n{}", service("a", a), service("b", b));
    let mut folder = Folder::with(&[("two.yaml", &file(1, 1))]).await;
    folder.write("two.yaml", &file(0, 2));
    assert_eq!(folder.next_change().await, ["put b 2"]);
    let problem = folder.next_problems().await.remove(0);
    assert_eq!(
        problem.source,
        format!("{}:1", folder.path("two.yaml").display())
    );
    assert_eq!(problem.object.as_deref(), Some("Service default/a"));
    assert_eq!(problem.field.as_deref(), Some("spec.ports[0].port"));
    assert_eq!(
        folder.ports().await,
        [("a".to_owned(), 1), ("b".to_owned(), 2)]
    );
    assert_eq!(folder.store.list(ROOT).await.unwrap().problems, [problem]);

    // Removed from a readable file, it is deleted, although the file was invalid before.
    folder.write("two.yaml", &service("b", 2));
    assert_eq!(folder.next_change().await, ["delete a"]);
    assert_eq!(folder.next_problems().await, []);
}

#[tokio::test]
async fn unreadable_file_keeps_all_its_objects_until_corrected() {
    let file = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut folder = Folder::with(&[("two.yaml", &file), ("z.yaml", &service("z", 1))]).await;
    folder.write("two.yaml", "a: [\n---\n");
    assert_eq!(
        folder.next_problems().await[0].source,
        folder.path("two.yaml").display().to_string()
    );
    // A readable part is used, and objects that the other part may contain are kept.
    folder.write("two.yaml", &format!("{}---\nx: [", service("a", 2)));
    assert_eq!(folder.next_change().await, ["put a 2"]);
    folder.next_problems().await;
    folder.write("z.yaml", &service("z", 2));
    assert_eq!(folder.next_change().await, ["put z 2"]);
    folder.write("two.yaml", &service("a", 3));
    assert_eq!(folder.next_change().await, ["put a 3", "delete b"]);
    assert_eq!(folder.next_problems().await, []);
}

#[tokio::test]
async fn link_to_nothing_and_file_that_is_no_text_keep_their_objects() {
    let mut folder = Folder::with(&[
        ("web.yaml", &service("web", 1)),
        (".target", &service("linked", 1)),
    ])
    .await;
    symlink(".target", folder.path("link.yaml")).unwrap();
    assert_eq!(folder.next_change().await, ["put linked 1"]);
    folder.remove(".target");
    let problems = folder.next_problems().await;
    assert!(problems[0].reason.contains("No such file"), "{problems:?}");
    fs::write(folder.path("web.yaml"), [0xff, 0xfe]).unwrap();
    let problems = folder.next_problems().await;
    assert!(problems[1].reason.contains("UTF-8"), "{problems:?}");
    assert_eq!(folder.ports().await.len(), 2);
    folder.remove("link.yaml");
    assert_eq!(folder.next_change().await, ["delete linked"]);
}

#[tokio::test]
async fn path_that_is_no_folder_is_refused() {
    let outer = TempDir::new().unwrap();
    fs::write(outer.path().join("file"), "").unwrap();
    for (name, problem) in [("none", "No such file"), ("file", "not a directory")] {
        let path = outer.path().join(name);
        let error = DirStore::open(&path).await.unwrap_err().to_string();
        assert!(
            error.contains(&path.display().to_string()) && error.contains(problem),
            "{error}"
        );
    }
}

/// The state saved by an earlier run.
async fn saved(files: &[(&str, &str)]) -> Vec<Entry> {
    Folder::with(files).await.entries().await
}

#[tokio::test]
async fn object_broken_at_the_start_keeps_its_saved_state() {
    let saved = saved(&[
        ("web.yaml", &service("web", 1)),
        ("gone.yaml", &service("gone", 1)),
    ])
    .await;
    let folder = Folder::with_saved(&[("web.yaml", &service("web", 0))], saved).await;
    assert_eq!(
        folder.ports().await,
        [("web".to_owned(), 1)],
        "gone is gone: its file is not there"
    );
    let mut folder = folder;
    folder.write("web.yaml", &service("web", 2));
    assert_eq!(folder.next_change_past_problems().await, ["put web 2"]);
}

#[tokio::test]
async fn file_unreadable_at_the_start_keeps_its_saved_state() {
    let files = [
        ("a.yaml", &*service("a", 1)),
        ("b.yaml", &service("b", 1)),
        ("c.yaml", &service("c", 1)),
    ];
    let saved = saved(&files).await;
    let files = [
        ("a.yaml", "a: ["),
        ("b.yaml", "b: ["),
        ("d/c.yaml", &service("c", 2)),
    ];
    let mut folder = Folder::with_saved(&files, saved).await;
    let port = |name: &str, port| (name.to_owned(), port);
    assert_eq!(
        folder.ports().await,
        [port("a", 1), port("b", 1), port("c", 2)]
    );
    // Both are kept until the last of the files can be read.
    folder.write("a.yaml", &service("a", 2));
    assert_eq!(folder.next_change_past_problems().await, ["put a 2"]);
    assert_eq!(
        folder.ports().await,
        [port("a", 2), port("b", 1), port("c", 2)]
    );
    folder.write("b.yaml", &service("new", 1));
    assert_eq!(
        folder.next_change_past_problems().await,
        ["delete b", "put new 1"]
    );
    assert_eq!(folder.store.list(ROOT).await.unwrap().problems, []);
}

#[tokio::test]
async fn valid_manifests_do_not_load_the_saved_state() {
    let outer = TempDir::new().unwrap();
    fs::write(outer.path().join("web.yaml"), service("web", 1)).unwrap();
    let recall: LoadSaved = Box::new(|| panic!("asked"));
    let options = DirOptions {
        recall: Some(recall),
        ..DirOptions::default()
    };
    let store = DirStore::open_with(outer.path(), options).await.unwrap();
    assert_eq!(store.list(ROOT).await.unwrap().entries.len(), 1);
}
