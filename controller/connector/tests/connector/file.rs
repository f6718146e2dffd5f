//! The file registry, with every common way of writing a file.

use std::fmt::Write as _;
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::symlink,
    path::PathBuf,
    time::Duration,
};

use contiv_connector::registry::file::FileRegistry;
use contiv_proto::message::service::Service;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::harness::Running;

fn services_yaml(services: &[(&str, &str)]) -> String {
    let mut text = "services:\n".to_owned();
    for (name, address) in services {
        writeln!(
            text,
            "  - name: {name}\n    endpoints: [{{address: {address}, port: 80}}]"
        )
        .unwrap();
    }
    text
}

/// A file with two services, and a connector that has stored them.
async fn running_with_two_services() -> (TempDir, PathBuf, Running) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("services.yaml");
    fs::write(
        &path,
        services_yaml(&[("web", "10.0.0.1"), ("db", "10.0.0.2")]),
    )
    .unwrap();
    let running = Running::of(FileRegistry::new(path.clone()));
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    running.wait_until_backends("db", &["10.0.0.2 80"]).await;
    (folder, path, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_read_again_however_it_is_replaced() {
    let (folder, path, running) = running_with_two_services().await;
    fs::write(&path, services_yaml(&[("web", "10.0.0.3")])).unwrap();
    running.wait_until_backends("web", &["10.0.0.3 80"]).await;
    running.wait_until_gone("db").await;
    let renamed = folder.path().join("new");
    fs::write(&renamed, services_yaml(&[("web", "10.0.0.4")])).unwrap();
    fs::rename(&renamed, &path).unwrap();
    running.wait_until_backends("web", &["10.0.0.4 80"]).await;
    // A link to another folder, whose target changes without a notification.
    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, services_yaml(&[("web", "10.0.0.5")])).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&target, &path).unwrap();
    running.wait_until_backends("web", &["10.0.0.5 80"]).await;
    fs::write(&target, services_yaml(&[("web", "10.0.0.6")])).unwrap();
    running.wait_until_backends("web", &["10.0.0.6 80"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_is_being_written_is_not_read() {
    let (_folder, path, running) = running_with_two_services().await;
    let before = running.store.revision();
    let whole = services_yaml(&[("web", "10.0.0.3"), ("db", "10.0.0.4")]);
    // At each pause the partial content is a valid file with fewer services.
    let mut file = File::create(&path).unwrap();
    for part in whole.split_inclusive("80}]\n") {
        file.write_all(part.as_bytes()).unwrap();
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(running.store.revision(), before);
    }
    drop(file);
    running.wait_until_backends("web", &["10.0.0.3 80"]).await;
    running.wait_until_backends("db", &["10.0.0.4 80"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_or_invalid_file_removes_no_service() {
    let (_folder, path, running) = running_with_two_services().await;
    let before = running.store.revision();
    for broken in [
        "",
        "services:\n",
        "services:\n  - name: web\n",
        "services: [{name: web",
        "other: 1\n",
    ] {
        fs::write(&path, broken).unwrap();
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(running.store.revision(), before, "{broken:?}");
        assert_eq!(running.metric("connector_registry_up"), "0", "{broken:?}");
    }
    fs::remove_file(&path).unwrap();
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(running.store.revision(), before);
    fs::write(&path, "services: []\n").unwrap();
    running.wait_until_gone("web").await;
    assert!(running.all::<Service>().await.is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_created_after_the_start_is_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("later").join("services.yaml");
    let running = Running::of(FileRegistry::new(path.clone()));
    sleep(Duration::from_millis(500)).await;
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, services_yaml(&[("web", "10.0.0.1")])).unwrap();
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    running.stop().await;
}
