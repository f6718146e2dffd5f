//! Typed caches: all objects of one type in the store, with indexes.

mod caches;
mod contents;
mod error;
mod handle;
mod index;
mod view;

pub use caches::Caches;
pub(crate) use contents::Contents;
pub use error::CacheError;
pub use handle::Cache;
pub use view::View;

#[cfg(test)]
mod tests;
