use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

fn watcher(root: &Path) -> Watcher {
    let mut watcher = Watcher::new(root).unwrap();
    let mut renewal = watcher.renew();
    renewal.folder(root).unwrap();
    renewal.finish(root);
    watcher
}

/// The signals up to now.
async fn signals(watcher: &mut Watcher) -> Vec<Signal> {
    let mut signals = Vec::new();
    while let Ok(signal) = timeout(Duration::from_millis(50), watcher.next()).await {
        signals.extend(signal.unwrap());
    }
    signals
}

#[tokio::test]
async fn each_way_to_change_file_has_its_signal() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut watcher = watcher(folder.path());

    fs::write(at("a.yaml"), "x").unwrap();
    let a = at("a.yaml");
    let written = [
        Signal::Created(a.clone()),
        Signal::Written(a.clone()),
        Signal::Complete(a.clone()),
    ];
    assert_eq!(signals(&mut watcher).await, written);

    fs::rename(at("a.yaml"), at("b.yaml")).unwrap();
    let renamed = Signal::Renamed {
        from: a,
        to: at("b.yaml"),
    };
    assert_eq!(
        signals(&mut watcher).await,
        [Signal::Removed(at("a.yaml")), renamed]
    );

    fs::rename(at("b.yaml"), at("b.yaml~")).unwrap();
    assert_eq!(
        signals(&mut watcher).await,
        [Signal::Removed(at("b.yaml")), Signal::FoldersMayHaveChanged]
    );

    fs::rename(at("b.yaml~"), at("c.yaml")).unwrap();
    assert_eq!(
        signals(&mut watcher).await,
        [
            Signal::FoldersMayHaveChanged,
            Signal::Complete(at("c.yaml"))
        ]
    );

    fs::hard_link(at("c.yaml"), at("d.yaml")).unwrap();
    assert!(
        signals(&mut watcher)
            .await
            .contains(&Signal::Complete(at("d.yaml")))
    );

    std::os::unix::fs::symlink("c.yaml", at("e.yaml")).unwrap();
    assert_eq!(signals(&mut watcher).await, [Signal::FoldersChanged]);

    fs::remove_file(at("d.yaml")).unwrap();
    assert!(
        signals(&mut watcher)
            .await
            .contains(&Signal::Removed(at("d.yaml")))
    );

    fs::create_dir(at("sub")).unwrap();
    fs::remove_dir(at("sub")).unwrap();
    assert_eq!(
        signals(&mut watcher).await,
        [Signal::FoldersChanged, Signal::FoldersMayHaveChanged]
    );
}

#[tokio::test]
async fn hidden_files_are_ignored_except_the_config_map_link() {
    let folder = TempDir::new().unwrap();
    let mut watcher = watcher(folder.path());
    fs::write(folder.path().join(".a.yaml.swp"), "x").unwrap();
    fs::create_dir(folder.path().join("..2024")).unwrap();
    std::os::unix::fs::symlink("..2024", folder.path().join("..tmp")).unwrap();
    assert_eq!(signals(&mut watcher).await, []);
    fs::rename(folder.path().join("..tmp"), folder.path().join("..data")).unwrap();
    assert_eq!(signals(&mut watcher).await, [Signal::FoldersChanged]);
}

#[tokio::test]
async fn folder_itself_and_link_in_its_place_are_noticed() {
    let outer = TempDir::new().unwrap();
    let root = outer.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut watcher = watcher(&root);
    fs::create_dir(outer.path().join("other")).unwrap();
    assert_eq!(
        signals(&mut watcher).await,
        [],
        "its neighbours do not matter"
    );
    fs::rename(&root, outer.path().join("old")).unwrap();
    assert!(
        signals(&mut watcher)
            .await
            .contains(&Signal::FoldersMayHaveChanged)
    );
    std::os::unix::fs::symlink("other", &root).unwrap();
    assert_eq!(signals(&mut watcher).await, [Signal::FoldersMayHaveChanged]);
}

#[tokio::test]
async fn inotify_overflow_is_reported_as_lost_events() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let folder = TempDir::new().unwrap();
    let mut watcher = watcher(folder.path());
    // Alternating between two files, since inotify merges equal consecutive events.
    let files = ["a.yaml", "b.yaml"].map(|name| folder.path().join(name));
    for i in 0..=limit {
        fs::write(&files[i % 2], "x").unwrap();
    }
    assert!(signals(&mut watcher).await.contains(&Signal::EventsLost));
}

#[tokio::test]
async fn watch_not_renewed_is_removed() {
    let folder = TempDir::new().unwrap();
    let mut watcher = watcher(folder.path());
    watcher.renew().finish(Path::new("/"));
    fs::write(folder.path().join("a.yaml"), "x").unwrap();
    assert_eq!(signals(&mut watcher).await, []);
}
