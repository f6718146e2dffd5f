//! A folder in a store, with its watch events in short form.

use super::*;

pub(crate) struct Folder {
    pub(crate) outer: TempDir,
    root: PathBuf,
    pub(crate) store: DirStore,
    watch: WatchStream,
}

impl Folder {
    pub(crate) async fn with(files: &[(&str, &str)]) -> Self {
        Self::with_options(files, DirOptions::default()).await
    }

    /// A run after one that saved this state.
    pub(crate) async fn with_saved(files: &[(&str, &str)], saved: Vec<Entry>) -> Self {
        let recall: LoadSaved = Box::new(|| saved);
        Self::with_options(
            files,
            DirOptions {
                recall: Some(recall),
                ..DirOptions::default()
            },
        )
        .await
    }

    async fn with_options(files: &[(&str, &str)], options: DirOptions) -> Self {
        let outer = TempDir::new().unwrap();
        let root = outer.path().to_owned();
        for (name, text) in files {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
        Self::open_with(outer, root, options).await
    }

    pub(crate) async fn open(outer: TempDir, root: PathBuf) -> Self {
        Self::open_with(outer, root, DirOptions::default()).await
    }

    pub(crate) async fn open_with(outer: TempDir, root: PathBuf, options: DirOptions) -> Self {
        let store = DirStore::open_with(&root, options).await.unwrap();
        let revision = store.list(ROOT).await.unwrap().revision;
        let watch = store.watch(ROOT, revision).await.unwrap();
        Self {
            outer,
            root,
            store,
            watch,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    pub(crate) async fn entries(&self) -> Vec<Entry> {
        self.store.list(ROOT).await.unwrap().entries
    }

    pub(crate) async fn ports(&self) -> Vec<(String, i64)> {
        self.entries().await.iter().map(name_and_port).collect()
    }

    pub(crate) async fn next_change(&mut self) -> Vec<String> {
        next_change_of(&mut self.watch).await
    }

    /// The next change, skipping problems.
    pub(crate) async fn next_change_past_problems(&mut self) -> Vec<String> {
        loop {
            if let WatchEvent::Changed(batch) = next_of(&mut self.watch).await {
                return words(&batch);
            }
        }
    }

    pub(crate) async fn next_problems(&mut self) -> Vec<Problem> {
        match next_of(&mut self.watch).await {
            WatchEvent::Problems(problems) => problems,
            other @ WatchEvent::Changed(_) => panic!("expected problems: {other:?}"),
        }
    }

    pub(crate) async fn assert_quiet(&mut self) {
        let next = timeout(Duration::from_millis(100), self.watch.next()).await;
        assert!(next.is_err(), "{next:?}");
    }
}

async fn next_of(watch: &mut WatchStream) -> WatchEvent {
    timeout(Duration::from_secs(10), watch.next())
        .await
        .expect("nothing within 10 s")
        .unwrap()
        .unwrap()
}

/// The next batch as "put NAME PORT" and "delete NAME".
pub(crate) async fn next_change_of(watch: &mut WatchStream) -> Vec<String> {
    let WatchEvent::Changed(batch) = next_of(watch).await else {
        panic!("expected changes")
    };
    words(&batch)
}

fn words(batch: &Batch) -> Vec<String> {
    let words = batch.changes.iter().map(|change| match change {
        Change::Put(entry) => {
            let (name, port) = name_and_port(entry);
            format!("put {name} {port}")
        }
        Change::Delete { key } => format!("delete {}", name_of(key)),
    });
    words.collect()
}

fn name_and_port(entry: &Entry) -> (String, i64) {
    let value: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
    (
        name_of(&entry.key).to_owned(),
        value["port"][0]["port"].as_i64().unwrap(),
    )
}

fn name_of(key: &str) -> &str {
    Path::new(key).iter().nth(5).unwrap().to_str().unwrap()
}

pub(crate) fn service(name: &str, port: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n  - port: {port}\n"
    )
}

pub(crate) fn json_service(name: &str, port: i32) -> String {
    let spec = serde_json::json!({"ports": [{"port": port}]});
    serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

pub(crate) fn service_value(namespace: &str, name: &str, port: i32) -> serde_json::Value {
    serde_json::json!({"name": name, "namespace": namespace, "port": [{"protocol": "TCP", "port": port}]})
}

pub(crate) fn put_value(namespace: &str, name: &str, value: &serde_json::Value) -> Operation {
    let key = format!("{ROOT}k8s/service/{name}/namespace/{namespace}");
    Operation::Put {
        key,
        value: value.to_string().into(),
    }
}

pub(crate) fn put(name: &str, port: i32) -> Operation {
    put_value("default", name, &service_value("default", name, port))
}

pub(crate) fn delete(name: &str) -> Operation {
    Operation::Delete {
        key: format!("{ROOT}k8s/service/{name}/namespace/default"),
    }
}
