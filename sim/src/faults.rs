//! Faults outside of the agent.

use rand::{RngExt as _, rngs::SmallRng};

use crate::kernel::Meddling;

/// One thing that goes wrong, or that somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The agent gets SIGKILL.
    Kill,
    /// The machine loses its power.
    PowerCut,
    /// The store cannot be reached, or again.
    Outage,
    /// The store cannot be reached for a moment.
    Blip,
    /// The store compacts its log.
    Compaction,
    /// The state of the store is kept.
    Backup,
    /// The store is put back to a backup.
    Restore,
    /// The next transaction is refused.
    RefuseBatch,
    /// One message of the next transaction is refused.
    RefuseMessage,
    /// The next transaction is applied and its answer is lost.
    LoseAnswer,
    /// The next dump is interrupted.
    InterruptDump,
    /// The kernel has no room for the next transaction.
    RefuseSending,
    /// Notifications of the kernel are lost.
    LoseNotifications,
    /// Somebody else changes the table.
    Meddle,
    /// The renderer takes long for whatever it does.
    Slow,
    /// The renderer panics, before or after it has done its work.
    Panic,
    /// An address of this node's interfaces comes or goes.
    Address,
    /// An operator asks for everything again.
    Resync,
    /// An operator confirms deletions.
    Confirm,
    /// A pod is attached.
    AddPod,
    /// A pod is detached.
    DeletePod,
}

/// All kinds.
pub const ALL: [Fault; 21] = [
    Fault::Kill,
    Fault::PowerCut,
    Fault::Outage,
    Fault::Blip,
    Fault::Compaction,
    Fault::Backup,
    Fault::Restore,
    Fault::RefuseBatch,
    Fault::RefuseMessage,
    Fault::LoseAnswer,
    Fault::InterruptDump,
    Fault::RefuseSending,
    Fault::LoseNotifications,
    Fault::Meddle,
    Fault::Slow,
    Fault::Panic,
    Fault::Address,
    Fault::Resync,
    Fault::Confirm,
    Fault::AddPod,
    Fault::DeletePod,
];

/// The next fault.
pub(crate) fn draw(rng: &mut SmallRng) -> Fault {
    ALL[rng.random_range(0..ALL.len())]
}

/// Chains of the agent's table that somebody else may change: those that services in it need.
const CHAINS: [&str; 6] =
    ["services-v4", "node-ports-v4", "masquerade-v4", "nat-prerouting", "filter-forward", "pick-v4-1"];
/// Sets of the agent's table that somebody else may change.
const SETS: [&str; 6] =
    ["services4", "backends4", "pick-chains4", "no-endpoints4", "cluster-ips4", "affinity4"];

/// A change of the table by another program.
pub(crate) fn draw_meddling(rng: &mut SmallRng) -> Meddling {
    let chain = CHAINS[rng.random_range(0..CHAINS.len())].to_owned();
    let set = SETS[rng.random_range(0..SETS.len())].to_owned();
    let number = rng.random_range(0..10);
    match rng.random_range(0..10) {
        0 => Meddling::FlushRuleset,
        1 => Meddling::DeleteTable,
        2 => Meddling::FlushTable,
        3 => Meddling::FlushChain(chain),
        4 => Meddling::DropAtFirst(chain),
        5 => Meddling::FlushSet(set),
        6 => Meddling::ReplaceValue { set, number },
        7 => Meddling::AddElement { set },
        8 => Meddling::OtherTable,
        _ => Meddling::DeleteElement { set, number },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meddling_names_chains_and_sets_of_the_table() {
        let skeleton = include_str!("../../renderer/src/nftables/skeleton.nft");
        let has = |kind: &str, name: &str| skeleton.contains(&format!("\t{kind} {name} {{\n"));
        // Chains that pick are made on demand.
        let chains = CHAINS.iter().filter(|name| !name.starts_with("pick-"));
        assert_eq!(chains.filter(|name| !has("chain", name)).collect::<Vec<_>>(), Vec::<&&str>::new());
        let missing = SETS.iter().filter(|name| !has("map", name) && !has("set", name));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
