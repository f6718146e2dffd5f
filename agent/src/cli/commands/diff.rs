//! `contiv diff`

use std::{collections::BTreeMap, io::Write, sync::Arc};

use anyhow::Context;
use clap::Args;
use contiv_model::{
    FlowChange, FlowEnd, Frontend, Snapshot, VerdictKind, flow_changes,
    trace::{Affinity, Client},
};
use contiv_proto::key;
use contiv_store::{Entry, Store, manifest::ParsedManifests};

use crate::{
    cli::{
        Outcome, Terminal, UsageError,
        output::{
            color::TextStyle,
            listing::{Item, Listing, Output},
            table::Cell,
            table_options::TableOptions,
            watch::width,
        },
        source::{
            agent_argument::AgentArgument, decoded::decode, http_client, input::Manifests,
            node_settings::local_addresses, offline::processor_with, store,
        },
    },
    config::{Config, EtcdFlags, file},
};

/// How many backends a cell names.
const NAMED_BACKENDS: usize = 3;

/// Print what would change for connections if manifests were applied
///
/// For the node of the agent, with its settings and the objects of its store: new connections by service, frontend and client (pods of
/// this node, the node itself, others) that would end otherwise. What is in the store and not in the manifests stays. As in: contiv diff -f
/// web.yaml. Exit codes: 0 nothing would change; 1 something would, or a manifest is invalid (the others count), or there is no
/// answer; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    manifests: Manifests,

    #[command(flatten)]
    agent: AgentArgument,

    /// What to print
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    options: TableOptions,

    #[command(flatten)]
    etcd: EtcdFlags,
}

impl Diff {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let parsed = self.manifests.read()?;
        self.manifests.report(&parsed, &mut terminal.err)?;
        let text = http_client::get(&self.agent.agent, "/config")?;
        let config: Config = file::parse("/config", &text)
            .with_context(|| format!("{} is not an agent of this version", self.agent.agent))?;
        let stored = self.stored(&config)?;
        let merged = with_manifests(&stored, &parsed)?;
        let (old, _) = state(&config, stored)?;
        let (new, is_good) = state(&config, merged)?;
        let changes = flow_changes(&old, &new);
        for problem in &is_good {
            writeln!(terminal.err, "{problem}")?;
        }
        let is_equal = changes.is_empty();
        self.print(&changes, terminal)?;
        Ok(Outcome::success_if(
            is_equal && is_good.is_empty() && parsed.problems.is_empty(),
        ))
    }

    /// What the agent's store has.
    fn stored(&self, config: &Config) -> anyhow::Result<contiv_store::Snapshot> {
        let access = self.etcd.over(&config.store, config.etcd_access());
        let access = access.map_err(|problems| UsageError(problems.join("\n")))?;
        let list = async |store: Arc<dyn Store>| Ok(store.list(key::ROOT).await?);
        store::run_with(&config.store, Ok(access), Some(&config.node_name), list)
    }

    fn print(&self, changes: &[FlowChange], terminal: &mut Terminal) -> anyhow::Result<()> {
        let items: Result<Vec<Item>, serde_json::Error> = changes.iter().map(item).collect();
        let listing = Listing {
            header: (
                ["SERVICE", "TO", "FROM", "NOW", "THEN"].to_vec(),
                Vec::new(),
            ),
            items: items?,
        };
        if changes.is_empty() && self.output.is_table() {
            writeln!(terminal.out, "nothing would change for connections")?;
            return Ok(());
        }
        let text = listing.print(&self.output, &self.options, width(), false)?;
        write!(terminal.out, "{text}")?;
        Ok(())
    }
}

/// The list of a store as it would be with these manifests.
fn with_manifests(
    stored: &contiv_store::Snapshot,
    parsed: &ParsedManifests,
) -> anyhow::Result<contiv_store::Snapshot> {
    let mut merged = stored.clone();
    let positions: BTreeMap<String, usize> = merged
        .entries
        .iter()
        .enumerate()
        .map(|(position, entry)| (entry.key.clone(), position))
        .collect();
    let newest = merged.revision + 1;
    for found in &parsed.objects {
        let key = found.key.to_path();
        let value = found
            .object
            .encode()
            .with_context(|| format!("{}: {}", found.source, found.key))?
            .into();
        match positions.get(&key) {
            Some(position) => merged.entries[*position].value = value,
            None => merged.entries.push(Entry {
                key,
                value,
                create_revision: newest,
                mod_revision: newest,
            }),
        }
    }
    merged.entries.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(merged)
}

/// The desired state with these entries, and which cannot be used.
fn state(
    config: &Config,
    listed: contiv_store::Snapshot,
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let (objects, unusable) = decode(&config.store, listed);
    let objects = objects.into_values().collect();
    let processor = processor_with(objects, config, Some(local_addresses()?));
    Ok((processor.snapshot(), unusable.into_values().collect()))
}

fn item(change: &FlowChange) -> Result<Item, serde_json::Error> {
    let FlowChange {
        service,
        to,
        frontend,
        clients,
        old,
        new,
    } = change;
    let (protocol, kind) = match frontend {
        Frontend::Address { protocol, .. } => (protocol, ""),
        Frontend::NodePort { protocol, .. } => (protocol, " (node port)"),
    };
    let client = |client: &Client| match client {
        Client::LocalPod => "pods",
        Client::Node => "node",
        Client::External => "others",
    };
    let from: Vec<&str> = clients.iter().map(client).collect();
    let style = match new.verdict {
        VerdictKind::Served | VerdictKind::Routed => TextStyle::Plain,
        VerdictKind::Rejected | VerdictKind::Dropped | VerdictKind::NoService => TextStyle::Warning,
    };
    Ok(Item {
        name: service.to_string(),
        value: serde_json::to_value(change)?,
        cells: (
            vec![
                service.to_string().into(),
                format!("{to}/{protocol}{kind}").into(),
                from.join(",").into(),
                end_text(old).into(),
                Cell::styled(end_text(new), style),
            ],
            Vec::new(),
        ),
    })
}

/// As in "10.244.2.1:80, 10.244.2.2:80, masqueraded".
pub(in crate::cli) fn end_text(end: &FlowEnd) -> String {
    match end.verdict {
        VerdictKind::Served => {
            let more = end.backends.len().saturating_sub(NAMED_BACKENDS);
            let mut parts: Vec<String> = end
                .backends
                .iter()
                .take(NAMED_BACKENDS)
                .map(ToString::to_string)
                .collect();
            if more > 0 {
                parts.push(format!("{more} more"));
            }
            match end.masqueraded.len() {
                0 => {}
                count if count == end.backends.len() => parts.push("masqueraded".to_owned()),
                count => parts.push(format!("{count} masqueraded")),
            }
            match end.affinity {
                Affinity::None => {}
                Affinity::Timeout { seconds } => parts.push(format!("affinity {seconds} s")),
                Affinity::ClientAddress => parts.push("affinity by address".to_owned()),
            }
            parts.join(", ")
        }
        VerdictKind::Rejected => "rejected".to_owned(),
        VerdictKind::Dropped => "dropped".to_owned(),
        VerdictKind::Routed => "routed".to_owned(),
        VerdictKind::NoService => "no service".to_owned(),
    }
}
