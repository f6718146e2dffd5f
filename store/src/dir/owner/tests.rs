use std::fs;

use tempfile::TempDir;
use tokio::time::advance;

use super::*;

const WEB: &str =
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - port: 80\n";

fn count(owner: &Owner) -> usize {
    owner.folder.snapshot("/").entries.len()
}

/// With truncate(2) by path, the file is never closed.
#[tokio::test(start_paused = true)]
async fn file_truncated_without_being_closed_is_forgotten() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("web.yaml");
    fs::write(&path, WEB).unwrap();
    let (_commands, receiver) = mpsc::channel(1);
    let mut owner = Owner::open(root.path(), DirOptions::default(), receiver)
        .await
        .unwrap();

    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    let signal = owner.watcher.next().await;
    note(&mut owner.pending, signal);
    note_all(&mut owner.watcher, &mut owner.pending).await;
    owner.work(false).await;
    assert_eq!(count(&owner), 1);
    let (_, until) = owner
        .emptied()
        .next()
        .expect("the empty file is read again later");
    // Until then the file keeps its objects.
    advance(Duration::from_secs(30)).await;
    owner.work(false).await;
    owner.rescan_now().await;
    assert_eq!(count(&owner), 1);
    advance(until.duration_since(Instant::now())).await;
    owner.work(false).await;
    assert_eq!(count(&owner), 0);

    // Once written, it is read like any other file.
    fs::write(&path, WEB).unwrap();
    drop(file);
    let signal = owner.watcher.next().await;
    note(&mut owner.pending, signal);
    note_all(&mut owner.watcher, &mut owner.pending).await;
    owner.work(false).await;
    assert_eq!(count(&owner), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_folder_is_a_problem_until_it_is_back() {
    let parent = TempDir::new().unwrap();
    let (root, away) = (parent.path().join("manifests"), parent.path().join("away"));
    fs::create_dir(&root).unwrap();
    let (_commands, receiver) = mpsc::channel(1);
    let mut owner = Owner::open(&root, DirOptions::default(), receiver)
        .await
        .unwrap();
    for _ in 0..2 {
        fs::rename(&root, &away).unwrap();
        owner.work(true).await;
        assert_eq!(owner.folder.snapshot("/").problems.len(), 1);
        fs::rename(&away, &root).unwrap();
        owner.work(true).await;
        assert_eq!(
            (owner.folder.snapshot("/").problems, owner.retry),
            (vec![], None)
        );
    }
}

/// A file that is being replaced is missing during the walk, or half written when it is read.
#[tokio::test]
async fn file_being_replaced_during_rescan_keeps_its_objects() {
    let root = TempDir::new().unwrap();
    let (gone, half) = (root.path().join("gone.yaml"), root.path().join("half.yaml"));
    fs::write(&gone, WEB).unwrap();
    fs::write(&half, WEB.replace("web", "other")).unwrap();
    let (_commands, receiver) = mpsc::channel(1);
    let mut owner = Owner::open(root.path(), DirOptions::default(), receiver)
        .await
        .unwrap();
    assert_eq!(count(&owner), 2);

    fs::remove_file(&gone).unwrap();
    let mut writer = fs::File::create(&half).unwrap();
    std::io::Write::write_all(&mut writer, b"apiVersion: v1\nkind: Serv").unwrap();
    // `rescan` without reading the events first, as if the changes had happened after they were read.
    owner.rescan().await.unwrap();
    owner.publish();
    assert_eq!(count(&owner), 2);
    assert!(owner.folder.snapshot("/").problems.is_empty());
}

/// With its close the overflow may have lost that it was written.
#[tokio::test(start_paused = true)]
async fn file_replaced_by_empty_one_with_events_lost_is_forgotten() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("web.yaml");
    fs::write(&path, WEB).unwrap();
    let (_commands, receiver) = mpsc::channel(1);
    let mut owner = Owner::open(root.path(), DirOptions::default(), receiver)
        .await
        .unwrap();
    fs::remove_file(&path).unwrap();
    let _writer = fs::File::create(&path).unwrap();
    note_all(&mut owner.watcher, &mut owner.pending).await;
    owner.pending.note(Signal::EventsLost, Instant::now());
    owner.work(false).await;
    assert_eq!(count(&owner), 1, "it may be written yet");
    for _ in 0..2 {
        let due = owner
            .pending
            .deadline(Instant::now())
            .or(owner.emptied().map(|(_, until)| until).next());
        advance(
            due.expect("it is read again later")
                .duration_since(Instant::now()),
        )
        .await;
        owner.work(false).await;
    }
    assert_eq!(count(&owner), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_folder_is_looked_for_again_after_a_pause() {
    let outer = TempDir::new().unwrap();
    let root = outer.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("web.yaml"), WEB).unwrap();
    let (_commands, receiver) = mpsc::channel(1);
    let mut owner = Owner::open(&root, DirOptions::default(), receiver)
        .await
        .unwrap();
    fs::remove_dir_all(&root).unwrap();
    owner.work(true).await;
    assert_eq!(count(&owner), 1, "its last state stays");
    fs::create_dir(&root).unwrap();
    // Nothing is due yet: the thread would never sleep.
    owner.work(false).await;
    assert_eq!(count(&owner), 1);
    advance(
        owner
            .retry
            .expect("it is looked for again")
            .duration_since(Instant::now()),
    )
    .await;
    owner.work(false).await;
    assert_eq!((count(&owner), owner.retry), (0, None));
}
