//! The edge: sends transactions to the kernel.

use std::{collections::BTreeSet, iter, net::SocketAddr, sync::mpsc::sync_channel, thread};

use super::{
    encode,
    read::{self, ExistingTable, TableHeader},
};
use crate::Report;
use crate::nftables::{
    desired::{
        capacity::{Remade, Sizes},
        element::{Element, FrontendKey, Key, Value},
        table::Table,
        transaction::{Group, Transaction},
    },
    layout::{
        DemandChain, Family, PodRanges, Set, SetKind, TABLE, chains, write_chains, write_rules,
        write_sets, write_table,
    },
    netlink::{
        Batch, NetlinkError, Socket,
        constants::{chain, msg, rule, set, table as table_attribute},
    },
};

/// The size of the batches that fill a new table. Nothing passes through it yet, so it need not appear at once; and the next batch
/// is encoded while the kernel commits one.
pub(crate) const NEW_TABLE_BATCH_BYTES: usize = 1 << 20;

/// A new table; an existing unusable one is removed in the same transaction.
pub(crate) fn write_fresh(
    batch: &mut Batch,
    replace: bool,
    flags: u32,
    sizes: &Sizes,
    pods: PodRanges,
) {
    if replace {
        write_removal(batch);
    }
    write_table(batch, flags);
    write_sets(batch, sizes);
    write_chains(batch);
    write_rules(batch, pods);
}

/// Sets the flags of the existing table: a dormant one becomes active, and one without owner gets this one. Sent separately,
/// since the kernel accepts no new base chain in such a transaction: `nf_tables_addchain` since Linux 6.9.
pub(crate) fn set_flags(
    socket: &mut Socket,
    found: &TableHeader,
    flags: u32,
) -> Result<(), NetlinkError> {
    if found.flags != flags {
        let mut batch = Batch::new();
        write_table(&mut batch, flags);
        socket.commit(batch)?;
    }
    Ok(())
}

/// Rewrites all rules of a usable table: they are few, and foreign changes are undone. Sets and elements stay, except for sets
/// that are created again because of their size or their shape, which are empty then.
pub(crate) fn write_repair(
    batch: &mut Batch,
    existing: &ExistingTable,
    remade: &Remade,
    pods: PodRanges,
) {
    batch.delete(msg::DELRULE, "all rules", |message| {
        message.text(rule::TABLE, TABLE);
    });
    // No rule refers to them now.
    for (set, size) in remade {
        if existing.shaped.contains(set) || existing.misshapen.contains(set) {
            write_removal_of_set(batch, &set.name());
        }
        let id = batch.new_set_id();
        set.write(batch, id, *size);
    }
    write_chains(batch);
    write_rules(batch, pods);
    for name in &existing.foreign_sets {
        write_removal_of_set(batch, name);
    }
}

fn write_removal_of_set(batch: &mut Batch, name: &str) {
    batch.delete(msg::DELSET, format!("remove set {name}"), |message| {
        message.text(set::TABLE, TABLE);
        message.text(set::NAME, name);
    });
}

/// Removes the table with its whole content.
pub(crate) fn write_removal(batch: &mut Batch) {
    batch.delete(msg::DELTABLE, "remove the table", |message| {
        message.text(table_attribute::NAME, TABLE);
    });
}

/// Commits a transaction of `table`, in batches of at most `limit` bytes, and right after it its late removals. `first` is sent
/// ahead of everything.
pub(crate) fn commit(
    socket: &mut Socket,
    mut first: Batch,
    mut transaction: Transaction,
    table: &Table,
    limit: usize,
) -> Result<Report, NetlinkError> {
    let created = transaction.adds_all.then_some(table);
    let (removed, added) = transaction.counts();
    let added = added + created.map_or(0, Table::creation_len);
    let mut report = Report {
        added,
        removed,
        ..Report::default()
    };
    let gone = std::mem::take(&mut transaction.forget);
    let late = transaction.take_late();
    if created.is_some() {
        // Growing step by step would copy a large batch repeatedly. What is not needed is never touched.
        first.reserve(table.max_bytes().min(limit));
    }
    let creation = created.into_iter().flat_map(Table::creation);
    commit_in_batches(
        socket,
        encode::batches(first, transaction, creation, limit),
        &mut report,
    )?;
    commit_in_batches(
        socket,
        encode::batches(Batch::new(), late, iter::empty(), limit),
        &mut report,
    )?;
    if !gone.is_empty() {
        forget(socket, &gone)?;
    }
    Ok(report)
}

/// Commits batches one after the other. From the third on, each is encoded while the kernel commits an earlier one.
fn commit_in_batches(
    socket: &mut Socket,
    mut batches: impl Iterator<Item = Batch> + Send,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    let mut commit = |batch| {
        report.sent.get_or_insert_with(|| socket.kernel().now());
        report.bytes += socket.commit(batch)?;
        report.transactions += 1;
        Ok(())
    };
    // Most transactions are one batch, for which no thread is started: so the second one is encoded before the first is committed.
    let (Some(first), second) = (batches.next(), batches.next()) else {
        return Ok(());
    };
    let Some(second) = second else {
        return commit(first);
    };
    thread::scope(|scope| {
        let (encoded, next) = sync_channel(1);
        scope.spawn(move || {
            iter::once(second)
                .chain(batches)
                .try_for_each(|batch| encoded.send(batch))
        });
        commit(first)?;
        next.iter().try_for_each(commit)
    })
}

/// Removes unused chains. Before Linux 6.2 the kernel notices late that a chain is unreferenced, and refuses; such a chain does
/// no harm and is removed the next time.
pub(crate) fn remove_leftovers(
    socket: &mut Socket,
    existing: &ExistingTable,
    table: &Table,
    report: &mut Report,
) {
    let used: BTreeSet<_> = table.chains().collect();
    let mut batch = Batch::new();
    for unused in existing
        .on_demand
        .iter()
        .filter(|chain| !used.contains(chain))
    {
        encode::write_removal_of_chain(*unused, &mut batch);
    }
    let _ = commit_if_any(socket, batch, report);
    for name in &existing.foreign_chains {
        debug_assert!(chains().iter().all(|ours| ours.name != name));
        let mut batch = Batch::new();
        batch.delete(
            msg::DELCHAIN,
            format!("remove foreign chain {name}"),
            |message| {
                message.text(chain::TABLE, TABLE);
                message.text(chain::NAME, name);
            },
        );
        if let Err(error) = socket.commit(batch) {
            tracing::warn!(chain = name, %error, "a foreign chain in the table could not be removed");
        }
    }
}

/// Deletes the affinity entries of removed backends, and repeats until none is left. Entries time out by
/// themselves, and the kernel refuses a whole batch that names one which just did; and a packet that found its entry right
/// before its removal writes it once more.
fn forget(
    socket: &mut Socket,
    gone: &BTreeSet<(FrontendKey, SocketAddr)>,
) -> Result<(), NetlinkError> {
    const MAX_ATTEMPTS: usize = 3;
    let families: BTreeSet<Family> = gone.iter().map(|(frontend, _)| frontend.family()).collect();
    for family in families {
        let memory = Set::new(SetKind::Affinity, family);
        let mut last = Ok(());
        for _ in 0..MAX_ATTEMPTS {
            let is_gone = |element: &Element| match (element.key, element.value) {
                (Key::Client(frontend, _), Value::Backend(backend)) => {
                    gone.contains(&(frontend, backend.into()))
                }
                _ => false,
            };
            let remembered = read::elements_of(socket, memory)?.unwrap_or_default();
            let remove: Vec<Element> = remembered.into_iter().filter(is_gone).collect();
            if remove.is_empty() {
                last = Ok(());
                break;
            }
            let group = Group {
                remove,
                add: vec![],
            };
            let mut batch = Batch::new();
            encode::write(
                &Transaction {
                    groups: vec![group],
                    ..Transaction::default()
                },
                &mut batch,
            );
            last = socket.commit(batch).map(drop);
        }
        last?;
    }
    Ok(())
}

/// Removes these chains in a separate transaction.
pub(crate) fn remove_chains(
    socket: &mut Socket,
    unused: &[DemandChain],
    report: &mut Report,
) -> Result<(), NetlinkError> {
    let mut batch = Batch::new();
    for chain in unused {
        encode::write_removal(*chain, &mut batch);
    }
    commit_if_any(socket, batch, report)
}

fn commit_if_any(
    socket: &mut Socket,
    batch: Batch,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    if !batch.is_empty() {
        report.bytes += socket.commit(batch)?;
        report.transactions += 1;
    }
    Ok(())
}
