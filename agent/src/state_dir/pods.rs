//! The pods that are attached to this node's dataplane, in a file, so that a restart does not forget them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use contiv_model::{InterfaceName, PodId};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::warn;

const FILE: &str = "pods.json";

/// One attached pod.
#[derive(Debug, Serialize, Deserialize)]
struct AttachedPod {
    namespace: String,
    name: String,
    interface: String,
}

type Attached = BTreeMap<PodId, InterfaceName>;

/// The pods that were attached when the last agent ended; none if that cannot be read.
pub fn attached_pods(folder: &Path) -> BTreeMap<PodId, InterfaceName> {
    let path = folder.join(FILE);
    let read =
        || -> io::Result<Vec<AttachedPod>> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
    let pods = read().unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            warn!(path = %path.display(), %error, "the list of attached pods is lost; their CNI plugin must attach them again");
        }
        Vec::new()
    });
    let attached = |pod: AttachedPod| {
        // An edited file must not bring in what a request could not.
        let interface = pod.interface.parse().ok()?;
        Some((PodId::new(pod.namespace, pod.name), interface))
    };
    pods.into_iter().filter_map(attached).collect()
}

/// The handle of the thread that writes the file.
#[derive(Debug)]
pub struct PodsFile {
    lists: Sender<Attached>,
    ended: oneshot::Receiver<()>,
}

impl PodsFile {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(folder: PathBuf) -> io::Result<Self> {
        let (lists, received) = channel();
        let (done, ended) = oneshot::channel();
        thread::Builder::new()
            .name("pods".to_owned())
            .spawn(move || {
                run(&folder, &received);
                // The receiver may be gone.
                let _ = done.send(());
            })?;
        Ok(Self { lists, ended })
    }

    /// Has the list written, without waiting for that.
    pub fn save(&self, attached: BTreeMap<PodId, InterfaceName>) {
        // The thread lives as long as the handle.
        let _ = self.lists.send(attached);
    }

    /// Waits until all is written.
    pub async fn finish(self) {
        drop(self.lists);
        let _ = self.ended.await;
    }
}

fn run(folder: &Path, lists: &Receiver<Attached>) {
    while let Ok(first) = lists.recv() {
        // Only the newest counts.
        let newest = lists.try_iter().last().unwrap_or(first);
        if let Err(error) = write(folder, &newest) {
            warn!(%error, "the list of attached pods cannot be saved: a restart would forget the last changes");
        }
    }
}

fn write(folder: &Path, attached: &Attached) -> io::Result<()> {
    let pod = |(pod, interface): (&PodId, &InterfaceName)| AttachedPod {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        interface: interface.0.to_string(),
    };
    let pods: Vec<AttachedPod> = attached.iter().map(pod).collect();
    let new = folder.join(".pods.json.new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(&pods)?)?;
    file.sync_data()?;
    fs::rename(&new, folder.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn attached_pods_are_read_as_they_were_saved() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            attached_pods(folder.path()).is_empty(),
            "there is no file yet"
        );
        let of = |names: &[&str]| -> Attached {
            let pods = names
                .iter()
                .map(|name| (PodId::new("default", *name), InterfaceName::new("veth1")));
            pods.collect()
        };
        let file = PodsFile::start(folder.path().to_owned()).unwrap();
        file.save(of(&["p1", "p2"]));
        file.save(of(&["p2"]));
        file.finish().await;
        assert_eq!(attached_pods(folder.path()), of(&["p2"]));
        fs::write(folder.path().join(FILE), "[{").unwrap();
        assert!(attached_pods(folder.path()).is_empty());
    }
}
