//! `contiv apply`

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, Write},
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use contiv_model::wire::{self, Findings};
use contiv_proto::{Key, Kind, Object};
use contiv_store::{
    Condition, Entry, Operation, Store, StoreError, Transaction, TransactionSize,
    manifest::ManifestObject,
};
use jiff::Timestamp;

use crate::cli::{
    Outcome, Terminal,
    output::progress::Progress,
    source::{
        input::Manifests,
        store::{StoreArgument, read, title},
    },
};

/// Create or update the objects of manifests in the store
///
/// Existing objects are changed to match the manifests; others are left alone. A manifest without a status keeps the stored
/// status: whether an external workload is ready, and the addresses of a load balancer, a node or a pod. Exit codes: 0 success;
/// 1 the store cannot be written, or a manifest is invalid (the others are applied); 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    manifests: Manifests,

    /// Read the store and print what would be done, without doing it. A store does not validate, so client and server do the same
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t, default_missing_value = "client")]
    dry_run: DryRun,

    #[command(flatten)]
    store: StoreArgument,
}

/// Whether the store is left as it is, in the words of kubectl.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum DryRun {
    #[default]
    None,
    Client,
    Server,
}

impl DryRun {
    /// What is printed after a result.
    const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// The number of attempts to write objects that another program writes at the same time, as in `kubectl apply`.
const CONFLICT_ATTEMPTS: u32 = 5;

/// What applying a manifest does to its object, in the words of `kubectl apply`.
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
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let mut parsed = self.manifests.read()?;
        parsed.refuse_unknown_values();
        self.manifests.report(&parsed, &mut terminal.err)?;
        let are_all_valid = parsed.problems.is_empty();
        if parsed.objects.is_empty() {
            if are_all_valid {
                writeln!(terminal.err, "note: no objects to apply")?;
            }
            return Ok(Outcome::success_if(are_all_valid));
        }
        print_warnings(&parsed.objects, &mut terminal.err)?;
        let store = self.store.choose_to_write(&mut terminal.err)?;
        store.run(async |store| apply(&*store, parsed.objects, self.dry_run, terminal).await)?;
        Ok(Outcome::success_if(are_all_valid))
    }
}

/// Prints the fields that have no effect, or not the expected one, which agents will warn of too.
fn print_warnings(objects: &[ManifestObject], err: &mut impl Write) -> io::Result<()> {
    for ManifestObject {
        source,
        key,
        object,
        ..
    } in objects
    {
        let Ok((_, Findings { warnings, .. })) = wire::validate(object, 0) else {
            continue;
        };
        warnings
            .iter()
            .try_for_each(|warning| writeln!(err, "warning: {source}: {key}: {warning}"))?;
    }
    Ok(())
}

async fn apply(
    store: &dyn Store,
    objects: Vec<ManifestObject>,
    dry_run: DryRun,
    terminal: &mut Terminal,
) -> anyhow::Result<()> {
    let keys: Vec<Key> = objects.iter().map(|object| object.key.clone()).collect();
    let stored = read(store, &keys).await?;
    let total = objects.len();
    let progress = Progress::for_objects(total);
    let mut chunk = Chunk::default();
    let mut without_status = Vec::new();
    for object in objects {
        let write = PlannedWrite::new(&object, &stored)?;
        let ManifestObject {
            key, has_status, ..
        } = &object;
        if write.result == ApplyResult::Created
            && key.kind() == Kind::ExternalWorkload
            && !has_status
        {
            without_status.push(title(key));
        }
        let size = write.put.as_ref().map_or(0, Operation::size);
        if !chunk.size.try_add(size) {
            std::mem::take(&mut chunk)
                .apply(store, &progress, total, dry_run, terminal)
                .await?;
            chunk.size.try_add(size);
        }
        chunk.objects.push(object);
        chunk.writes.push(write);
    }
    chunk
        .apply(store, &progress, total, dry_run, terminal)
        .await?;
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
    objects: Vec<ManifestObject>,
    /// One for each object.
    writes: Vec<PlannedWrite>,
    size: TransactionSize,
}

impl Chunk {
    async fn apply(
        self,
        store: &dyn Store,
        progress: &Progress,
        total: usize,
        dry_run: DryRun,
        terminal: &mut Terminal,
    ) -> anyhow::Result<()> {
        let results = if dry_run == DryRun::None {
            self.write(store).await
        } else {
            Ok(self.writes.iter().map(|write| write.result).collect())
        };
        let results = results.with_context(|| {
            let first = self
                .objects
                .first()
                .map(|object| title(&object.key))
                .unwrap_or_default();
            format!(
                "{} of {total} objects are applied; {first} and the rest are not",
                progress.done()
            )
        })?;
        progress.suspend(|| {
            let mut applied = self.objects.iter().zip(&results);
            applied.try_for_each(|(object, result)| {
                let (title, suffix) = (title(&object.key), dry_run.suffix());
                writeln!(terminal.out, "{title} {}{suffix}", result.word())
            })
        })?;
        progress.add(self.objects.len());
        Ok(())
    }

    /// Writes the objects. If another program writes one of them at the same time, they are read and compared again.
    async fn write(&self, store: &dyn Store) -> anyhow::Result<Vec<ApplyResult>> {
        let mut writes = Cow::Borrowed(&self.writes);
        for attempt in 1.. {
            let operations: Vec<_> = writes
                .iter()
                .filter_map(|write| write.put.clone())
                .collect();
            let conditions = writes
                .iter()
                .filter_map(|write| write.condition.clone())
                .collect();
            if operations.is_empty() {
                break;
            }
            match store
                .transact(Transaction {
                    conditions,
                    operations,
                })
                .await
            {
                Ok(_) => break,
                Err(StoreError::Conflict { .. }) if attempt < CONFLICT_ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
            let keys: Vec<Key> = self
                .objects
                .iter()
                .map(|object| object.key.clone())
                .collect();
            let stored = read(store, &keys).await?;
            let planned = self
                .objects
                .iter()
                .map(|object| PlannedWrite::new(object, &stored));
            writes = Cow::Owned(planned.collect::<Result<_, _>>()?);
        }
        Ok(writes.iter().map(|write| write.result).collect())
    }
}

/// The write that an object needs.
#[derive(Debug, Clone)]
struct PlannedWrite {
    result: ApplyResult,
    /// None if the stored object is the same.
    put: Option<Operation>,
    /// The condition for writing it.
    condition: Option<Condition>,
}

impl PlannedWrite {
    fn new(object: &ManifestObject, stored: &BTreeMap<String, Entry>) -> anyhow::Result<Self> {
        let ManifestObject {
            source,
            key,
            object,
            has_status,
            ..
        } = object;
        let Comparison {
            result,
            object,
            condition,
        } = compare(key, object.clone(), *has_status, stored);
        if result == ApplyResult::Unchanged {
            return Ok(Self {
                result,
                put: None,
                condition: None,
            });
        }
        let value = object
            .encode()
            .with_context(|| format!("{source}: failed to write {key}"))?;
        let put = Operation::Put {
            key: key.to_path(),
            value: value.into(),
        };
        Ok(Self {
            result,
            put: Some(put),
            condition,
        })
    }
}

/// The object to store, and how it differs from the stored one.
struct Comparison {
    result: ApplyResult,
    object: Object,
    /// The condition for writing it.
    condition: Option<Condition>,
}

/// The object that would be stored by applying a manifest.
pub(super) fn applied(found: &ManifestObject, stored: &BTreeMap<String, Entry>) -> Object {
    compare(&found.key, found.object.clone(), found.has_status, stored).object
}

/// Completes an object with what it keeps of the stored one, and compares the two. As in an API server, a service keeps its
/// creation time, or gets one, and a manifest without status keeps the stored status. Another program may write that status at
/// the same time; therefore the write has the condition that the stored object is unchanged since it was read.
fn compare(
    key: &Key,
    mut object: Object,
    has_status: bool,
    stored: &BTreeMap<String, Entry>,
) -> Comparison {
    let Some(entry) = stored.get(&key.to_path()) else {
        set_creation_time(&mut object, Timestamp::now().as_second());
        return Comparison {
            result: ApplyResult::Created,
            object,
            condition: None,
        };
    };
    // An unreadable object is overwritten.
    let Ok(before) = Object::decode(key, &entry.value) else {
        return Comparison {
            result: ApplyResult::Configured,
            object,
            condition: None,
        };
    };
    if let Object::Service(before) = &before {
        set_creation_time(&mut object, before.creation_timestamp);
    }
    let keeps_status = !has_status && keep_status(&mut object, &before);
    let condition = keeps_status.then(|| Condition::Unchanged {
        key: entry.key.clone(),
        mod_revision: entry.mod_revision,
    });
    let result = if object == before {
        ApplyResult::Unchanged
    } else {
        ApplyResult::Configured
    };
    Comparison {
        result,
        object,
        condition,
    }
}

/// Copies the status of the stored object. False for a kind without status.
fn keep_status(object: &mut Object, stored: &Object) -> bool {
    match (object, stored) {
        (Object::ExternalWorkload(object), Object::ExternalWorkload(stored)) => {
            object.conditions.clone_from(&stored.conditions);
        }
        // As in an API server, a changed type drops the addresses that belong to the old one.
        (Object::Service(object), Object::Service(stored))
            if object.service_type == "LoadBalancer" =>
        {
            object
                .load_balancer_ingress
                .clone_from(&stored.load_balancer_ingress);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use contiv_store::{Snapshot, WatchStream, manifest};
    use contiv_store_testing::MemoryStore;
    use futures::{FutureExt, future::BoxFuture};

    use super::*;

    const SERVICE: &str = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, \
                           spec: {type: LoadBalancer, clusterIP: 10.96.0.7, ports: [{port: 80}]}}";

    /// A store in which another program writes the address of the load balancer right before a write.
    struct BusyStore {
        store: MemoryStore,
        /// How many more times the other program writes.
        writes_left: AtomicU32,
    }

    impl Store for BusyStore {
        fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
            self.store.list(prefix)
        }

        fn watch<'a>(
            &'a self,
            prefix: &'a str,
            revision: i64,
        ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
            self.store.watch(prefix, revision)
        }

        fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
            async move {
                let left = self.writes_left.load(Ordering::Relaxed);
                if left > 0 {
                    self.writes_left.store(left - 1, Ordering::Relaxed);
                    self.store
                        .commit(vec![put_with_address(&format!("192.0.2.{left}"))])
                        .await?;
                }
                self.store.transact(transaction).await
            }
            .boxed()
        }
    }

    fn object(cluster_ip: &str) -> ManifestObject {
        let mut parsed =
            manifest::parse_file("web.yaml", &SERVICE.replace("10.96.0.7", cluster_ip));
        parsed.objects.pop().unwrap()
    }

    fn put_with_address(address: &str) -> Operation {
        let ManifestObject {
            key, mut object, ..
        } = object("10.96.0.7");
        if let Object::Service(service) = &mut object {
            service.lb_ingress_ips = vec![address.to_owned()];
        }
        Operation::Put {
            key: key.to_path(),
            value: object.encode().unwrap().into(),
        }
    }

    /// Applies a service while another program writes it before the first `writes` attempts.
    async fn apply_during_writes(writes: u32) -> (Result<Vec<ApplyResult>, String>, Object) {
        let store = BusyStore {
            store: MemoryStore::new(),
            writes_left: AtomicU32::new(writes),
        };
        store
            .store
            .commit(vec![put_with_address("192.0.2.100")])
            .await
            .unwrap();
        let object = object("10.96.0.8");
        let key = object.key.clone();
        let stored = read(&store, std::slice::from_ref(&key)).await.unwrap();
        let writes = vec![PlannedWrite::new(&object, &stored).unwrap()];
        let chunk = Chunk {
            objects: vec![object],
            writes,
            size: TransactionSize::default(),
        };
        let result = chunk.write(&store).await.map_err(|error| error.to_string());
        let stored = read(&store, std::slice::from_ref(&key)).await.unwrap();
        (
            result,
            Object::decode(&key, &stored[&key.to_path()].value).unwrap(),
        )
    }

    #[tokio::test]
    async fn object_written_concurrently_is_read_again() {
        let (result, stored) = apply_during_writes(CONFLICT_ATTEMPTS - 1).await;
        assert_eq!(result, Ok(vec![ApplyResult::Configured]));
        let Object::Service(service) = stored else {
            panic!("{stored:?}")
        };
        assert_eq!(
            (service.cluster_ip.as_str(), &service.lb_ingress_ips[..]),
            ("10.96.0.8", &["192.0.2.1".to_owned()][..])
        );
    }

    #[tokio::test]
    async fn apply_gives_up_if_another_program_keeps_writing_the_object() {
        let (result, stored) = apply_during_writes(CONFLICT_ATTEMPTS + 1).await;
        assert!(result.is_err_and(|error| error.contains("service/web")));
        let Object::Service(service) = stored else {
            panic!("{stored:?}")
        };
        assert_eq!(service.cluster_ip, "10.96.0.7");
    }
}
