//! Ownership of the table. Only its owner can change or remove an owned table: `nft flush ruleset` by others leaves it alone.
//! It outlives its owner, and our next process takes it over.
//!
//! Source: `NFT_TABLE_F_OWNER` (Linux 5.12) and `NFT_TABLE_F_PERSIST` (6.9) in the kernel's `nf_tables_api.c`. Without the
//! second flag the table would end with the agent, so on older kernels the table is shared.

use std::io;

use nix::errno::Errno;

use super::read::TableHeader;
use crate::nftables::netlink::{
    Batch, NetlinkError, Socket,
    constants::{msg, table},
};

/// A table that exists only within the check.
const PROBE: &str = "contiv-probe";

/// The processes that may change the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Every process with the capability.
    #[default]
    Shared,
    /// This process only.
    Owned,
}

impl Ownership {
    /// Owned, if the kernel supports it.
    pub(crate) fn owned_if_possible(socket: &mut Socket) -> Result<Self, NetlinkError> {
        let mut batch = Batch::new();
        batch.create(
            msg::NEWTABLE,
            "a table to try whether tables can be owned",
            |message| {
                message.text(table::NAME, PROBE);
                message.u32(table::FLAGS, table::OWNED);
            },
        );
        batch.delete(msg::DELTABLE, "that table", |message| {
            message.text(table::NAME, PROBE);
        });
        match socket.commit(batch) {
            Ok(_) => Ok(Self::Owned),
            Err(NetlinkError::Refused { source, .. }) if is_unknown_flag(&source) => {
                tracing::info!(%source, "this kernel cannot protect the table from other programs (Linux 6.9 can); their changes are reverted");
                Ok(Self::Shared)
            }
            Err(error) => Err(error),
        }
    }

    /// The flags that the table is written with. `found` is an existing table that is kept.
    pub(crate) const fn flags(self, found: Option<&TableHeader>) -> u32 {
        match (self, found) {
            (Self::Owned, _) => table::OWNED,
            (Self::Shared, None) => 0,
            // The kernel does not allow this flag to change.
            (Self::Shared, Some(found)) => found.flags & table::FLAG_PERSIST,
        }
    }

    /// True if the existing table can be kept. A shared one can never become owned, and is replaced.
    pub(crate) const fn accepts(self, found: &TableHeader) -> bool {
        match self {
            Self::Shared => true,
            Self::Owned => found.flags & table::FLAG_PERSIST != 0,
        }
    }
}

/// True if the kernel does not know a flag of the table: before Linux 5.12 it answers "Invalid argument".
fn is_unknown_flag(error: &io::Error) -> bool {
    [Errno::EINVAL, Errno::EOPNOTSUPP]
        .into_iter()
        .any(|errno| error.raw_os_error() == Some(errno as i32))
}
