//! In which processes something runs.

use std::fmt;

/// The processes that run a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In one process at a time: the one that holds the lease.
    #[default]
    Singleton,
    /// In every process, all the time. Such a controller should not write to the store.
    EachNode,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Singleton => "singleton",
            Self::EachNode => "each-node",
        })
    }
}
