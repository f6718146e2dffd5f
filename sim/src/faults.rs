//! Faults outside of the agent.

use rand::{RngExt as _, rngs::SmallRng};

use crate::kernel::ForeignChange;

/// A fault, or an action of an operator or a CNI plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The agent gets SIGKILL.
    Kill,
    /// The machine loses power.
    PowerFailure,
    /// The store becomes unreachable, or reachable again.
    Outage,
    /// The store is unreachable for some seconds.
    ShortOutage,
    /// The store compacts its log.
    Compaction,
    /// A backup of the store is made.
    Backup,
    /// The store is restored from the backup.
    Restore,
    /// The next transaction is refused.
    RefuseBatch,
    /// One message of the next transaction is refused.
    RefuseMessage,
    /// The next transaction is applied and its answer is lost.
    LoseAnswer,
    /// The next dump is interrupted.
    InterruptDump,
    /// The kernel refuses the next transaction for lack of buffer space.
    RefuseSending,
    /// Notifications of the kernel are lost.
    LoseNotifications,
    /// Another program changes the table.
    ForeignChange,
    /// The renderer is slow for a while.
    SlowRenderer,
    /// The renderer panics, before or after its work.
    RendererPanic,
    /// An address is added to or removed from the node's interfaces.
    AddressChange,
    /// An operator requests a resync.
    Resync,
    /// An operator confirms deletions.
    ConfirmDeletions,
    /// A pod is attached.
    AddPod,
    /// A pod is detached.
    DeletePod,
    /// Some backends refuse, or do not answer.
    BackendsFail,
    /// All backends answer again.
    BackendsRecover,
    /// The kernel no longer counts attempts at backends, or does again.
    FailoverBreaks,
}

/// All kinds.
pub const ALL: [Fault; 26] = [
    Fault::Kill,
    Fault::PowerFailure,
    Fault::Outage,
    Fault::ShortOutage,
    Fault::Compaction,
    Fault::Backup,
    Fault::Restore,
    Fault::RefuseBatch,
    Fault::RefuseMessage,
    Fault::LoseAnswer,
    Fault::InterruptDump,
    Fault::RefuseSending,
    Fault::LoseNotifications,
    Fault::ForeignChange,
    Fault::SlowRenderer,
    Fault::RendererPanic,
    Fault::AddressChange,
    Fault::Resync,
    Fault::ConfirmDeletions,
    Fault::AddPod,
    Fault::DeletePod,
    // Several times, as their effect is short.
    Fault::BackendsFail,
    Fault::BackendsFail,
    Fault::BackendsFail,
    Fault::BackendsRecover,
    Fault::FailoverBreaks,
];

/// A random fault.
pub(crate) fn draw(rng: &mut SmallRng) -> Fault {
    ALL[rng.random_range(0..ALL.len())]
}

/// Chains of the agent's table for foreign changes: those that services need.
const CHAINS: [&str; 6] = [
    "services-v4",
    "node-ports-v4",
    "masquerade-v4",
    "nat-prerouting",
    "refuse-prerouting",
    "pick-v4-1",
];
/// Sets of the agent's table for foreign changes.
const SETS: [&str; 6] = [
    "services4",
    "backends4",
    "pick-chains4",
    "no-endpoints4",
    "cluster-ips4",
    "affinity4",
];

/// A change of the table by another program.
pub(crate) fn draw_foreign_change(rng: &mut SmallRng) -> ForeignChange {
    let chain = CHAINS[rng.random_range(0..CHAINS.len())].to_owned();
    let set = SETS[rng.random_range(0..SETS.len())].to_owned();
    let number = rng.random_range(0..10);
    match rng.random_range(0..10) {
        0 => ForeignChange::FlushRuleset,
        1 => ForeignChange::DeleteTable,
        2 => ForeignChange::FlushTable,
        3 => ForeignChange::FlushChain(chain),
        4 => ForeignChange::DropAtFirst(chain),
        5 => ForeignChange::FlushSet(set),
        6 => ForeignChange::ReplaceValue { set, number },
        7 => ForeignChange::AddElement { set },
        8 => ForeignChange::OtherTable,
        _ => ForeignChange::DeleteElement { set, number },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_changes_name_chains_and_sets_of_the_table() {
        let skeleton = include_str!("../../renderer/src/nftables/skeleton.nft");
        let has = |kind: &str, name: &str| skeleton.contains(&format!("\t{kind} {name} {{\n"));
        // Chains that pick are made on demand.
        let chains = CHAINS.iter().filter(|name| !name.starts_with("pick-"));
        assert_eq!(
            chains
                .filter(|name| !has("chain", name))
                .collect::<Vec<_>>(),
            Vec::<&&str>::new()
        );
        let missing = SETS
            .iter()
            .filter(|name| !has("map", name) && !has("set", name));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
