//! What the table holds, as far as the difference from what it should hold needs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use super::element::{Element, FrontendKey};
use crate::nftables::layout::Set;

/// The elements in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Elements {
    /// Sorted, by the frontend they belong to.
    pub(crate) frontends: BTreeMap<FrontendKey, Vec<Element>>,
    /// The affinity entries: a frontend with the backend of a client.
    pub(crate) memory: BTreeSet<(FrontendKey, SocketAddr)>,
    /// Elements without a frontend.
    pub(crate) others: BTreeSet<Element>,
    /// Sets with elements that the agent cannot have written: they must be emptied.
    pub(crate) foreign: BTreeSet<Set>,
    /// Sets that the table has in this layout's shape.
    pub(crate) shaped: BTreeSet<Set>,
}

impl Elements {
    /// True if nothing was read that an agent has written.
    pub(crate) fn is_empty(&self) -> bool {
        self.frontends.is_empty() && self.others.is_empty()
    }
}
