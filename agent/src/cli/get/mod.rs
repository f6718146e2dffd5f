//! `contiv get`

mod columns;

use std::{
    io::{self, Write},
    str::FromStr,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use contiv_proto::{Key, Kind, Object, UnknownKind};
use contiv_store::{Entry, Store, manifest};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Outcome, Terminal,
    input::print_problems,
    store::{StoreArgument, read},
    table::Table,
};

/// Print what is in the store
///
/// With -o yaml and -o json, as manifests that `contiv apply` and `kubectl apply` take.
#[derive(Debug, Args)]
pub(super) struct Get {
    /// What kind of object, as in svc, endpoints, eps, po or no; several with commas between them
    #[arg(value_name = "KIND[,KIND]")]
    kinds: Kinds,

    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Only of this namespace
    #[arg(short, long, default_value = "default", conflicts_with = "all_namespaces")]
    namespace: String,

    /// Of every namespace
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,

    /// In which form
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(flatten)]
    store: StoreArgument,
}

/// One or more kinds in one word, as in `svc,eps`.
#[derive(Debug, Clone)]
struct Kinds(Vec<Kind>);

impl FromStr for Kinds {
    type Err = UnknownKind;

    fn from_str(words: &str) -> Result<Self, Self::Err> {
        words.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for each, for people
    Table,
    /// Manifests
    Yaml,
    /// One manifest, or a list of them
    Json,
}

/// What was found of one kind.
struct Found {
    kind: Kind,
    objects: Vec<(Key, Object)>,
}

impl Get {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let mut is_good = true;
        let found = self.store.run(async |store| {
            let mut found = Vec::new();
            for kind in &self.kinds.0 {
                let (entries, listed_all) = self.fetch(*kind, &*store, terminal).await?;
                let (objects, read_all) = decode(entries, &mut terminal.err)?;
                is_good &= listed_all && read_all;
                found.push(Found { kind: *kind, objects });
            }
            Ok(found)
        })?;
        match self.output {
            Output::Table => self.print_tables(&found, terminal)?,
            Output::Yaml => {
                let text = manifest::to_yaml(&manifests(&found)).context("failed to write YAML")?;
                terminal.out.write_all(text.as_bytes())?;
            }
            Output::Json => {
                let mut items = manifests(&found);
                let value = if items.len() == 1 && self.names.len() == 1 {
                    items.remove(0)
                } else {
                    json!({ "apiVersion": "v1", "kind": "List", "items": items })
                };
                writeln!(terminal.out, "{}", serde_json::to_string_pretty(&value)?)?;
            }
        }
        Ok(Outcome::good_if(is_good))
    }

    /// The entries of one kind that are asked for, and whether all is well with the list.
    async fn fetch(
        &self,
        kind: Kind,
        store: &dyn Store,
        terminal: &mut Terminal,
    ) -> anyhow::Result<(Vec<Entry>, bool)> {
        let namespace = if kind.is_namespaced() { &self.namespace } else { "" };
        if self.names.is_empty() {
            let snapshot = store.list(&Key::prefix(kind)).await?;
            print_problems(&snapshot.problems, &mut terminal.err)?;
            let is_good = snapshot.problems.is_empty();
            let is_wanted = |entry: &Entry| match Key::parse(&entry.key) {
                Ok(Some(key)) => self.all_namespaces || key.namespace() == namespace,
                // Decoding says what is wrong with it.
                _ => true,
            };
            return Ok((snapshot.entries.into_iter().filter(is_wanted).collect(), is_good));
        }
        let keys: Vec<Key> =
            self.names.iter().map(|name| Key::new(kind, namespace, name)).collect::<Result<_, _>>()?;
        let mut stored = read(store, &keys).await?;
        let mut entries = Vec::new();
        for key in &keys {
            match stored.remove(&key.to_path()) {
                Some(entry) => entries.push(entry),
                None => {
                    writeln!(
                        terminal.err,
                        "error: {key} is not there; `contiv get {kind} -A` lists what is"
                    )?;
                }
            }
        }
        let is_good = entries.len() == keys.len();
        Ok((entries, is_good))
    }

    fn print_tables(&self, found: &[Found], terminal: &mut Terminal) -> io::Result<()> {
        let now = Timestamp::now();
        let mut is_first = true;
        for Found { kind, objects } in found {
            if objects.is_empty() {
                if self.names.is_empty() {
                    self.print_none(*kind, terminal)?;
                }
                continue;
            }
            if !std::mem::replace(&mut is_first, false) {
                writeln!(terminal.out)?;
            }
            let shows_namespace = self.all_namespaces && kind.is_namespaced();
            let namespace_column: &[&str] = if shows_namespace { &["NAMESPACE"] } else { &[] };
            let mut table = Table::new(&[namespace_column, columns::header(*kind)].concat());
            for (key, object) in objects {
                let namespace = shows_namespace.then(|| key.namespace().to_owned());
                table.push(namespace.into_iter().chain(columns::row(key, object, now)).collect());
            }
            table.print(&mut terminal.out)?;
        }
        Ok(())
    }

    fn print_none(&self, kind: Kind, terminal: &mut Terminal) -> io::Result<()> {
        if self.all_namespaces || !kind.is_namespaced() {
            writeln!(terminal.err, "no {kind} found")
        } else {
            writeln!(terminal.err, "no {kind} found in namespace {}; -A looks in every one", self.namespace)
        }
    }
}

/// The objects by namespace and name, and whether all could be read; what could not is printed.
fn decode(entries: Vec<Entry>, err: &mut impl Write) -> io::Result<(Vec<(Key, Object)>, bool)> {
    let mut objects = Vec::new();
    let mut is_good = true;
    for entry in entries {
        let key = match Key::parse(&entry.key) {
            Ok(Some(key)) => key,
            Ok(None) => continue,
            Err(error) => {
                is_good = false;
                writeln!(err, "error: {error}")?;
                continue;
            }
        };
        match Object::decode(&key, &entry.value) {
            Ok(object) => objects.push((key, object)),
            Err(error) => {
                is_good = false;
                writeln!(err, "error: {key}: {error}")?;
            }
        }
    }
    objects.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((objects, is_good))
}

fn manifests(found: &[Found]) -> Vec<Value> {
    found.iter().flat_map(|found| &found.objects).map(|(_, object)| manifest::to_value(object)).collect()
}
