//! Keeps a hosts file of the addresses in a store: a controller of two callbacks and a background task.
//!
//! `cargo run -p contiv-controller --example controller-resource -- etcd://127.0.0.1:2379 /hosts/ /tmp/hosts`
//!
//! The value of `/hosts/NAME` is an address. The callbacks only say that something has changed; the background task writes the
//! file as a whole, and not before the first list: a file of the first few would take the others away.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use contiv_controller::{
    BoxError, Context, Key, Lease, Manager, Object, ResourceType,
    callbacks::{Resource, controller_of},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

struct HostsFile {
    hosts: ResourceType<IpAddr>,
    path: PathBuf,
    changed: Notify,
}

impl HostsFile {
    fn new(prefix: &str, path: &Path) -> Self {
        let hosts = ResourceType::new("host", prefix, |entry| {
            Ok::<IpAddr, BoxError>(std::str::from_utf8(&entry.value)?.trim().parse()?)
        });
        Self {
            hosts,
            path: path.to_owned(),
            changed: Notify::new(),
        }
    }

    fn write(&self, context: &Context<IpAddr>) -> Result<(), BoxError> {
        let mut text = String::new();
        for host in context.cache().view().iter() {
            writeln!(
                text,
                "{} {}",
                host.value,
                self.hosts.name_of(&host.key).unwrap_or_default()
            )?;
        }
        let new = self.path.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(&new, &self.path)?)
    }
}

impl Resource<IpAddr> for HostsFile {
    fn resource_type(&self) -> ResourceType<IpAddr> {
        self.hosts.clone()
    }

    async fn upsert(&self, key: Key, host: Arc<Object<IpAddr>>) -> Result<(), BoxError> {
        println!("{key} is {}", host.value);
        self.changed.notify_one();
        Ok(())
    }

    async fn delete(&self, key: Key, last_known: Arc<Object<IpAddr>>) -> Result<(), BoxError> {
        println!("{key} was {}", last_known.value);
        self.changed.notify_one();
        Ok(())
    }

    /// An error here ends the callbacks too, and the manager starts both again.
    async fn background(&self, context: Context<IpAddr>) -> Result<(), BoxError> {
        let write_changes = async {
            context.cache().wait_for_revision(0).await?;
            loop {
                self.write(&context)?;
                self.changed.notified().await;
            }
        };
        if let Some(ended) = context.stop().run_until_cancelled(write_changes).await {
            return ended;
        }
        // It is waited for: the last change is not lost.
        if context.cache().has_synced() {
            self.write(&context)
        } else {
            Ok(())
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(prefix), Some(file)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: controller-resource STORE PREFIX FILE".into());
    };
    let store =
        contiv_store::open(&url.parse()?, contiv_store::etcd::EtcdAccess::default()).await?;
    let mut manager = Manager::new(store, Lease::always_leader());
    manager.register(controller_of(HostsFile::new(&prefix, Path::new(&file))).build()?)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    running.await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contiv_controller::callbacks::test_run;
    use contiv_store::{Operation, Store};
    use contiv_store_testing::MemoryStore;

    use super::*;

    async fn put(store: &MemoryStore, key: &str, value: &'static str) {
        store
            .commit(vec![Operation::Put {
                key: key.to_owned(),
                value: value.into(),
            }])
            .await
            .unwrap();
    }

    async fn settle() {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_file_mirrors_the_store_until_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let content = || fs::read_to_string(&path).unwrap();
        fs::write(&path, "10.0.0.9 of an earlier run\n").unwrap();
        let store = MemoryStore::new();
        put(&store, "/hosts/a", "10.0.0.1").await;
        put(&store, "/hosts/b", "10.0.0.2").await;
        store.cut();
        let closer = test_run(HostsFile::new("/hosts/", &path), store.shared());
        settle().await;
        assert_eq!(
            content(),
            "10.0.0.9 of an earlier run\n",
            "nothing is known yet"
        );
        store.reconnect();
        settle().await;
        assert_eq!(content(), "10.0.0.1 a\n10.0.0.2 b\n");
        put(&store, "/hosts/a", "fd00::1").await;
        store
            .commit(vec![Operation::Delete {
                key: "/hosts/b".to_owned(),
            }])
            .await
            .unwrap();
        settle().await;
        assert_eq!(content(), "fd00::1 a\n");
        assert!(closer.status().has_synced());
        closer.close().await;
        assert_eq!(content(), "fd00::1 a\n");
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_file_that_cannot_be_written_ends_run() {
        let folder = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let closer = test_run(
            HostsFile::new("/hosts/", &folder.path().join("no/folder")),
            store.shared(),
        );
        settle().await;
        assert!(!closer.status().has_synced());
        closer.close().await;
    }
}
