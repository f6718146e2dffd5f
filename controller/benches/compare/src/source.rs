//! The source of objects for both runtimes, in memory.

use bytes::Bytes;
use tokio::sync::mpsc;

/// One state of one object.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) version: u64,
    /// A `ConfigMap` as JSON.
    pub(crate) json: Bytes,
}

impl State {
    /// Object number `index` in its version `version`.
    pub(crate) fn new(index: u64, version: u64) -> Self {
        let name = format!("object-{index:06}");
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","resourceVersion":"{version}"}},"data":{{"version":"{version}"}}}}"#
        );
        Self { name, version, json: json.into() }
    }
}

/// All objects in their first version, and how the next ones come.
pub(crate) struct Source {
    pub(crate) initial: Vec<State>,
    pub(crate) changes: mpsc::Receiver<State>,
}
