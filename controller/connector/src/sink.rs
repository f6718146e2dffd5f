//! Collects the content of registries, and syncs the store with it (flomesh's `Sink`).

mod catalogs;
mod sync;

pub use catalogs::Sink;
pub(crate) use sync::StoreSync;
