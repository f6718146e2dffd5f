//! Takes in what registries say, and brings the store to it (flomesh's `Sink`).

mod sync;

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{mpsc, watch};

use crate::catalog::{Catalog, SourceService};
pub(crate) use sync::StoreSync;

/// What every registry said last. Cheap to clone; clones are the same sink.
///
/// Each change asks for a sync. Many in a short time are one, and none is lost: the request is one slot that is filled or
/// not.
#[derive(Debug, Clone)]
pub struct Sink {
    catalogs: watch::Sender<BTreeMap<String, Catalog>>,
    trigger: mpsc::Sender<()>,
}

impl Sink {
    /// A sink into which nobody has said anything, and its requests for a sync.
    pub fn new() -> (Self, mpsc::Receiver<()>) {
        let (trigger, requests) = mpsc::channel(1);
        (Self { catalogs: watch::Sender::default(), trigger }, requests)
    }

    /// This is all that a registry says (flomesh's `SetServices`). What it said before and does not say now is to go.
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

    /// This is what is behind one service of a registry. If the registry does not list it any more, nothing.
    pub fn set_service(&self, registry: &str, name: &str, service: SourceService) {
        self.modify(|catalogs| {
            let listed = catalogs.get_mut(registry).and_then(|catalog| catalog.get_mut(name));
            let Some(before) = listed.filter(|before| before.as_deref() != Some(&service)) else {
                return false;
            };
            *before = Some(Arc::new(service));
            true
        });
    }

    /// Nobody has said anything: what was said is too old.
    pub fn forget(&self) {
        self.catalogs.send_replace(BTreeMap::new());
        self.request_sync();
    }

    /// Asks for a sync.
    pub fn request_sync(&self) {
        // Full means that a request waits already.
        let _ = self.trigger.try_send(());
    }

    /// Gives services without a value the one they had.
    pub(crate) fn keep_known(&self, registry: &str, catalog: &mut Catalog) {
        let catalogs = self.catalogs.borrow();
        let Some(before) = catalogs.get(registry) else { return };
        for (name, service) in catalog.iter_mut().filter(|(_, service)| service.is_none()) {
            *service = before.get(name).cloned().flatten();
        }
    }

    /// Looks at what was said, which cannot change meanwhile.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&BTreeMap<String, Catalog>) -> T) -> T {
        look(&self.catalogs.borrow())
    }

    fn modify(&self, modify: impl FnOnce(&mut BTreeMap<String, Catalog>) -> bool) {
        if self.catalogs.send_if_modified(modify) {
            self.request_sync();
        }
    }
}
