//! The edge: transactions go to the kernel.

use super::{
    encode,
    layout::{PickChain, TABLE, chains, write_chains, write_rules, write_sets, write_table},
    netlink::{
        Batch, NetlinkError, Socket,
        constants::{chain, msg, rule, set, table as table_attribute},
    },
    read::Existing,
    table::Table,
    transaction::Transaction,
};
use crate::Report;

/// A table from nothing; one that is there and cannot be used goes in the same transaction.
pub(super) fn write_fresh(batch: &mut Batch, replace: bool) {
    if replace {
        write_removal(batch);
    }
    write_table(batch);
    write_sets(batch);
    write_chains(batch);
    write_rules(batch);
}

/// All rules of a usable table anew: they are few, and whoever changed one is undone. Sets and elements stay.
pub(super) fn write_repair(batch: &mut Batch, existing: &Existing) {
    batch.delete(msg::DELRULE, "all rules", |message| message.text(rule::TABLE, TABLE));
    write_chains(batch);
    write_rules(batch);
    for name in &existing.foreign_sets {
        batch.delete(msg::DELSET, format!("remove foreign set {name}"), |message| {
            message.text(set::TABLE, TABLE);
            message.text(set::NAME, name);
        });
    }
}

/// The table goes, with everything in it.
pub(super) fn write_removal(batch: &mut Batch) {
    batch.delete(msg::DELTABLE, "remove the table", |message| message.text(table_attribute::NAME, TABLE));
}

/// Commits a transaction, in pieces if the kernel takes no batch of its size; `first` goes ahead of the first piece.
pub(super) fn commit(
    socket: &mut Socket,
    first: Batch,
    transaction: Transaction,
) -> Result<Report, NetlinkError> {
    let (removed, added) = transaction.counts();
    let mut report = Report { added, removed, ..Report::default() };
    let room = socket.batch_limit().saturating_sub(first.len()) / encode::ELEMENT_BYTES;
    let mut batch = first;
    for part in transaction.split(room.max(1)) {
        encode::write(&part, &mut batch);
        let whole = std::mem::replace(&mut batch, Batch::new());
        if !whole.is_empty() {
            report.bytes += socket.commit(whole)?;
            report.transactions += 1;
        }
    }
    Ok(report)
}

/// Removes chains that nothing leads to any more. Before 6.2 the kernel notices only late that a chain is free, and
/// refuses; such a chain does no harm and goes the next time.
pub(super) fn remove_leftovers(socket: &mut Socket, existing: &Existing, table: &Table, report: &mut Report) {
    let used: Vec<_> = table.picks().collect();
    let unused: Vec<_> = existing.picks.iter().filter(|pick| !used.contains(pick)).copied().collect();
    let _ = remove_picks(socket, &unused, report);
    for name in &existing.foreign_chains {
        debug_assert!(chains().iter().all(|ours| ours.name != name));
        let mut batch = Batch::new();
        batch.delete(msg::DELCHAIN, format!("remove foreign chain {name}"), |message| {
            message.text(chain::TABLE, TABLE);
            message.text(chain::NAME, name);
        });
        if let Err(error) = socket.commit(batch) {
            tracing::warn!(chain = name, %error, "a foreign chain in the table could not be removed");
        }
    }
}

/// Removes these chains in a transaction of their own.
pub(super) fn remove_picks(
    socket: &mut Socket,
    picks: &[PickChain],
    report: &mut Report,
) -> Result<(), NetlinkError> {
    if picks.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new();
    for pick in picks {
        encode::write_removal(*pick, &mut batch);
    }
    report.bytes += socket.commit(batch)?;
    report.transactions += 1;
    Ok(())
}
