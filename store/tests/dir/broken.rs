//! Files break and are mended.

use super::{folder::*, *};

#[tokio::test]
async fn a_broken_object_keeps_its_last_good_state_and_the_others_go_on() {
    let file = |a: i32, b: i32| format!("{}---\n{}", service("a", a), service("b", b));
    let mut folder = Folder::with(&[("two.yaml", &file(1, 1))]).await;
    folder.write("two.yaml", &file(0, 2));
    assert_eq!(folder.next_change().await, ["put b 2"]);
    let problem = folder.next_problems().await.remove(0);
    assert_eq!(problem.source, format!("{}:1", folder.path("two.yaml").display()));
    assert_eq!(problem.object.as_deref(), Some("Service default/a"));
    assert_eq!(problem.field.as_deref(), Some("spec.ports[0].port"));
    assert_eq!(folder.ports().await, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    assert_eq!(folder.store.list(ROOT).await.unwrap().problems, [problem]);

    // Removed from a file that can be read, it is gone, although it was broken.
    folder.write("two.yaml", &service("b", 2));
    assert_eq!(folder.next_change().await, ["delete a"]);
    assert_eq!(folder.next_problems().await, []);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_keeps_all_its_objects_until_it_is_mended() {
    let file = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut folder = Folder::with(&[("two.yaml", &file), ("z.yaml", &service("z", 1))]).await;
    folder.write("two.yaml", "a: [\n---\n");
    assert_eq!(folder.next_problems().await[0].source, folder.path("two.yaml").display().to_string());
    // A readable part counts, and what the other part may have held stays.
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
async fn a_link_to_nothing_and_a_file_that_is_no_text_keep_their_objects() {
    let mut folder =
        Folder::with(&[("web.yaml", &service("web", 1)), (".target", &service("linked", 1))]).await;
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
async fn a_path_that_is_no_folder_is_refused() {
    let outer = TempDir::new().unwrap();
    fs::write(outer.path().join("file"), "").unwrap();
    for (name, problem) in [("none", "No such file"), ("file", "not a directory")] {
        let path = outer.path().join(name);
        let error = DirStore::open(&path).await.unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains(problem), "{error}");
    }
}
