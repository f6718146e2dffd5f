//! Hostile files in the folder must not harm the reader.

use super::{folder::*, *};

/// The reason of the only problem.
async fn reason(folder: &Folder) -> String {
    let problems = folder.store.list(ROOT).await.unwrap().problems;
    let [problem] = problems.as_slice() else {
        panic!("expected one problem: {problems:?}")
    };
    problem.to_string()
}

#[tokio::test]
async fn file_above_size_limit_is_refused() {
    let folder = Folder::with(&[("web.yaml", &service("web", 1))]).await;
    let file = fs::File::create(folder.path("large.yaml")).unwrap();
    file.set_len(40 << 20).unwrap();
    drop(file);
    let reopened = Folder::open(TempDir::new().unwrap(), folder.path("")).await;
    let reason = reason(&reopened).await;
    assert!(
        reason.contains("large.yaml") && reason.contains("at most 32 MiB"),
        "{reason}"
    );
    assert_eq!(reopened.ports().await, [("web".to_owned(), 1)]);
}

#[tokio::test]
async fn link_out_of_folder_is_not_followed_by_default() {
    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, service("web", 1)).unwrap();
    let outer = TempDir::new().unwrap();
    let root = outer.path().join("manifests");
    fs::create_dir(&root).unwrap();
    symlink(&target, root.join("web.yaml")).unwrap();
    let folder = Folder::open(outer, root).await;
    let reason = reason(&folder).await;
    assert!(
        reason.contains("web.yaml") && reason.contains("leads out of the folder"),
        "{reason}"
    );
    assert_eq!(folder.ports().await, []);
}

#[tokio::test]
async fn folder_link_into_proc_is_not_walked() {
    let outer = TempDir::new().unwrap();
    let root = outer.path().join("manifests");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("web.yaml"), service("web", 1)).unwrap();
    symlink("/proc/self", root.join("proc")).unwrap();
    symlink("/proc/kmsg", root.join("kmsg.yaml")).unwrap();
    let folder = timeout(Duration::from_secs(60), Folder::open(outer, root))
        .await
        .expect("it blocks");
    let problems = folder.store.list(ROOT).await.unwrap().problems;
    let sources: Vec<_> = problems
        .iter()
        .map(|it| it.source.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(sources, ["kmsg.yaml", "proc"], "{problems:?}");
    assert!(
        problems
            .iter()
            .all(|it| it.reason.contains("leads out of the folder")),
        "{problems:?}"
    );
    assert_eq!(folder.ports().await, [("web".to_owned(), 1)]);
}

#[tokio::test]
async fn pipe_is_refused_without_reading_it() {
    let folder = Folder::with(&[("web.yaml", &service("web", 1))]).await;
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path("pipe.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    let reopened = Folder::open(TempDir::new().unwrap(), folder.path("")).await;
    let reason = reason(&reopened).await;
    assert!(reason.contains("not a regular file"), "{reason}");
    assert_eq!(reopened.ports().await, [("web".to_owned(), 1)]);
}

#[tokio::test]
async fn folders_in_one_another_end_at_limit() {
    let deep = "d/".repeat(100);
    let folder = Folder::with(&[
        ("web.yaml", &service("web", 1)),
        (&format!("{deep}deep.yaml"), ""),
    ])
    .await;
    let reason = reason(&folder).await;
    assert!(
        reason.contains("more than 64 folders in one another"),
        "{reason}"
    );
    assert_eq!(folder.ports().await, [("web".to_owned(), 1)]);
}

/// Each map of seven bytes uses a hundred times as much memory.
#[tokio::test]
async fn document_of_too_many_parts_is_refused() {
    let text = "- a: 1\n".repeat(1 << 20);
    let folder = Folder::with(&[("many.yaml", &text), ("web.yaml", &service("web", 1))]).await;
    let reason = reason(&folder).await;
    assert!(
        reason.contains("many.yaml: it has more than 2000000 scalars"),
        "{reason}"
    );
    assert_eq!(folder.ports().await, [("web".to_owned(), 1)]);
}

#[tokio::test]
async fn file_with_many_problems_reports_the_first() {
    let list = format!(
        "{{apiVersion: v1, kind: List, items: [{}]}}\n",
        "1, ".repeat(20_000)
    );
    let broken = "---\n[\n".repeat(60_000);
    let files = [
        ("list.yaml", &*list),
        ("broken.yaml", &broken),
        ("web.yaml", &service("web", 1)),
    ];
    let folder = Folder::with(&files).await;
    let problems = folder.store.list(ROOT).await.unwrap().problems;
    let more = problems
        .iter()
        .filter(|problem| problem.reason.contains("there are more"));
    assert_eq!((problems.len(), more.count()), (2 * 1001, 2));
    assert_eq!(folder.ports().await, [("web".to_owned(), 1)]);
}
