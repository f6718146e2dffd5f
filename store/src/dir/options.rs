//! How a folder is read.

use crate::{Entry, manifest::Links};

/// Returns the state of the folder that an earlier run saved. It may block.
pub type LoadSaved = Box<dyn FnOnce() -> Vec<Entry> + Send>;

/// Options of reading a folder.
#[derive(Default)]
pub struct DirOptions {
    /// The symbolic links that are followed.
    pub links: Links,
    /// Called once, if some manifests cannot be read when the folder is opened.
    pub recall: Option<LoadSaved>,
}
