//! Changes of folders and links.

use super::{folder::*, *};

#[tokio::test]
async fn folders_come_move_and_go() {
    let mut folder = Folder::with(&[]).await;
    fs::create_dir_all(folder.path("a/b")).unwrap();
    folder.write("a/b/web.yaml", &service("web", 1));
    assert_eq!(folder.next_change().await, ["put web 1"]);
    folder.write("a/b/web.yaml", &service("web", 2));
    assert_eq!(folder.next_change().await, ["put web 2"]);
    folder.rename("a", "c");
    folder.assert_quiet().await;
    folder.write("c/b/web.yaml", &service("web", 3));
    assert_eq!(folder.next_change().await, ["put web 3"]);
    // Moved out of the folder, it is deleted, and later changes there do not matter.
    let elsewhere = TempDir::new().unwrap();
    fs::rename(folder.path("c"), elsewhere.path().join("c")).unwrap();
    assert_eq!(folder.next_change().await, ["delete web"]);
    fs::write(elsewhere.path().join("c/b/web.yaml"), service("web", 4)).unwrap();
    folder.assert_quiet().await;
    fs::rename(elsewhere.path().join("c"), folder.path("d")).unwrap();
    assert_eq!(folder.next_change().await, ["put web 4"]);
    fs::remove_dir_all(folder.path("d")).unwrap();
    assert_eq!(folder.next_change().await, ["delete web"]);
}

#[tokio::test]
async fn mounted_config_map_changes_in_one_step() {
    let mut folder = Folder::with(&[]).await;
    let root = folder.path("");
    let version = |number: u8, files: &[(&str, String)]| {
        let name = format!("..2024_{number}");
        fs::create_dir(root.join(&name)).unwrap();
        for (file, text) in files {
            fs::write(root.join(&name).join(file), text).unwrap();
        }
        symlink(&name, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    version(
        1,
        &[("a.yaml", service("a", 1)), ("b.yaml", service("b", 1))],
    );
    for file in ["a.yaml", "b.yaml"] {
        symlink(format!("..data/{file}"), folder.path(file)).unwrap();
    }
    let mut seen = folder.next_change().await;
    if seen.len() == 1 {
        seen.extend(folder.next_change().await);
    }
    assert_eq!(seen, ["put a 1", "put b 1"]);
    version(
        2,
        &[("a.yaml", service("a", 2)), ("b.yaml", service("b", 2))],
    );
    assert_eq!(folder.next_change().await, ["put a 2", "put b 2"]);
    fs::remove_dir_all(folder.path("..2024_1")).unwrap();
    folder.assert_quiet().await;
    version(
        3,
        &[("a.yaml", service("a", 3)), ("b.yaml", service("b", 2))],
    );
    assert_eq!(folder.next_change().await, ["put a 3"]);
}

#[tokio::test]
async fn file_behind_link_is_watched_too() {
    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, service("web", 1)).unwrap();
    let outer = TempDir::new().unwrap();
    let root = outer.path().to_owned();
    let options = DirOptions {
        links: Links::Anywhere,
        ..DirOptions::default()
    };
    let mut folder = Folder::open_with(outer, root, options).await;
    symlink(&target, folder.path("web.yaml")).unwrap();
    assert_eq!(folder.next_change().await, ["put web 1"]);
    fs::write(&target, service("web", 2)).unwrap();
    assert_eq!(folder.next_change().await, ["put web 2"]);
    let beside = elsewhere.path().join("beside");
    fs::write(&beside, service("web", 3)).unwrap();
    fs::rename(&beside, &target).unwrap();
    assert_eq!(folder.next_change().await, ["put web 3"]);
    fs::write(&target, service("web", 4)).unwrap();
    assert_eq!(folder.next_change().await, ["put web 4"]);
}

#[tokio::test]
async fn folder_that_goes_keeps_its_state_and_is_found_again() {
    let outer = TempDir::new().unwrap();
    let root = outer.path().join("manifests");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("web.yaml"), service("web", 1)).unwrap();
    let mut folder = Folder::open(outer, root.clone()).await;
    fs::rename(&root, folder.outer.path().join("old")).unwrap();
    let problems = folder.next_problems().await;
    assert!(
        problems[0].reason.starts_with("cannot be read"),
        "{problems:?}"
    );
    assert_eq!(folder.ports().await, [("web".to_owned(), 1)]);
    fs::create_dir(folder.outer.path().join("new")).unwrap();
    fs::write(folder.outer.path().join("new/web.yaml"), service("web", 2)).unwrap();
    fs::rename(folder.outer.path().join("new"), &root).unwrap();
    assert_eq!(folder.next_change().await, ["put web 2"]);
    assert_eq!(folder.next_problems().await, []);
    folder.write("web.yaml", &service("web", 3));
    assert_eq!(folder.next_change().await, ["put web 3"]);
}

#[tokio::test]
async fn file_behind_two_links_changes_both() {
    let mut folder = Folder::with(&[(".target", &service("web", 1))]).await;
    symlink(".target", folder.path("a.yaml")).unwrap();
    assert_eq!(folder.next_change().await, ["put web 1"]);
    symlink(".target", folder.path("b.yaml")).unwrap();
    folder.next_problems().await;
    folder.write(".target", &service("web", 2));
    assert_eq!(folder.next_change().await, ["put web 2"]);
    folder.remove("a.yaml");
    assert_eq!(folder.next_problems().await, []);
    assert_eq!(folder.ports().await, [("web".to_owned(), 2)]);
}

/// Writes to a file that was moved away with its folder are ignored.
#[tokio::test]
async fn file_open_in_moved_folder_is_forgotten() {
    let mut folder = Folder::with(&[("a/web.yaml", &service("web", 1))]).await;
    let mut writer = fs::OpenOptions::new()
        .append(true)
        .open(folder.path("a/web.yaml"))
        .unwrap();
    std::io::Write::write_all(&mut writer, b"# more\n").unwrap();
    folder.assert_quiet().await;
    let elsewhere = TempDir::new().unwrap();
    fs::rename(folder.path("a"), elsewhere.path().join("a")).unwrap();
    assert_eq!(folder.next_change().await, ["delete web"]);
    drop(writer);
    folder.assert_quiet().await;
}

#[tokio::test]
async fn folder_replaced_under_open_file_is_read() {
    let mut folder = Folder::with(&[
        ("a/web.yaml", &service("web", 1)),
        (".b/web.yaml", &service("web", 2)),
    ])
    .await;
    let mut writer = fs::OpenOptions::new()
        .append(true)
        .open(folder.path("a/web.yaml"))
        .unwrap();
    std::io::Write::write_all(&mut writer, b"# more\n").unwrap();
    folder.assert_quiet().await;
    let elsewhere = TempDir::new().unwrap();
    fs::rename(folder.path("a"), elsewhere.path().join("a")).unwrap();
    folder.rename(".b", "a");
    assert_eq!(folder.next_change().await, ["put web 2"]);
    drop(writer);
    folder.assert_quiet().await;
}
