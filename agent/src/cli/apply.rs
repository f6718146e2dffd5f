//! `contiv apply`

use std::{collections::BTreeMap, io::Write};

use anyhow::Context;
use clap::Args;
use contiv_proto::{Key, Object};
use contiv_store::{Entry, Fill, Operation, Store, manifest::ManifestObject};
use jiff::Timestamp;

use super::{
    Outcome, Terminal,
    input::Manifests,
    progress::Progress,
    store::{StoreArgument, read, title},
};

/// Put manifests into the store
///
/// Objects that are there already are changed to what the manifests say; others are left alone. Exit codes: 0 all is well; 1
/// the store cannot be written, or a manifest is broken (the others are applied); 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(flatten)]
    manifests: Manifests,

    #[command(flatten)]
    store: StoreArgument,
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Created,
    Configured,
    Unchanged,
}

impl Verdict {
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
        let parsed = self.manifests.read()?;
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
    for ManifestObject { source, key, object } in objects {
        let (verdict, object) = compare(&key, object, &stored);
        let put = if verdict == Verdict::Unchanged {
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
        chunk.operations.extend(put);
    }
    chunk.apply(store, &progress, total, terminal).await
}

/// Objects that are applied together.
#[derive(Debug, Default)]
struct Chunk {
    operations: Vec<Operation>,
    verdicts: Vec<(Key, Verdict)>,
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
        let Self { operations, verdicts, .. } = self;
        if !operations.is_empty() {
            store.commit(operations).await.with_context(|| {
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

/// What is to be stored, and what that means. As with an API server, a service is given the time of its creation, and
/// keeps it.
fn compare(key: &Key, mut object: Object, stored: &BTreeMap<String, Entry>) -> (Verdict, Object) {
    let Some(entry) = stored.get(&key.to_path()) else {
        set_creation_time(&mut object, Timestamp::now().as_second());
        return (Verdict::Created, object);
    };
    // What cannot be read is overwritten.
    let Ok(before) = Object::decode(key, &entry.value) else { return (Verdict::Configured, object) };
    if let Object::Service(before) = &before {
        set_creation_time(&mut object, before.creation_timestamp);
    }
    let verdict = if object == before { Verdict::Unchanged } else { Verdict::Configured };
    (verdict, object)
}

fn set_creation_time(object: &mut Object, time: i64) {
    if let Object::Service(service) = object
        && service.creation_timestamp == 0
    {
        service.creation_timestamp = time;
    }
}
