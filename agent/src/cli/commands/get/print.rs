//! The output of `contiv get`, in each format.

use std::io::Write;

use anyhow::Context;
use contiv_proto::{Key, Kind, Object};
use contiv_store::manifest;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns;
use crate::cli::{
    output::{
        format::DataFormat, listing::Output, table::Table, table_options::TableOptions,
        watch::width,
    },
    selection::stored::{StoredObjects, labels},
    source::store::title,
};

/// The format and the columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer<'a> {
    pub(super) output: &'a Output,
    pub(super) is_single: bool,
    pub(super) shows_namespace: bool,
    pub(super) shows_labels: bool,
    pub(super) table: &'a TableOptions,
}

impl Printer<'_> {
    /// Prints all of it, sorted: a table for each kind, or one list.
    pub(super) fn print(
        self,
        all: &mut [StoredObjects],
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        // Hidden columns can be sorted by too.
        let wide = Self {
            output: &Output::Wide,
            ..self
        };
        for StoredObjects { kind, objects, .. } in all.iter_mut() {
            let row = |(key, object): &(Key, Object)| wide.row(key, object);
            self.table
                .sort(objects, &wide.header(*kind), row, |(_, object)| {
                    manifest::to_value(object)
                })?;
        }
        let all = &*all;
        let objects = || all.iter().flat_map(|found| &found.objects);
        let manifests = || {
            objects()
                .map(|(_, object)| manifest::to_value(object))
                .collect::<Vec<_>>()
        };
        match self.output {
            Output::Table | Output::Wide => {
                let mut is_first = true;
                for found in all.iter().filter(|found| !found.objects.is_empty()) {
                    if !std::mem::replace(&mut is_first, false) {
                        writeln!(out)?;
                    }
                    let mut table =
                        Table::new(&self.header(found.kind)).without_header(self.table.no_headers);
                    found
                        .objects
                        .iter()
                        .for_each(|(key, object)| table.push(self.row(key, object)));
                    write!(out, "{}", table.within(self.width()))?;
                }
            }
            Output::Name => objects().try_for_each(|(key, _)| writeln!(out, "{}", title(key)))?,
            Output::Data(DataFormat::Yaml) => {
                let text = manifest::to_yaml(&manifests()).context("failed to write YAML")?;
                out.write_all(text.as_bytes())?;
            }
            Output::Data(format) => {
                let mut items = manifests();
                let value = if items.len() == 1 && self.is_single {
                    items.remove(0)
                } else {
                    json!({ "apiVersion": "v1", "kind": "List", "items": items })
                };
                write!(out, "{}", format.print(value, self.table.no_headers)?)?;
            }
        }
        Ok(())
    }

    /// The maximum width of a table's lines.
    pub(super) fn width(self) -> Option<usize> {
        width().filter(|_| *self.output != Output::Wide)
    }

    /// The titles of the columns.
    pub(super) fn header(self, kind: Kind) -> Vec<&'static str> {
        let (mut header, wide) = columns::header(kind);
        if *self.output == Output::Wide {
            header.extend(wide);
        }
        if self.shows_namespace && kind.is_namespaced() {
            header.insert(0, "NAMESPACE");
        }
        if self.shows_labels {
            header.push("LABELS");
        }
        header
    }

    /// A cell for each of them.
    pub(super) fn row(self, key: &Key, object: &Object) -> Vec<String> {
        let (mut row, wide) = columns::row(key, object, Timestamp::now());
        if *self.output == Output::Wide {
            row.extend(wide);
        }
        if self.shows_namespace && key.kind().is_namespaced() {
            row.insert(0, key.namespace().to_owned());
        }
        if self.shows_labels {
            row.push(columns::pairs(&labels(object)));
        }
        row
    }
}

/// One object for programs; with the event type, if requested.
pub(super) fn document(event_type: Option<&str>, object: &Object) -> Value {
    let manifest = manifest::to_value(object);
    match event_type {
        Some(event_type) => json!({ "type": event_type, "object": manifest }),
        None => manifest,
    }
}
