//! `contiv get`

mod columns;
mod print;
mod watch;

use clap::Args;

use self::{print::Printer, watch::watch};
use crate::cli::{
    Outcome, Terminal,
    output::{listing::Output, table_options::TableOptions},
    selection::{
        resources::Resources,
        stored::{fetch, print_none},
    },
    source::store::StoreArgument,
};

/// Print objects of the store
///
/// With -o yaml and -o json, as manifests for `contiv apply` and `kubectl apply`. Exit codes: 0 success; 1 the store cannot be
/// read, or a named object does not exist or cannot be read; 2 wrong usage.
#[derive(Debug, Args)]
#[command(
    override_usage = "contiv get [--store <URL>] <KIND>[,<KIND>] [<NAME>...]\n       \
    contiv get [--store <URL>] <KIND>/<NAME>..."
)]
pub(crate) struct Get {
    #[command(flatten)]
    resources: Resources,

    /// Output format; json and yaml are manifests, name is KIND/NAME
    #[arg(short, long, default_value = "table")]
    output: Output,

    /// Add a column with the labels
    #[arg(long)]
    show_labels: bool,

    /// Go on after the list, and print an object whenever it changes; for one kind
    #[arg(short, long, conflicts_with = "sort_by")]
    watch: bool,

    /// With --watch: also whether it was ADDED, MODIFIED or DELETED
    #[arg(long, requires = "watch")]
    output_watch_events: bool,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    store: StoreArgument,
}

impl Get {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let requests = self.resources.requests()?;
        if self.watch {
            return watch(
                &self.store,
                self.printer(),
                self.output_watch_events,
                &requests,
                terminal,
            );
        }
        let mut found = self.store.choose(&mut terminal.err)?.run(async |store| {
            let mut found = Vec::new();
            for request in &requests {
                found.push(fetch(request, &*store, &mut terminal.err).await?);
            }
            Ok(found)
        })?;
        for (request, found) in requests.iter().zip(&found) {
            if found.objects.is_empty() && self.output.is_table() {
                print_none(request, &mut terminal.err)?;
            }
        }
        self.printer().print(&mut found, &mut terminal.out)?;
        Ok(Outcome::success_if(found.iter().all(|found| found.is_good)))
    }

    fn printer(&self) -> Printer<'_> {
        Printer {
            output: &self.output,
            is_single: self.resources.is_single(),
            shows_namespace: self.resources.shows_namespace(),
            shows_labels: self.show_labels,
            table: &self.table,
        }
    }
}
