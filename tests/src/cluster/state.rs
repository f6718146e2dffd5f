//! A store for tests.

use super::Service;
use crate::lab::{Host, Result};

/// The namespace of all services of the tests.
pub const NAMESPACE: &str = "default";

/// A store that a test writes and an agent reads. Both nodes are in it from the start.
pub trait State {
    /// The URL for `--store`.
    fn url(&self) -> String;

    /// Creates or replaces a service and its endpoint slices.
    fn put(&self, service: &Service) -> Result<()>;

    /// Removes a service; its endpoint slices stay.
    fn delete(&self, service: &Service) -> Result<()>;

    /// Removes the Node object of a node.
    fn delete_node(&self, node: &Host) -> Result<()>;
}
