//! `contiv get --watch`: the list, then each change, in kubectl's format.

use std::{collections::BTreeMap, io::Write};

use anyhow::bail;
use contiv_proto::{Key, Object};
use contiv_store::{Batch, Change, Feed, FeedEvent, Snapshot};

use super::print::{Printer, document};
use crate::cli::{
    Outcome, Terminal, UsageError,
    output::{
        format::DataFormat,
        listing::Output,
        table::{Layout, Table},
    },
    selection::{
        resources::{ObjectSelector, ResourceRequest},
        stored::{decode, print_missing},
    },
    source::{
        input::print_problems,
        store::{StoreArgument, title},
    },
};

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    /// Kubernetes' names of event types.
    const fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

type ObjectEvents = Vec<(EventType, Key, Object)>;

/// The last printed state of each object.
struct KnownObjects<'a> {
    request: &'a ResourceRequest,
    objects: BTreeMap<Key, Object>,
}

/// Prints the list and then each change until it is stopped.
pub(super) fn watch(
    store: &StoreArgument,
    printer: Printer<'_>,
    shows_event_type: bool,
    request: &[ResourceRequest],
    terminal: &mut Terminal,
) -> anyhow::Result<Outcome> {
    let [request] = request else {
        return Err(
            UsageError("--watch takes one kind; start one command for each".to_owned()).into(),
        );
    };
    store.choose(&mut terminal.err)?.run(async |store| {
        let (mut events, _resync) = Feed::start(store.clone(), Key::prefix(request.kind));
        let mut known = KnownObjects {
            request,
            objects: BTreeMap::new(),
        };
        let mut stream = OutputStream {
            printer,
            shows_event_type,
            layout: None,
        };
        let mut is_first = true;
        while let Some(delivery) = events.recv().await {
            match delivery.event {
                FeedEvent::Snapshot(snapshot) => {
                    print_problems(&snapshot.problems, &mut terminal.err)?;
                    stream.print(&known.snapshot(&snapshot, &mut terminal.err)?, terminal)?;
                    if std::mem::take(&mut is_first)
                        && let ObjectSelector::Keys(keys) = &request.objects
                    {
                        let is_missing = |key: &&Key| !known.objects.contains_key(key);
                        let missing: Vec<&Key> = keys.iter().filter(is_missing).collect();
                        print_missing(&missing, &*store, &mut terminal.err).await?;
                        if missing.len() == keys.len() {
                            return Ok(Outcome::PartialFailure);
                        }
                    }
                }
                FeedEvent::Changed(batch) => {
                    stream.print(&known.batch(&batch, &mut terminal.err)?, terminal)?;
                }
                FeedEvent::Problems(problems) => print_problems(&problems, &mut terminal.err)?,
                FeedEvent::Down { reason } if is_first => bail!(reason),
                FeedEvent::Down { reason } => {
                    writeln!(terminal.err, "note: lost the store, trying again: {reason}")?;
                }
                FeedEvent::Replaced { reason } => {
                    writeln!(
                        terminal.err,
                        "note: the store has other data than before: {reason}"
                    )?;
                }
                FeedEvent::Inconsistent { reason, .. } => {
                    writeln!(
                        terminal.err,
                        "note: the store contradicts itself, listing again: {reason}"
                    )?;
                }
                FeedEvent::Up => writeln!(terminal.err, "note: the store is watched again")?,
                // Lists come as a whole.
                FeedEvent::List(_) | FeedEvent::Resumed { .. } | FeedEvent::Progress { .. } => {}
            }
        }
        bail!("the watch of the store has ended; this is a bug")
    })
}

impl KnownObjects<'_> {
    /// The changes since the last known state.
    fn snapshot(
        &mut self,
        snapshot: &Snapshot,
        err: &mut impl Write,
    ) -> std::io::Result<ObjectEvents> {
        let mut changed = Vec::new();
        for entry in &snapshot.entries {
            changed.extend(self.put(entry, err)?);
        }
        let paths: Vec<&str> = snapshot
            .entries
            .iter()
            .map(|entry| entry.key.as_str())
            .collect();
        // The entries are sorted.
        let is_gone = |key: &Key| paths.binary_search(&key.to_path().as_str()).is_err();
        let gone: Vec<Key> = self
            .objects
            .keys()
            .filter(|key| is_gone(key))
            .cloned()
            .collect();
        changed.extend(gone.into_iter().filter_map(|key| self.delete(&key)));
        Ok(changed)
    }

    fn batch(&mut self, batch: &Batch, err: &mut impl Write) -> std::io::Result<ObjectEvents> {
        let mut changed = Vec::new();
        for change in &batch.changes {
            changed.extend(match change {
                Change::Put(entry) => self.put(entry, err)?,
                Change::Delete { key } => Key::parse(key)
                    .ok()
                    .flatten()
                    .and_then(|key| self.delete(&key)),
            });
        }
        Ok(changed)
    }

    fn put(
        &mut self,
        entry: &contiv_store::Entry,
        err: &mut impl Write,
    ) -> std::io::Result<Option<(EventType, Key, Object)>> {
        let object = match decode(entry, self.request) {
            Ok(object) => object,
            // Its previous state may still be used.
            Err(error) => {
                writeln!(err, "error: {error}")?;
                return Ok(None);
            }
        };
        let Some((key, object)) = object else {
            // Its labels no longer match, so for the selector it is deleted.
            return Ok(Key::parse(&entry.key)
                .ok()
                .flatten()
                .and_then(|key| self.delete(&key)));
        };
        let event_type = match self.objects.insert(key.clone(), object.clone()) {
            None => EventType::Added,
            Some(before) if before == object => return Ok(None),
            Some(_) => EventType::Modified,
        };
        Ok(Some((event_type, key, object)))
    }

    fn delete(&mut self, key: &Key) -> Option<(EventType, Key, Object)> {
        self.objects
            .remove_entry(key)
            .map(|(key, object)| (EventType::Deleted, key, object))
    }
}

/// The stream of printed rows or documents.
struct OutputStream<'a> {
    printer: Printer<'a>,
    shows_event_type: bool,
    layout: Option<Layout>,
}

impl OutputStream<'_> {
    fn print(&mut self, changed: &ObjectEvents, terminal: &mut Terminal) -> anyhow::Result<()> {
        let Some((_, first, _)) = changed.first() else {
            return Ok(());
        };
        let out = &mut terminal.out;
        match self.printer.output {
            Output::Table | Output::Wide => {
                let mut header = self.printer.header(first.kind());
                if self.shows_event_type {
                    header.insert(0, "EVENT");
                }
                let mut table = Table::new(&header).without_header(self.printer.table.no_headers);
                for (event_type, key, object) in changed {
                    let mut row = self.printer.row(key, object);
                    if self.shows_event_type {
                        row.insert(0, format!("{:<8}", event_type.word()));
                    }
                    table.push(row);
                }
                let (text, layout) = table.continued(self.layout.take(), self.printer.width());
                self.layout = Some(layout);
                out.write_all(text.as_bytes())?;
            }
            Output::Name => {
                for (event_type, key, _) in changed {
                    let what = if self.shows_event_type {
                        format!("{:<10}", event_type.word())
                    } else {
                        String::new()
                    };
                    writeln!(out, "{what}{}", title(key))?;
                }
            }
            Output::Data(DataFormat::CustomColumns(columns)) => {
                let rows = changed.iter().map(|(event_type, _, object)| {
                    let event_type = self.shows_event_type.then(|| event_type.word());
                    document(event_type, object)
                });
                let table = columns.table(&rows.collect::<Vec<_>>())?;
                let table = table.without_header(self.printer.table.no_headers);
                let (text, layout) = table.continued(self.layout.take(), None);
                self.layout = Some(layout);
                out.write_all(text.as_bytes())?;
            }
            Output::Data(format) => {
                for (event_type, _, object) in changed {
                    let event_type = self.shows_event_type.then(|| event_type.word());
                    let text = format.print(document(event_type, object), false)?;
                    let start = match format {
                        DataFormat::Yaml => "---\n",
                        _ => "",
                    };
                    write!(out, "{start}{text}")?;
                }
            }
        }
        Ok(out.flush()?)
    }
}
