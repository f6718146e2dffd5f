//! `contiv delete`

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use contiv_proto::Key;
use contiv_store::{Operation, Store, store::TRANSACTION_LIMIT};

use crate::cli::{
    Outcome, Terminal, UsageError,
    output::progress::Progress,
    selection::{
        resources::{ObjectSelector, Resources},
        stored::{fetch, print_missing, print_none},
    },
    source::{
        input::{self, print_problems},
        store::{StoreArgument, read, title},
    },
};

/// Delete objects from the store: those of manifests, by kind and name, or by kind and labels
///
/// Exit codes: 0 success; 1 the store cannot be written, or a named object does not exist; 2 wrong usage.
#[derive(Debug, Args)]
#[command(override_usage = "contiv delete [--store <URL>] -f <PATH>...\n       \
    contiv delete [--store <URL>] <KIND> <NAME>...\n       \
    contiv delete [--store <URL>] <KIND>/<NAME>...\n       \
    contiv delete [--store <URL>] <KIND>[,<KIND>] -l <LABELS> [-A]")]
pub(crate) struct Delete {
    #[command(flatten)]
    resources: Resources,

    /// The objects of a file, of a folder with all below it, or of standard input (-)
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., conflicts_with_all = ["words", "all_namespaces", "selector"])]
    files: Vec<PathBuf>,

    /// Do not fail if an object does not exist
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    store: StoreArgument,
}

impl Delete {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        if !self.files.is_empty() {
            let parsed = input::read(&self.files)?;
            print_problems(&parsed.problems, &mut terminal.err)?;
            let keys: Vec<Key> = parsed
                .objects
                .into_iter()
                .map(|object| object.key)
                .collect();
            let store = self.store.choose_to_write(&mut terminal.err)?;
            let is_good = store.run(async |store| self.delete(&*store, &keys, terminal).await)?;
            return Ok(Outcome::success_if(is_good && parsed.problems.is_empty()));
        }
        if self.resources.is_empty() {
            return Err(UsageError(
                "name the objects: by -f, by KIND and NAME, or by KIND and -l".to_owned(),
            )
            .into());
        }
        let requests = self.resources.requests()?;
        // A typing error must not empty the store.
        if requests
            .iter()
            .any(|request| matches!(request.objects, ObjectSelector::All { selector: None, .. }))
        {
            return Err(UsageError(
                "name the objects, or choose them by their labels with -l".to_owned(),
            )
            .into());
        }
        let is_good = self
            .store
            .choose_to_write(&mut terminal.err)?
            .run(async |store| {
                let mut is_good = true;
                for request in &requests {
                    let keys = match &request.objects {
                        // Unreadable objects can be deleted too.
                        ObjectSelector::Keys(keys) => keys.clone(),
                        ObjectSelector::All { .. } => {
                            let found = fetch(request, &*store, &mut terminal.err).await?;
                            is_good &= found.is_good;
                            found.objects.into_iter().map(|(key, _)| key).collect()
                        }
                    };
                    if keys.is_empty() {
                        print_none(request, &mut terminal.err)?;
                    }
                    is_good &= self.delete(&*store, &keys, terminal).await?;
                }
                Ok(is_good)
            })?;
        Ok(Outcome::success_if(is_good))
    }

    /// True if all of them existed, or need not exist.
    async fn delete(
        &self,
        store: &dyn Store,
        keys: &[Key],
        terminal: &mut Terminal,
    ) -> anyhow::Result<bool> {
        let stored = read(store, keys).await?;
        let (found, missing): (Vec<&Key>, Vec<&Key>) = keys
            .iter()
            .partition(|key| stored.contains_key(&key.to_path()));
        let progress = Progress::for_objects(found.len());
        for chunk in found.chunks(TRANSACTION_LIMIT) {
            let operations = chunk
                .iter()
                .map(|key| Operation::Delete { key: key.to_path() })
                .collect();
            store.commit(operations).await.with_context(|| {
                format!(
                    "only {} of {} objects are deleted",
                    progress.done(),
                    found.len()
                )
            })?;
            progress.suspend(|| {
                chunk
                    .iter()
                    .try_for_each(|key| writeln!(terminal.out, "{} deleted", title(key)))
            })?;
            progress.add(chunk.len());
        }
        if self.ignore_not_found {
            return Ok(true);
        }
        print_missing(&missing, store, &mut terminal.err).await?;
        Ok(missing.is_empty())
    }
}
