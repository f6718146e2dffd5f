//! In which processes a controller runs.

/// Where a controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In one process at a time: the one that holds the lease.
    #[default]
    Singleton,
    /// In every process, all the time. Such a controller should not write to the store.
    EachNode,
}
