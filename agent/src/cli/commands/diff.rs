//! `contiv diff`

mod changes;
mod live_flows;
mod settings;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use contiv_model::{Event, LocalInterfaces, Object, ServiceId, Snapshot};
use contiv_proto::key;
use contiv_renderer::{
    nftables::{TableContent, table_content},
    packet_path::{FlowFates, ProgrammedTable, list_flows},
};
use contiv_store::{Entry, Store, manifest::ParsedManifests};
use serde_json::{Value, json};

use self::{
    changes::Changes,
    live_flows::{LiveFlowCounter, LiveFlows},
    settings::SettingChange,
};
use super::{apply::applied, compared_flows::Place, migrate};
use crate::{
    cli::{
        Outcome, Terminal, UsageError, chain,
        output::{
            format::DataFormat,
            listing::{Listing, Output},
            progress::Progress,
            table_options::TableOptions,
            watch::width,
        },
        source::{
            agent_argument::AgentArgument,
            decoded::decode,
            http_client,
            input::{self, Manifests},
            node_settings::{MachineAddresses, machine_addresses},
            offline::processor_with,
            store,
        },
    },
    config::{Config, ConfigError, ConfigFlags, EtcdFlags, RendererName, Settings as _, file},
};

/// A change may be in progress between the store and the kernel; it takes milliseconds.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(500);

/// Print what would change for connections: by manifests, by a configuration, or by this version
///
/// For the node of the agent, with its settings and the objects of its store: new connections by service, frontend and client (pods of
/// this node, the node itself, others) that would end otherwise, and what happens to those that there are. With -f: if manifests were
/// applied; what is in the store and not in them stays. With --config: if the agent had this configuration. With neither: if this program
/// were the agent: the rules in the kernel, of whatever version, beside those that it would write; on the node, as root. As in: contiv
/// diff -f web.yaml. Exit codes: 0 nothing would change; 1 something would; 2 wrong usage, an invalid manifest (the others count), or
/// it is not known.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Manifests: a file, a folder with all below it, or - for standard input; several are read in this order
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1..)]
    files: Vec<PathBuf>,

    /// Name each object of a kind that contiv does not use
    #[arg(short, long)]
    verbose: bool,

    /// The configuration that the agent would have: a file as agent.toml, or with a KubeProxyConfiguration as `migrate` reads it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,

    /// Ask no agent: the configuration that it has is in this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    from_config: Option<PathBuf>,

    #[command(flatten)]
    agent: AgentArgument,

    /// What to print; json and yaml are an object with changes, settings and connections
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    options: TableOptions,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// Why objects cannot be used, by their keys.
type Unusable = BTreeMap<String, String>;

/// Objects that cannot be used.
#[derive(Debug, Default)]
struct Problems {
    /// They are so in the store.
    of_store: Unusable,
    /// The manifests would make them so.
    of_manifests: Unusable,
}

/// What is compared with what.
struct Comparison {
    changes: Changes,
    settings: Vec<SettingChange>,
    fates: FlowFates,
    new: Snapshot,
    /// What was compared, for people.
    summary: String,
}

impl Diff {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        match self.compare(terminal) {
            // As in diff(1), 1 would mean that there is a difference.
            Err(error) if !error.is::<UsageError>() && !error.is::<io::Error>() => {
                writeln!(terminal.err, "error: {}", chain(&error))?;
                Ok(Outcome::Unknown)
            }
            result => result,
        }
    }

    fn compare(&self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        if self.from_config.is_some() && self.agent.is_given() {
            let problem = "--from-config is instead of an agent: leave out --agent";
            return Err(UsageError(problem.to_owned()).into());
        }
        let compares_kernel = self.files.is_empty() && self.config.is_none();
        if compares_kernel && !self.is_on_this_machine() {
            let problem = "without -f and --config the kernel of this machine is compared: run it on the node of the agent";
            return Err(UsageError(problem.to_owned()).into());
        }
        let old_config = self.old_config()?;
        let new_config = self.new_config(&old_config, terminal)?;
        let parsed = self.manifests(terminal)?;
        let machine = self.machine(terminal)?;
        let machine = machine.as_ref();
        let mut problems = Problems::default();
        let comparison = if compares_kernel {
            self.with_kernel(&old_config, machine, &mut problems)?
        } else {
            let desired = Desired {
                machine,
                failing: self.failing(),
            };
            let stored = self.stored(&old_config)?;
            let merged = with_manifests(&stored, &parsed)?;
            let (old_objects, known) = objects(&old_config, stored);
            let (new_objects, mut unusable) = objects(&old_config, merged);
            unusable.retain(|key, problem| known.get(key) != Some(problem));
            problems = Problems {
                of_store: known,
                of_manifests: unusable,
            };
            let old = desired.state(&old_config, &old_objects);
            let new = desired.state(&new_config, &new_objects);
            let of_setting = |alone: &Config| {
                let alone = desired.state(alone, &old_objects);
                let changes = (alone != old).then(|| Changes::between(&old, &alone));
                Ok(changes.map(|changes| changes.changes.len()))
            };
            Comparison {
                changes: Changes::between(&old, &new),
                settings: settings::compare(&old_config, &new_config, of_setting)?,
                fates: FlowFates::new(&old, &new, self.config.is_some()),
                new,
                summary: String::new(),
            }
        };
        for problem in problems.of_store.values() {
            writeln!(
                terminal.err,
                "note: {problem}; an agent may use an earlier state of it, which is not known here"
            )?;
        }
        for problem in problems.of_manifests.values() {
            writeln!(terminal.err, "{problem}")?;
        }
        self.print(&comparison, terminal)?;
        let Changes {
            changes, unknown, ..
        } = &comparison.changes;
        Ok(
            if !problems.of_manifests.is_empty()
                || !parsed.problems.is_empty()
                || !unknown.is_empty()
            {
                Outcome::Unknown
            } else {
                Outcome::success_if(changes.is_empty())
            },
        )
    }

    /// Whether the node of the agent is this machine.
    fn is_on_this_machine(&self) -> bool {
        self.from_config.is_some() || self.agent.agent.is_local()
    }

    /// The configuration that the agent has. It may be of another version.
    fn old_config(&self) -> anyhow::Result<Config> {
        if let Some(path) = &self.from_config {
            let config = Config::load(Some(path), &ConfigFlags::default());
            return Ok(config.map_err(|error| UsageError(error.to_string()))?);
        }
        let text = http_client::get(&self.agent.agent, "/config")?;
        Ok(file::parse_of_any_version("/config", &text)?)
    }

    /// The configuration that it would have: that of `--config`, or the same. A file need not name the node.
    fn new_config(&self, old: &Config, terminal: &mut Terminal) -> anyhow::Result<Config> {
        let Some(path) = &self.config else {
            return Ok(old.clone());
        };
        let usage_error = |error: ConfigError| UsageError(error.to_string());
        let mut config = if migrate::is_of_kube_proxy(path) {
            let (text, problems) = migrate::convert(path)?;
            for problem in problems {
                writeln!(terminal.err, "note: {problem}")?;
            }
            let name = path.display().to_string();
            let mut config: Config = file::parse(&name, &text).map_err(usage_error)?;
            // It is the same cluster, whatever leads there.
            config.store.clone_from(&old.store);
            config
        } else {
            let read = Config::from_file(Some(path)).map_err(usage_error)?;
            read.unwrap_or_default()
        };
        if config.node_name.is_empty() {
            config.node_name.clone_from(&old.node_name);
        }
        Ok(config.finish().map_err(usage_error)?)
    }

    fn manifests(&self, terminal: &mut Terminal) -> anyhow::Result<ParsedManifests> {
        let parsed = input::read(&self.files)?;
        Manifests::new(self.files.clone(), self.verbose).report(&parsed, &mut terminal.err)?;
        Ok(parsed)
    }

    /// The addresses and interfaces of the node; none of another machine.
    fn machine(&self, terminal: &mut Terminal) -> anyhow::Result<Option<MachineAddresses>> {
        if self.is_on_this_machine() {
            return machine_addresses().map(Some);
        }
        writeln!(
            terminal.err,
            "note: the agent is on another machine: its interfaces and the connections that there are are not known here"
        )?;
        Ok(None)
    }

    /// What the agent's store has.
    fn stored(&self, config: &Config) -> anyhow::Result<contiv_store::Snapshot> {
        let access = self.etcd.over(&config.store, config.etcd_access());
        let access = access.map_err(|problems| UsageError(problems.join("\n")))?;
        let list = async |store: Arc<dyn Store>| Ok(store.list(key::ROOT).await?);
        store::run_with(&config.store, Ok(access), Some(&config.node_name), list)
    }

    /// The backends that the agent has found not to answer; empty without an agent.
    fn failing(&self) -> BTreeMap<ServiceId, BTreeSet<SocketAddr>> {
        if self.from_config.is_some() {
            return BTreeMap::new();
        }
        let services: Vec<Value> = self.agent.get("/services").unwrap_or_default();
        services.iter().filter_map(failing_of).collect()
    }

    /// Compares the rules in the kernel with those that this version would write.
    fn with_kernel(
        &self,
        config: &Config,
        machine: Option<&MachineAddresses>,
        problems: &mut Problems,
    ) -> anyhow::Result<Comparison> {
        if !config.renderers.contains(&RendererName::NFTABLES) {
            bail!(
                "the agent does not run the renderer nftables (its setting `renderers`): there are no rules to compare; -f or --config \
                 compares desired states"
            );
        }
        let (mut changes, mut new, mut unusable) = self.kernel_once(config, machine, None)?;
        if !changes.is_empty() {
            thread::sleep(CONFIRMATION_INTERVAL);
            let places = changes.places();
            let (second, new_again, unusable_again) =
                self.kernel_once(config, machine, Some(&places))?;
            changes = changes.confirmed_by(second);
            (new, unusable) = (new_again, unusable_again);
        }
        problems.of_store = unusable;
        let table = match table_content()? {
            TableContent::Different => "a table of another version, or changed by another program",
            TableContent::Services | TableContent::Empty | TableContent::Missing => {
                "a table of this version"
            }
        };
        let summary = format!(
            "{} frontends of {} services compared with the kernel: {table}",
            changes.frontends,
            new.services.len()
        );
        Ok(Comparison {
            fates: FlowFates::new(&new, &new, true),
            new,
            changes,
            settings: Vec::new(),
            summary,
        })
    }

    fn kernel_once(
        &self,
        config: &Config,
        machine: Option<&MachineAddresses>,
        places: Option<&BTreeSet<Place>>,
    ) -> anyhow::Result<(Changes, Snapshot, Unusable)> {
        let progress = Progress::with_words("sets read");
        let table = ProgrammedTable::read(&|done, total| progress.set(done, total))?;
        drop(progress);
        let Some(table) = table else {
            bail!(
                "the kernel has no table inet contiv here: no agent has programmed it; `contiv render` prints what one would"
            );
        };
        let desired = Desired {
            machine,
            failing: self.failing(),
        };
        let (objects, unusable) = objects(config, self.stored(config)?);
        let new = desired.state(config, &objects);
        Ok((Changes::from_kernel(&table, &new, places), new, unusable))
    }

    fn print(&self, comparison: &Comparison, terminal: &mut Terminal) -> anyhow::Result<()> {
        let Comparison {
            changes,
            settings,
            fates,
            new,
            summary,
        } = comparison;
        let flows = self.live_flows(changes, fates, new, terminal)?;
        let text = match &self.output {
            Output::Name => changes
                .services()
                .into_iter()
                .flat_map(|service| [service.to_string(), "\n".to_owned()])
                .collect(),
            // A row for each change.
            Output::Data(format @ DataFormat::CustomColumns(_)) => {
                let values = changes.changes.iter().map(serde_json::to_value);
                let values: Vec<Value> = values.collect::<Result<_, _>>()?;
                format.print(Value::Array(values), self.options.no_headers)?
            }
            Output::Data(format) => {
                let named = |(service, count): (&&ServiceId, &LiveFlows)| {
                    let mut value = serde_json::to_value(count).unwrap_or_default();
                    value["service"] = json!(service);
                    value
                };
                let value = json!({
                    "changes": changes.changes,
                    "unknown": changes.unknown,
                    "settings": settings,
                    "connections": flows.as_ref().map(|flows| flows.iter().map(named).collect::<Vec<_>>()),
                });
                format.print(value, self.options.no_headers)?
            }
            Output::Table | Output::Wide => {
                self.tables(changes, settings, flows.as_ref(), summary)?
            }
        };
        Ok(terminal.out.write_all(text.as_bytes())?)
    }

    fn tables(
        &self,
        changes: &Changes,
        settings: &[SettingChange],
        flows: Option<&BTreeMap<&ServiceId, LiveFlows>>,
        summary: &str,
    ) -> anyhow::Result<String> {
        let mut parts = Vec::new();
        let mut add = |listing: Listing| {
            let text = listing.print(&self.output, &self.options, width(), false)?;
            parts.push(text);
            anyhow::Ok(())
        };
        if !changes.is_empty() {
            add(changes.listing())?;
        }
        if !settings.is_empty() {
            add(settings::listing(settings))?;
        }
        if let Some(flows) = flows.filter(|flows| !flows.is_empty()) {
            add(live_flows::listing(flows))?;
        }
        let mut last = Vec::new();
        if changes.is_empty() {
            last.push("nothing would change for connections".to_owned());
        }
        if !settings.is_empty() {
            last.push(
                "settings take effect when the agent is restarted, which interrupts no connection"
                    .to_owned(),
            );
        }
        if !summary.is_empty() {
            last.push(summary.to_owned());
        }
        if !last.is_empty() {
            parts.push(last.join("\n") + "\n");
        }
        Ok(parts.join("\n"))
    }

    /// What happens to the connections to frontends that change; none if they are not known.
    fn live_flows<'a>(
        &self,
        changes: &'a Changes,
        fates: &'a FlowFates,
        new: &'a Snapshot,
        terminal: &mut Terminal,
    ) -> anyhow::Result<Option<BTreeMap<&'a ServiceId, LiveFlows>>> {
        if changes.changes.is_empty() || !self.is_on_this_machine() {
            return Ok(None);
        }
        let mut counter = LiveFlowCounter::new(changes, fates, new);
        if let Err(error) = list_flows(|event| counter.add(&event.flow)) {
            writeln!(
                terminal.err,
                "note: the connections that there are are not known: {error}"
            )?;
            return Ok(None);
        }
        Ok(Some(counter.finish()))
    }
}

/// What desired states are derived from besides objects.
struct Desired<'a> {
    machine: Option<&'a MachineAddresses>,
    failing: BTreeMap<ServiceId, BTreeSet<SocketAddr>>,
}

impl Desired<'_> {
    /// The desired state with another configuration of the same node.
    fn state(&self, config: &Config, objects: &[Object]) -> Snapshot {
        let addresses = self.machine.map(|it| it.addresses.clone());
        let mut processor = processor_with(objects.to_vec(), config, addresses);
        let interfaces: Option<LocalInterfaces> = self.machine.map(|it| it.interfaces.clone());
        processor.apply(interfaces.map(Event::LocalInterfaces));
        let failing = self.failing.iter();
        let failing = failing.map(|(id, them)| Event::FailingBackends(id.clone(), them.clone()));
        processor.apply(failing);
        processor.snapshot()
    }
}

/// The failing backends of a service in the agent's JSON; none if there is none.
fn failing_of(service: &Value) -> Option<(ServiceId, BTreeSet<SocketAddr>)> {
    let id: ServiceId = serde_json::from_value(service["id"].clone()).ok()?;
    let ports = service["ports"].as_array()?.iter();
    let backends = ports.flat_map(|port| port["backends"].as_array().into_iter().flatten());
    let failing = backends.filter(|backend| backend["state"] == "Failing");
    let failing: BTreeSet<SocketAddr> = failing
        .filter_map(|backend| {
            let address = backend["address"].as_str()?.parse().ok()?;
            let port = u16::try_from(backend["port"].as_u64()?).ok()?;
            Some(SocketAddr::new(address, port))
        })
        .collect();
    (!failing.is_empty()).then_some((id, failing))
}

/// The usable objects of a list, and why others are not.
fn objects(config: &Config, listed: contiv_store::Snapshot) -> (Vec<Object>, Unusable) {
    let (objects, unusable) = decode(&config.store, listed);
    (objects.into_values().collect(), unusable)
}

/// The list of a store as it would be with these manifests.
fn with_manifests(
    stored: &contiv_store::Snapshot,
    parsed: &ParsedManifests,
) -> anyhow::Result<contiv_store::Snapshot> {
    let mut merged: BTreeMap<String, Entry> = stored
        .entries
        .iter()
        .map(|entry| (entry.key.clone(), entry.clone()))
        .collect();
    let revision = stored.revision + 1;
    for found in &parsed.objects {
        let key = found.key.to_path();
        let value = applied(found, &merged).encode();
        let value = value.with_context(|| format!("{}: {}", found.source, found.key))?;
        let create_revision = merged.get(&key).map_or(revision, |old| old.create_revision);
        let entry = Entry {
            key: key.clone(),
            value: value.into(),
            create_revision,
            mod_revision: revision,
        };
        merged.insert(key, entry);
    }
    Ok(contiv_store::Snapshot {
        entries: merged.into_values().collect(),
        ..stored.clone()
    })
}
