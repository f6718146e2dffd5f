//! `contiv apply`

use std::{collections::BTreeMap, io::Write};

use anyhow::Context;
use clap::Args;
use contiv_proto::{Key, Kind, Object};
use contiv_store::{Condition, Entry, Fill, Operation, Store, Transaction, manifest::ManifestObject};
use jiff::Timestamp;

use super::{
    Outcome, Terminal,
    input::Manifests,
    progress::Progress,
    store::{StoreArgument, read, title},
};

/// Create or update the objects of manifests in the store
///
/// Existing objects are changed to match the manifests; others are left alone. A manifest without a status keeps the stored
/// status: whether an external workload is ready, and the addresses of a load balancer, a node or a pod. Exit codes: 0 success;
/// 1 the store cannot be written, or a manifest is invalid (the others are applied); 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(flatten)]
    manifests: Manifests,

    #[command(flatten)]
    store: StoreArgument,
}

/// The effect on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApplyResult {
    Created,
    Configured,
    Unchanged,
}

impl ApplyResult {
    const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

impl Apply {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let mut parsed = self.manifests.read()?;
        parsed.refuse_unknown_values();
        self.manifests.report(&parsed, &mut terminal.err)?;
        let is_good = parsed.problems.is_empty();
        if parsed.objects.is_empty() {
            if is_good {
                writeln!(terminal.err, "note: no objects to apply")?;
            }
            return Ok(Outcome::good_if(is_good));
        }
        self.store.run(async |store| apply(&*store, parsed.objects, terminal).await)?;
        Ok(Outcome::good_if(is_good))
    }
}

async fn apply(
    store: &dyn Store,
    objects: Vec<ManifestObject>,
    terminal: &mut Terminal,
) -> anyhow::Result<()> {
    let keys: Vec<Key> = objects.iter().map(|object| object.key.clone()).collect();
    let stored = read(store, &keys).await?;
    let total = objects.len();
    let progress = Progress::of_objects(total);
    let mut chunk = Chunk::default();
    let mut without_status = Vec::new();
    for ManifestObject { source, key, object, has_status, .. } in objects {
        let Comparison { verdict, object, condition } = compare(&key, object, has_status, &stored);
        if verdict == ApplyResult::Created && key.kind() == Kind::ExternalWorkload && !has_status {
            without_status.push(title(&key));
        }
        let put = if verdict == ApplyResult::Unchanged {
            None
        } else {
            let value = object.encode().with_context(|| format!("{source}: failed to write {key}"))?;
            Some(Operation::Put { key: key.to_path(), value: value.into() })
        };
        let size = put.as_ref().map_or(0, Operation::size);
        if !chunk.fill.take(size) {
            std::mem::take(&mut chunk).apply(store, &progress, total, terminal).await?;
            chunk.fill.take(size);
        }
        chunk.verdicts.push((key, verdict));
        chunk.conditions.extend(condition.filter(|_| put.is_some()));
        chunk.operations.extend(put);
    }
    chunk.apply(store, &progress, total, terminal).await?;
    if !without_status.is_empty() {
        writeln!(
            terminal.err,
            "note: no traffic for {} before their status has the condition Ready with the status \"True\"",
            without_status.join(", ")
        )?;
    }
    Ok(())
}

/// Objects that are applied together.
#[derive(Debug, Default)]
struct Chunk {
    operations: Vec<Operation>,
    conditions: Vec<Condition>,
    verdicts: Vec<(Key, ApplyResult)>,
    fill: Fill,
}

impl Chunk {
    async fn apply(
        self,
        store: &dyn Store,
        progress: &Progress,
        total: usize,
        terminal: &mut Terminal,
    ) -> anyhow::Result<()> {
        let Self { operations, conditions, verdicts, .. } = self;
        if !operations.is_empty() {
            store.transact(Transaction { conditions, operations }).await.with_context(|| {
                let first = verdicts.first().map(|(key, _)| title(key)).unwrap_or_default();
                format!("{} of {total} objects are applied; {first} and the rest are not", progress.done())
            })?;
        }
        let count = verdicts.len();
        progress.suspend(|| {
            verdicts
                .iter()
                .try_for_each(|(key, verdict)| writeln!(terminal.out, "{} {}", title(key), verdict.word()))
        })?;
        progress.add(count);
        Ok(())
    }
}

/// The object to store, and the effect of that.
struct Comparison {
    verdict: ApplyResult,
    object: Object,
    /// The condition for writing it.
    condition: Option<Condition>,
}

/// As in an API server, a service gets a creation time and keeps it, and a manifest without status keeps the stored one.
/// Another program may write that status right now, so the object is written only if it is unchanged since it was read.
fn compare(key: &Key, mut object: Object, has_status: bool, stored: &BTreeMap<String, Entry>) -> Comparison {
    let Some(entry) = stored.get(&key.to_path()) else {
        set_creation_time(&mut object, Timestamp::now().as_second());
        return Comparison { verdict: ApplyResult::Created, object, condition: None };
    };
    // An unreadable object is overwritten.
    let Ok(before) = Object::decode(key, &entry.value) else {
        return Comparison { verdict: ApplyResult::Configured, object, condition: None };
    };
    if let Object::Service(before) = &before {
        set_creation_time(&mut object, before.creation_timestamp);
    }
    let keeps_status = !has_status && keep_status(&mut object, &before);
    let condition = keeps_status
        .then(|| Condition::Unchanged { key: entry.key.clone(), mod_revision: entry.mod_revision });
    let verdict = if object == before { ApplyResult::Unchanged } else { ApplyResult::Configured };
    Comparison { verdict, object, condition }
}

/// Copies the status of the stored object. False for a kind without status.
fn keep_status(object: &mut Object, stored: &Object) -> bool {
    match (object, stored) {
        (Object::ExternalWorkload(object), Object::ExternalWorkload(stored)) => {
            object.conditions.clone_from(&stored.conditions);
        }
        // As in an API server, a changed type drops the addresses that belong to the old one.
        (Object::Service(object), Object::Service(stored)) if object.service_type == "LoadBalancer" => {
            object.load_balancer_ingress.clone_from(&stored.load_balancer_ingress);
            object.lb_ingress_ips.clone_from(&stored.lb_ingress_ips);
        }
        (Object::Node(object), Object::Node(stored)) => {
            object.addresses.clone_from(&stored.addresses);
            object.node_info.clone_from(&stored.node_info);
        }
        (Object::Pod(object), Object::Pod(stored)) => {
            object.phase.clone_from(&stored.phase);
            object.host_ip_address.clone_from(&stored.host_ip_address);
            object.ip_address.clone_from(&stored.ip_address);
            object.ip_addresses.clone_from(&stored.ip_addresses);
        }
        _ => return false,
    }
    true
}

fn set_creation_time(object: &mut Object, time: i64) {
    if let Object::Service(service) = object
        && service.creation_timestamp == 0
    {
        service.creation_timestamp = time;
    }
}
