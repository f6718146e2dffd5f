//! The latest catalog of each registry.

use std::{collections::BTreeMap, sync::Arc};

use contiv_proto::{Key, KeyError, Kind};
use tokio::sync::{mpsc, watch};

use crate::catalog::{Catalog, ResolvedHosts, SourceService};

/// The namespace of flomesh for an empty name.
const DEFAULT_NAMESPACE: &str = "default";

/// The last content of every registry, and the namespace of the stored services. Cheap to clone; clones share it.
///
/// Each change requests a sync. Several requests are merged, and none is lost: the request is a single slot.
#[derive(Debug, Clone)]
pub struct Sink {
    catalogs: watch::Sender<BTreeMap<String, Catalog>>,
    namespace: watch::Sender<Arc<str>>,
    hosts: watch::Sender<ResolvedHosts>,
    trigger: mpsc::Sender<()>,
}

impl Sink {
    /// An empty sink, and its requests for a sync.
    pub fn new() -> (Self, mpsc::Receiver<()>) {
        let (trigger, requests) = mpsc::channel(1);
        let namespace = watch::Sender::new(DEFAULT_NAMESPACE.into());
        let (catalogs, hosts) = (watch::Sender::default(), watch::Sender::default());
        (
            Self {
                catalogs,
                namespace,
                hosts,
                trigger,
            },
            requests,
        )
    }

    /// Sets the namespace of the stored services, also while they are synced (flomesh's `SetSyncCloudNamespace`). Services in the
    /// namespace before move to the new one. An empty name is `default`.
    ///
    /// # Errors
    /// When it is not the name of a namespace.
    pub fn set_sync_namespace(&self, namespace: &str) -> Result<(), KeyError> {
        let namespace = if namespace.is_empty() {
            DEFAULT_NAMESPACE
        } else {
            namespace
        };
        Key::new(Kind::Namespace, "", namespace)?;
        let is_changed = self.namespace.send_if_modified(|before| {
            let is_changed = **before != *namespace;
            if is_changed {
                *before = namespace.into();
            }
            is_changed
        });
        if is_changed {
            self.request_sync();
        }
        Ok(())
    }

    /// Whether services are stored in this namespace (flomesh's `IsSyncCloudNamespace`).
    pub fn is_sync_namespace(&self, namespace: &str) -> bool {
        **self.namespace.borrow() == *namespace
    }

    /// The namespace of the stored services.
    pub fn sync_namespace(&self) -> Arc<str> {
        Arc::clone(&self.namespace.borrow())
    }

    /// Sets the complete content of a registry (flomesh's `SetServices`). Services missing in it will be deleted.
    pub fn set_services(&self, registry: &str, catalog: Catalog) {
        self.modify(|catalogs| match catalogs.get_mut(registry) {
            Some(before) if *before == catalog => false,
            Some(before) => {
                *before = catalog;
                true
            }
            None => {
                catalogs.insert(registry.to_owned(), catalog);
                true
            }
        });
    }

    /// Sets the instances of one service of a registry. Ignored if the registry no longer lists it.
    pub fn set_service(&self, registry: &str, name: &str, service: SourceService) {
        self.modify(|catalogs| {
            let listed = catalogs
                .get_mut(registry)
                .and_then(|catalog| catalog.get_mut(name));
            let Some(before) = listed.filter(|before| before.as_deref() != Some(&service)) else {
                return false;
            };
            *before = Some(Arc::new(service));
            true
        });
    }

    /// Forgets all content, because it is too old.
    pub fn forget(&self) {
        self.catalogs.send_replace(BTreeMap::new());
        self.hosts.send_replace(ResolvedHosts::new());
        self.request_sync();
    }

    /// Requests a sync.
    pub fn request_sync(&self) {
        // If it is full, a request is pending already.
        let _ = self.trigger.try_send(());
    }

    /// Gives services without a value their previous one.
    pub(crate) fn keep_known(&self, registry: &str, catalog: &mut Catalog) {
        let catalogs = self.catalogs.borrow();
        let Some(before) = catalogs.get(registry) else {
            return;
        };
        for (name, service) in catalog.iter_mut().filter(|(_, service)| service.is_none()) {
            *service = before.get(name).cloned().flatten();
        }
    }

    /// Notifies of each change of the content.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeMap<String, Catalog>> {
        self.catalogs.subscribe()
    }

    /// Sets the addresses of host names.
    pub(crate) fn set_hosts(&self, hosts: ResolvedHosts) {
        let is_changed = self.hosts.send_if_modified(|before| {
            let is_changed = *before != hosts;
            *before = hosts;
            is_changed
        });
        if is_changed {
            self.request_sync();
        }
    }

    /// The addresses of host names.
    pub(crate) fn hosts(&self) -> ResolvedHosts {
        self.hosts.borrow().clone()
    }

    /// Reads the content, which cannot change meanwhile.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&BTreeMap<String, Catalog>) -> T) -> T {
        read(&self.catalogs.borrow())
    }

    fn modify(&self, modify: impl FnOnce(&mut BTreeMap<String, Catalog>) -> bool) {
        if self.catalogs.send_if_modified(modify) {
            self.request_sync();
        }
    }
}
