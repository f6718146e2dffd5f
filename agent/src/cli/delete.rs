//! `contiv delete`

use std::{io::Write, path::PathBuf};

use clap::Args;
use contiv_proto::{Key, Kind};
use contiv_store::{Operation, Store, commit_in_chunks};

use super::{
    Outcome, Terminal, UsageError,
    input::{self, print_problems},
    store::{StoreArgument, read, title},
};

/// Take objects out of the store: those of manifests, or by kind and name
#[derive(Debug, Args)]
#[command(override_usage = "contiv delete --store <URL> -f <PATH>...\n       \
    contiv delete --store <URL> <KIND> <NAME>... [-n <NAMESPACE>]")]
pub(super) struct Delete {
    /// What kind of object, as in svc, endpoints, eps, po or no
    #[arg(value_name = "KIND", required_unless_present = "files")]
    kind: Option<Kind>,

    /// Their names
    #[arg(value_name = "NAME", required_unless_present = "files")]
    names: Vec<String>,

    /// Their namespace
    #[arg(short, long, default_value = "default")]
    namespace: String,

    /// The objects of a file, of a folder with all below it, or of standard input (-)
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., conflicts_with_all = ["kind", "names"])]
    files: Vec<PathBuf>,

    /// Objects that are not there are no failure
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    store: StoreArgument,
}

impl Delete {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let (keys, mut is_good) = if let Some(kind) = self.kind {
            (self.named(kind)?, true)
        } else {
            let parsed = input::read(&self.files)?;
            print_problems(&parsed.problems, &mut terminal.err)?;
            (parsed.objects.into_iter().map(|object| object.key).collect(), parsed.problems.is_empty())
        };
        is_good &= self.store.run(async |store| self.delete(&*store, &keys, terminal).await)?;
        Ok(Outcome::good_if(is_good))
    }

    fn named(&self, kind: Kind) -> Result<Vec<Key>, UsageError> {
        let namespace = if kind.is_namespaced() { &self.namespace } else { "" };
        let key = |name: &String| Key::new(kind, namespace, name).map_err(|error| UsageError(error.problem));
        self.names.iter().map(key).collect()
    }

    /// True if all of them were there, or need not be.
    async fn delete(&self, store: &dyn Store, keys: &[Key], terminal: &mut Terminal) -> anyhow::Result<bool> {
        let stored = read(store, keys).await?;
        let (found, missing): (Vec<&Key>, Vec<&Key>) =
            keys.iter().partition(|key| stored.contains_key(&key.to_path()));
        if !found.is_empty() {
            let operations = found.iter().map(|key| Operation::Delete { key: key.to_path() }).collect();
            commit_in_chunks(store, operations).await?;
        }
        for key in found {
            writeln!(terminal.out, "{} deleted", title(key))?;
        }
        if self.ignore_not_found {
            return Ok(true);
        }
        for key in &missing {
            writeln!(
                terminal.err,
                "error: {key} is not there; `contiv get {} -A` lists what is",
                key.kind()
            )?;
        }
        Ok(missing.is_empty())
    }
}
