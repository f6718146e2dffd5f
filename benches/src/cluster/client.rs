//! A client of the etcd in the namespace of the node.

use std::{fmt, mem, sync::Arc};

use contiv_store::{
    Operation, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_tests::lab::{Lab, LabError, Result};
use tokio::runtime::{self, Runtime};

use crate::workload::Workload;

/// The limits of an etcd transaction: 1.5 MiB and 128 operations.
const MAX_REQUEST_BYTES: usize = 1 << 20;
const MAX_OPERATIONS: usize = 128;

/// A client of etcd in the namespace of the node.
pub(crate) struct Client {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<EtcdStore>,
}

impl Client {
    pub(crate) fn new() -> Result<Self> {
        let failed = |error| LabError::system("start a runtime for the client of etcd", error);
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        // Connections are made with the first request, which every caller makes within the namespace.
        let store = EtcdStore::new(&["127.0.0.1:2379".to_owned()], EtcdAccess::default())
            .map_err(unexpected)?;
        Ok(Self {
            runtime,
            store: Arc::new(store),
        })
    }

    pub(crate) fn fill(&self, lab: &Lab, workload: Workload) -> Result<()> {
        let write = async {
            let (mut puts, mut bytes) = (Vec::new(), 0);
            for (key, value) in workload.values() {
                bytes += value.len();
                puts.extend(put((key, value)));
                if bytes > MAX_REQUEST_BYTES || puts.len() == MAX_OPERATIONS {
                    self.store.commit(mem::take(&mut puts)).await?;
                    bytes = 0;
                }
            }
            self.store.commit(puts).await.map(drop)
        };
        lab.node
            .run(|| self.runtime.block_on(write).map_err(unexpected))
    }
}

pub(crate) fn unexpected(error: impl fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// A put of one key.
pub(crate) fn put((key, value): (String, String)) -> Vec<Operation> {
    vec![Operation::Put {
        key,
        value: value.into(),
    }]
}
