//! The hooks of base chains, and the messages that create chains.

use std::fmt;

use super::TABLE;
use crate::nftables::netlink::{
    Batch,
    constants::{chain, msg},
};

/// The hook of a base chain. Source: `include/uapi/linux/netfilter.h` and `netfilter_ipv4.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) kind: &'static str,
    pub(crate) number: u32,
    pub(crate) priority: i32,
}

impl Hook {
    pub(super) const fn nat(number: u32, priority: i32) -> Self {
        Self {
            kind: "nat",
            number,
            priority,
        }
    }

    pub(super) const fn filter_at(number: u32, priority: i32) -> Self {
        Self {
            kind: "filter",
            number,
            priority,
        }
    }

    /// The name of the hook in nft's language.
    const fn place(self) -> &'static str {
        match self.number {
            PREROUTING => "prerouting",
            INPUT => "input",
            FORWARD => "forward",
            OUTPUT => "output",
            _ => "postrouting",
        }
    }
}

impl fmt::Display for Hook {
    /// In nft's syntax, as in the head of a chain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {} hook {} priority ", self.kind, self.place())?;
        match (self.number, self.priority) {
            (_, PRIORITY_FILTER) => f.write_str("filter")?,
            (PREROUTING, PRIORITY_DSTNAT) => f.write_str("dstnat")?,
            (POSTROUTING, PRIORITY_SRCNAT) => f.write_str("srcnat")?,
            (_, priority) => write!(f, "{priority}")?,
        }
        f.write_str("; policy accept;")
    }
}

pub(crate) const PREROUTING: u32 = 0;
pub(crate) const INPUT: u32 = 1;
pub(crate) const FORWARD: u32 = 2;
pub(crate) const OUTPUT: u32 = 3;
pub(crate) const POSTROUTING: u32 = 4;
pub(super) const PRIORITY_DSTNAT: i32 = -100;
pub(super) const PRIORITY_SRCNAT: i32 = 100;
pub(super) const BEFORE_DSTNAT: i32 = PRIORITY_DSTNAT - 10;
pub(super) const BEFORE_SRCNAT: i32 = PRIORITY_SRCNAT - 10;
/// That of policies of other programs; chains of type nat with it follow all that translate destinations.
pub(super) const PRIORITY_FILTER: i32 = 0;

/// Adds the message that creates a chain, or corrects an existing one.
pub(super) fn write_chain(batch: &mut Batch, name: &str, hook: Option<Hook>) {
    write_chain_of(batch, TABLE, name, hook);
}

/// Adds the message that creates a chain of any table, or corrects an existing one.
pub(super) fn write_chain_of(batch: &mut Batch, table: &str, name: &str, hook: Option<Hook>) {
    batch.create(msg::NEWCHAIN, format!("chain {name}"), |message| {
        message.text(chain::TABLE, table);
        message.text(chain::NAME, name);
        if let Some(hook) = hook {
            message.text(chain::TYPE, hook.kind);
            message.u32(chain::POLICY, chain::POLICY_ACCEPT);
            message.nested(chain::HOOK, |attributes| {
                attributes.u32(chain::HOOK_HOOKNUM, hook.number);
                attributes.bytes(chain::HOOK_PRIORITY, &hook.priority.to_be_bytes());
            });
        }
    });
}
