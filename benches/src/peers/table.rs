//! The compared tables: all are in the kernel, and at most one is active.

use std::fmt;

use contiv_tests::lab::Result;

use super::kube_proxy::Layout;
use crate::command::run;

/// One of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// The table of a kube-proxy.
    Peer(Layout),
    Contiv,
    /// One rule, which translates the addresses of all services to one backend.
    Fixed,
}

impl Table {
    /// Those that serve the services. Contiv's is the last.
    pub(super) const ALL: [Self; 3] = [
        Self::Peer(Layout::UpTo135),
        Self::Peer(Layout::From136),
        Self::Contiv,
    ];

    /// Family and name in the kernel.
    pub(super) const fn identity(self) -> &'static str {
        match self {
            Self::Peer(layout) => layout.table(),
            Self::Contiv => "inet contiv",
            Self::Fixed => "ip fixed",
        }
    }

    /// Deactivates the table, which stays in the kernel (dormant).
    pub(super) fn deactivate(self) -> Result<()> {
        run(&[
            "nft",
            &format!("add table {} {{ flags dormant; }}", self.identity()),
        ])
        .map(drop)
    }

    /// Activates the table.
    pub(super) fn activate(self) -> Result<()> {
        run(&["nft", &format!("add table {}", self.identity())]).map(drop)
    }

    pub(super) fn delete(self) -> Result<()> {
        run(&["nft", &format!("delete table {}", self.identity())]).map(drop)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer(layout) => layout.name(),
            Self::Contiv => "contiv",
            Self::Fixed => "one dnat rule",
        })
    }
}
