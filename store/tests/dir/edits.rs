//! Edits of files.

use super::{folder::*, *};

#[tokio::test]
async fn edit_is_seen_at_once() {
    let mut folder = Folder::with(&[("web.yaml", &service("web", 80))]).await;
    assert_eq!(folder.ports().await, [("web".to_owned(), 80)]);
    let start = Instant::now();
    folder.write("web.yaml", &service("web", 81));
    assert_eq!(folder.next_change().await, ["put web 81"]);
    // Below a second even on a busy machine: nothing waits for a timer.
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    folder.write("new.json", &json_service("new", 1));
    assert_eq!(folder.next_change().await, ["put new 1"]);
    folder.remove("web.yaml");
    assert_eq!(folder.next_change().await, ["delete web"]);
    folder.assert_quiet().await;
}

#[tokio::test]
async fn revisions_count_changes() {
    let mut folder = Folder::with(&[("web.yaml", &service("web", 80))]).await;
    let before = folder.entries().await[0].mod_revision;
    folder.write("web.yaml", &service("web", 81));
    folder.next_change().await;
    assert_eq!(folder.entries().await[0].mod_revision, before + 1);
    // The same content is no change.
    folder.write("web.yaml", &format!("# a comment\n{}", service("web", 81)));
    folder.assert_quiet().await;
}

/// Creation revisions decide between two services with one address, so they must not depend on when this process saw them.
#[tokio::test]
async fn creation_revisions_are_same_after_any_start() {
    let mut folder = Folder::with(&[("web.yaml", &service("web", 80))]).await;
    folder.write("api.yaml", &service("api", 80));
    assert_eq!(folder.next_change().await, ["put api 80"]);
    let created = |entries: Vec<Entry>| -> Vec<_> {
        entries
            .into_iter()
            .map(|entry| (entry.key, entry.create_revision))
            .collect()
    };
    let running = created(folder.entries().await);
    let reopened = DirStore::open(&folder.path("")).await.unwrap();
    assert_eq!(created(reopened.list(ROOT).await.unwrap().entries), running);
    assert_eq!(running[0].1, running[1].1);
}

#[tokio::test]
async fn editors_that_write_beside_and_rename_over_delete_nothing() {
    let mut folder = Folder::with(&[("web.yaml", &service("web", 80))]).await;
    // sed -i, kubectl edit: a new file is renamed over the old one.
    folder.write(".web.yaml.tmp", &service("web", 81));
    folder.rename(".web.yaml.tmp", "web.yaml");
    assert_eq!(folder.next_change().await, ["put web 81"]);
    // vim: the old file becomes the backup, and a new one is written slowly.
    folder.rename("web.yaml", "web.yaml~");
    let mut file = fs::File::create(folder.path("web.yaml")).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let text = service("web", 82);
    std::io::Write::write_all(&mut file, &text.as_bytes()[..20]).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::io::Write::write_all(&mut file, &text.as_bytes()[20..]).unwrap();
    drop(file);
    folder.remove("web.yaml~");
    assert_eq!(folder.next_change().await, ["put web 82"]);
    folder.assert_quiet().await;
}

#[tokio::test]
async fn renamed_file_keeps_its_objects() {
    let mut folder = Folder::with(&[("a.yaml", &service("web", 80))]).await;
    folder.rename("a.yaml", "b.yaml");
    folder.assert_quiet().await;
    folder.write("b.yaml", &service("web", 81));
    assert_eq!(folder.next_change().await, ["put web 81"]);
}

#[tokio::test]
async fn half_file_is_never_read_even_when_others_change() {
    let two = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut folder = Folder::with(&[("two.yaml", &two)]).await;
    let mut file = fs::File::create(folder.path("two.yaml")).unwrap();
    std::io::Write::write_all(&mut file, service("a", 2).as_bytes()).unwrap();
    fs::create_dir(folder.path("sub")).unwrap();
    folder.write("sub/c.yaml", &service("c", 3));
    assert_eq!(folder.next_change().await, ["put c 3"]);
    std::io::Write::write_all(&mut file, format!("---\n{}", service("b", 2)).as_bytes()).unwrap();
    drop(file);
    assert_eq!(folder.next_change().await, ["put a 2", "put b 2"]);
}

#[tokio::test]
async fn file_that_is_linked_into_place_is_read_without_being_closed() {
    let mut folder = Folder::with(&[(".draft", &service("web", 1))]).await;
    fs::hard_link(folder.path(".draft"), folder.path("web.yaml")).unwrap();
    assert_eq!(folder.next_change().await, ["put web 1"]);
}

#[tokio::test]
async fn file_with_smaller_path_wins_and_other_takes_over() {
    let mut folder = Folder::with(&[("b.yaml", &service("web", 2))]).await;
    folder.write("a.yaml", &service("web", 1));
    assert_eq!(folder.next_change().await, ["put web 1"]);
    let problem = folder.next_problems().await.remove(0);
    assert_eq!(problem.source, folder.path("b.yaml").display().to_string());
    assert!(problem.reason.contains("a.yaml too"), "{problem}");
    folder.remove("a.yaml");
    assert_eq!(folder.next_change().await, ["put web 2"]);
    assert_eq!(folder.next_problems().await, []);
}

#[tokio::test]
async fn watch_begins_at_its_revision_and_not_before_history() {
    let mut folder = Folder::with(&[("web.yaml", &service("web", 1))]).await;
    let start = folder.store.list(ROOT).await.unwrap().revision;
    for port in 2..5 {
        folder.write("web.yaml", &service("web", port));
        folder.next_change().await;
    }
    let mut late = folder.store.watch(ROOT, start + 1).await.unwrap();
    assert_eq!(next_change_of(&mut late).await, ["put web 3"]);
    assert_eq!(next_change_of(&mut late).await, ["put web 4"]);
    let mut other = folder
        .store
        .watch("/vnf-agent/contiv-ksr/k8s/node/", start)
        .await
        .unwrap();
    assert!(
        timeout(Duration::from_millis(50), other.next())
            .await
            .is_err()
    );

    assert!(matches!(
        folder.store.watch(ROOT, 0).await,
        Err(StoreError::Compacted { .. })
    ));
    assert!(matches!(
        folder.store.watch(ROOT, 1_000).await,
        Err(StoreError::Rewound { .. })
    ));
}

#[tokio::test]
async fn file_rewritten_repeatedly_is_never_taken_for_empty() {
    const LAST: i32 = 1000;
    let mut folder = Folder::with(&[("web.yaml", &service("web", 1))]).await;
    // Each write truncates the file first, often while the previous content is being read.
    for port in 2..=LAST {
        folder.write("web.yaml", &service("web", port));
    }
    let last = format!("put web {LAST}");
    loop {
        // A partial text is a problem for a moment, and the previous state is kept.
        let changes = folder.next_change_past_problems().await;
        assert!(
            changes.iter().all(|change| change.starts_with("put web")),
            "{changes:?}"
        );
        if changes.contains(&last) {
            break;
        }
    }
    // A file that stays empty defines nothing, after some seconds.
    folder.write("web.yaml", "");
    assert_eq!(folder.next_change_past_problems().await, ["delete web"]);
}

#[tokio::test]
async fn write_through_another_hard_link_is_seen() {
    let outer = TempDir::new().unwrap();
    let root = outer.path().join("manifests");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("web.yaml"), service("web", 1)).unwrap();
    let other = outer.path().join("other");
    fs::hard_link(root.join("web.yaml"), &other).unwrap();
    let mut folder = Folder::open(outer, root).await;
    fs::write(&other, service("web", 2)).unwrap();
    assert_eq!(folder.next_change().await, ["put web 2"]);
    fs::write(&other, service("web", 3)).unwrap();
    assert_eq!(folder.next_change().await, ["put web 3"]);
    // There is no notification of a link that is made later elsewhere: it is found by the next list.
    folder.write("api.yaml", &service("api", 1));
    assert_eq!(folder.next_change().await, ["put api 1"]);
    let late = folder.outer.path().join("late");
    fs::hard_link(folder.path("api.yaml"), &late).unwrap();
    folder.entries().await;
    fs::write(&late, service("api", 2)).unwrap();
    assert_eq!(folder.next_change().await, ["put api 2"]);
    // Nor of one that is made in the folder and written elsewhere, unless the number of links is checked.
    fs::write(folder.outer.path().join("draft"), service("new", 1)).unwrap();
    fs::hard_link(folder.outer.path().join("draft"), folder.path("new.yaml")).unwrap();
    assert_eq!(folder.next_change().await, ["put new 1"]);
    fs::write(folder.outer.path().join("draft"), service("new", 2)).unwrap();
    assert_eq!(folder.next_change().await, ["put new 2"]);
}

/// inotify cannot report it: the changed link is in a folder that is not watched.
#[tokio::test]
async fn list_reads_changes_that_were_not_notified() {
    let folder = Folder::with(&[
        (".hidden/v1", &service("web", 1)),
        (".hidden/v2", &service("web", 2)),
    ])
    .await;
    symlink("v1", folder.path(".hidden/current")).unwrap();
    symlink(".hidden/current", folder.path("web.yaml")).unwrap();
    while folder.ports().await != [("web".to_owned(), 1)] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    symlink("v2", folder.path(".hidden/next")).unwrap();
    folder.rename(".hidden/next", ".hidden/current");
    assert_eq!(folder.ports().await, [("web".to_owned(), 2)]);
}
