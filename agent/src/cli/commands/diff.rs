//! `contiv diff`

mod agent_facts;
mod changes;
mod live_flows;
mod settings;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use contiv_model::{Carrier, Event, LocalInterfaces, Object, Snapshot, VerdictKind};
use contiv_proto::key;
use contiv_renderer::{
    Verifier as _,
    nftables::{TableContent, TableVerifier, table_content},
    packet_path::{FlowFates, ProgrammedTable, list_flows},
};
use contiv_store::{Entry, Store, manifest::ParsedManifests};
use serde::Serialize;
use serde_json::{Value, json};

use self::{
    agent_facts::AgentFacts,
    changes::StateComparison,
    live_flows::{LiveFlowCounter, LiveFlowsByService},
    settings::{Effect, SettingChange},
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
    config::{
        Config, ConfigError, ConfigFlags, EtcdFlags, RendererName, Settings as _,
        default_node_name, file,
    },
};

/// A change may be in progress between the store and the kernel; it takes milliseconds.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(500);

/// Print what would change for connections: by manifests, by a configuration, or by this version
///
/// For the node of the agent, with its settings and the objects of its store: new connections by service, frontend and client (pods of
/// this node, the node itself, others) that would end otherwise, and what happens to those that there are. With -f: if manifests were
/// applied; what is in the store and not in them stays. With --config: if the agent had this configuration, complete but for the store.
/// With neither: if this program were the agent: the rules in the kernel, of whatever version, beside those that it would write; on the
/// node, as root. Settings count as the running agent has them: defaults that this program has changed show
/// with --from-config and its file. As in: contiv diff -f web.yaml. Exit codes: 0 nothing would change; 1 something would, if only
/// routes; 2 wrong usage, an invalid manifest (the others count), or it is not known.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Manifests: a file, a folder with all below it, or - for standard input; several are read in this order
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1..)]
    files: Vec<PathBuf>,

    /// Name each object of a kind that contiv does not use
    #[arg(short, long)]
    verbose: bool,

    /// The configuration that the agent would have: a file as agent.toml, or one of kube-proxy that `migrate` reads
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,

    /// Ask no agent: the configuration that it has is in this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    from_config: Option<PathBuf>,

    #[command(flatten)]
    agent: AgentArgument,

    /// What to print; json and yaml are an object with result, changes, settings and connections
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    options: TableOptions,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// Why objects cannot be used, by their keys.
type Unusable = BTreeMap<String, String>;

/// What is not known, or wrong.
#[derive(Debug, Default)]
struct Problems {
    /// Objects of the store that cannot be used.
    of_store: Unusable,
    /// Those that the manifests would make so.
    of_manifests: Unusable,
    /// What cannot be compared, and why.
    unknown: Vec<String>,
}

/// What is compared with what.
struct Comparison {
    changes: StateComparison,
    settings: Vec<SettingChange>,
    fates: FlowFates,
    new: Snapshot,
    /// Whether a desired state is another one.
    is_otherwise: bool,
    compared: Compared,
}

/// What was compared.
#[derive(Debug, Serialize)]
struct Compared {
    /// The number of frontends; each address of node ports counts.
    frontends: usize,
    /// The number of services.
    services: usize,
    /// The agent's table, if the kernel was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<TableVersion>,
    /// Whether a table of this version has other elements although connections end as they should.
    has_other_elements: bool,
    /// Whether a renderer has routes, which are not compared.
    has_routes: bool,
    /// The version of this program.
    version: &'static str,
    /// The version of the agent; none if it is not known.
    agent_version: Option<String>,
}

impl Compared {
    fn new(changes: &StateComparison, new: &Snapshot, config: &Config, facts: &AgentFacts) -> Self {
        Self {
            frontends: changes.frontends,
            services: new.services.len(),
            table: None,
            has_other_elements: false,
            has_routes: config.renderers.contains(&RendererName::ROUTE),
            version: env!("CARGO_PKG_VERSION"),
            agent_version: facts.version.clone(),
        }
    }

    /// For people; empty for desired states.
    fn summary(&self) -> String {
        let (table, shares) = match self.table {
            None => return String::new(),
            Some(TableVersion::This) if self.has_other_elements => (
                "a table of this version, with other shares of backends or other elements",
                None,
            ),
            Some(TableVersion::This) => ("a table of this version", None),
            Some(TableVersion::Other) => (
                "a table of another version, or changed by another program",
                Some("shares"),
            ),
        };
        let agent = self.agent_version.as_deref();
        let agent = agent.map_or_else(String::new, |version| format!(" of contiv {version}"));
        let routes = self.has_routes.then_some("routes");
        let missing: Vec<&str> = shares.into_iter().chain(routes).collect();
        let missing = match &missing[..] {
            [] => String::new(),
            missing => format!("; {} are not compared", missing.join(" and ")),
        };
        format!(
            "{} frontends of {} services compared with the kernel: {table}\n\
             contiv {} (this program) beside the rules{agent}{missing}",
            self.frontends, self.services, self.version
        )
    }
}

/// Whether a table has the chains and sets of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum TableVersion {
    This,
    /// It is of another version, or was changed by another program.
    Other,
}

/// What is known of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Conclusion {
    /// Nothing would change.
    Same,
    /// Something is programmed otherwise, or not compared; connections to services end as now.
    Otherwise,
    /// Connections to services would end otherwise.
    Changed,
    /// Something is not known.
    Unknown,
}

impl Conclusion {
    fn of(comparison: &Comparison, is_known: bool) -> Self {
        let is_other = |setting: &SettingChange| {
            !matches!(setting.effect, Effect::None | Effect::Connections(_))
        };
        let StateComparison {
            changes, unknown, ..
        } = &comparison.changes;
        match () {
            () if !is_known || !unknown.is_empty() => Self::Unknown,
            () if !changes.is_empty() => Self::Changed,
            () if comparison.is_otherwise || comparison.settings.iter().any(is_other) => {
                Self::Otherwise
            }
            () => Self::Same,
        }
    }

    /// The line below tables without a change.
    const fn text(self) -> Option<&'static str> {
        match self {
            Self::Same => Some("nothing would change for connections"),
            Self::Otherwise => {
                Some("connections to services have the same ends; something else would change")
            }
            Self::Changed => None,
            Self::Unknown => Some("whether something would change for connections is not known"),
        }
    }
}

/// A configuration that an agent would have.
struct NewConfig {
    config: Config,
    /// The settings in its file; none without a file.
    in_file: Option<BTreeSet<String>>,
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
        if compares_kernel && !self.may_be_here() {
            let problem = "without -f and --config the kernel of this machine is compared: run it on the node of the agent";
            return Err(UsageError(problem.to_owned()).into());
        }
        let mut problems = Problems::default();
        let old_config = self.old_config(&mut problems)?;
        let NewConfig { config, in_file } = self.new_config(&old_config, terminal)?;
        check_renderers(&old_config, &config, compares_kernel)?;
        let parsed = self.manifests(terminal)?;
        let stored = self.stored(&old_config)?;
        let merged = if compares_kernel {
            None
        } else {
            Some(with_manifests(&stored, &parsed)?)
        };
        let (old_objects, known) = objects(&old_config, stored);
        problems.of_store = known;
        let machine = self.machine(&old_config.node_name, &old_objects, terminal)?;
        let machine = machine.as_ref();
        let comparison = if let Some(merged) = merged {
            let (new_objects, mut unusable) = objects(&old_config, merged);
            unusable.retain(|key, problem| problems.of_store.get(key) != Some(problem));
            problems.of_manifests = unusable;
            let desired = Desired {
                machine,
                facts: self.facts(&old_config),
            };
            let old = desired.state(&old_config, &old_objects);
            let new = desired.state(&config, &new_objects);
            let of_setting = |alone: &Config| {
                let alone = desired.state(alone, &old_objects);
                let changes = (alone != old).then(|| StateComparison::between(&old, &alone));
                Ok(changes.map(|changes| changes.changes.len()))
            };
            let settings = settings::compare(&old_config, &config, in_file.as_ref(), of_setting)?;
            let changes = StateComparison::between(&old, &new);
            let compared = Compared::new(&changes, &new, &config, &desired.facts);
            problems.unknown.extend(desired.facts.unknown);
            Comparison {
                changes,
                settings,
                fates: FlowFates::new(&old, &new, self.config.is_some()),
                is_otherwise: old != new,
                new,
                compared,
            }
        } else {
            let Some(machine) = machine else {
                let problem = format!(
                    "without -f and --config the kernel of this machine is compared, and it is not the node {}: run it there",
                    old_config.node_name
                );
                return Err(UsageError(problem).into());
            };
            self.with_kernel(&old_config, machine, &old_objects, &mut problems)?
        };
        if comparison
            .settings
            .iter()
            .any(|setting| setting.effect == Effect::OtherObjects)
        {
            let problem = "what the objects of another store, or of another way there, change";
            problems.unknown.push(problem.to_owned());
        }
        print_problems(&problems, &comparison.settings, terminal)?;
        let is_known = problems.of_manifests.is_empty()
            && parsed.problems.is_empty()
            && problems.unknown.is_empty();
        let conclusion = Conclusion::of(&comparison, is_known);
        self.print(&comparison, conclusion, machine.is_some(), terminal)?;
        Ok(match conclusion {
            Conclusion::Same => Outcome::Success,
            Conclusion::Otherwise | Conclusion::Changed => Outcome::PartialFailure,
            Conclusion::Unknown => Outcome::Unknown,
        })
    }

    /// Whether the node of the agent may be this machine, by its address.
    fn may_be_here(&self) -> bool {
        self.from_config.is_some() || self.agent.agent.is_local()
    }

    /// The configuration that the agent has. It may be of another version.
    fn old_config(&self, problems: &mut Problems) -> anyhow::Result<Config> {
        if let Some(path) = &self.from_config {
            let config = Config::load(Some(path), &ConfigFlags::default());
            return Ok(config.map_err(|error| UsageError(error.to_string()))?);
        }
        let text = http_client::get(&self.agent.agent, "/config")?;
        let (config, unknown) = file::parse_of_any_version("/config", &text)?;
        problems.unknown.extend(unknown.into_iter().map(|setting| {
            format!("what the agent's setting {setting} does: this version cannot read it, and does not start with it in a file")
        }));
        Ok(config)
    }

    /// The configuration that it would have: that of `--config`, or the same. A file need not name the node and the store, which flags
    /// or the environment often do.
    fn new_config(&self, old: &Config, terminal: &mut Terminal) -> anyhow::Result<NewConfig> {
        let Some(path) = &self.config else {
            return Ok(NewConfig {
                config: old.clone(),
                in_file: None,
            });
        };
        let name = path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| {
            UsageError(format!("failed to read the configuration {name}: {error}"))
        })?;
        let is_of_kube_proxy = migrate::is_of_kube_proxy(&text);
        let text = if is_of_kube_proxy {
            let (converted, problems) = migrate::convert(path)?;
            for problem in problems {
                writeln!(terminal.err, "note: {problem}")?;
            }
            converted
        } else {
            text
        };
        let parsed = file::parse::<Config>(&name, &text);
        parsed.map_err(|error| {
            let of_manifest = ["apiVersion:", "kind:"];
            let is_manifest =
                (text.lines()).any(|line| of_manifest.iter().any(|key| line.starts_with(key)));
            let advice = if is_manifest {
                "; it is no agent.toml: -f compares manifests"
            } else {
                ""
            };
            UsageError(format!("{error}{advice}"))
        })?;
        let mut table: toml::Table = toml::from_str(&text)?;
        if is_of_kube_proxy {
            // It is the same cluster, whatever leads there.
            table.remove("store");
        }
        let mut in_file: BTreeSet<String> = table.keys().cloned().collect();
        let now: toml::Table = toml::from_str(&old.to_toml()?)?;
        let is_same_store = table
            .get("store")
            .is_none_or(|it| now.get("store") == Some(it));
        for (key, value) in now {
            let is_taken = key == "node-name" || settings::is_of_store(&key) && is_same_store;
            if is_taken && !table.contains_key(&key) {
                in_file.insert(key.clone());
                table.insert(key, value);
            }
        }
        let config: Config = table.try_into()?;
        let config = config.finish();
        let config = config.map_err(|error: ConfigError| UsageError(error.to_string()))?;
        Ok(NewConfig {
            config,
            in_file: Some(in_file),
        })
    }

    /// What the agent knows, if there is one.
    fn facts(&self, config: &Config) -> AgentFacts {
        if self.from_config.is_some() {
            return AgentFacts::default();
        }
        AgentFacts::ask(&self.agent, config)
    }

    fn manifests(&self, terminal: &mut Terminal) -> anyhow::Result<ParsedManifests> {
        let parsed = input::read(&self.files)?;
        Manifests::new(self.files.clone(), self.verbose).report(&parsed, &mut terminal.err)?;
        let is_empty = parsed.objects.is_empty() && parsed.skipped.is_empty();
        if !self.files.is_empty() && is_empty && parsed.problems.is_empty() {
            let paths = self.files.iter().map(|path| path.display().to_string());
            let paths: Vec<String> = paths.collect();
            bail!("there is no object in {}", paths.join(", "));
        }
        Ok(parsed)
    }

    /// The addresses and interfaces of the node; none if it is another machine: behind a tunnel to its agent, for example.
    fn machine(
        &self,
        node: &str,
        objects: &[Object],
        terminal: &mut Terminal,
    ) -> anyhow::Result<Option<MachineAddresses>> {
        if self.may_be_here() {
            let machine = machine_addresses()?;
            let of_node = addresses_of(node, objects);
            if is_here(
                node,
                &of_node,
                default_node_name().ok().as_deref(),
                &machine.addresses,
            ) {
                return Ok(Some(machine));
            }
        }
        writeln!(
            terminal.err,
            "note: {node} is another machine: its interfaces and the connections that there are are not known here"
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

    /// Compares the rules in the kernel with those that this version would write.
    fn with_kernel(
        &self,
        config: &Config,
        machine: &MachineAddresses,
        objects_of_store: &[Object],
        problems: &mut Problems,
    ) -> anyhow::Result<Comparison> {
        let first = self.kernel_once(config, machine, objects_of_store, None)?;
        let (mut changes, mut new, mut facts) = first;
        if !changes.is_empty() {
            thread::sleep(CONFIRMATION_INTERVAL);
            let places = changes.places();
            let (again, unusable) = objects(config, self.stored(config)?);
            let second = self.kernel_once(config, machine, &again, Some(&places))?;
            changes = changes.confirmed_by(second.0);
            (new, facts) = (second.1, second.2);
            problems.of_store = unusable;
        }
        let mut compared = Compared::new(&changes, &new, config, &facts);
        let table = match table_content()? {
            TableContent::Different => TableVersion::Other,
            TableContent::Services | TableContent::Empty | TableContent::Missing => {
                TableVersion::This
            }
        };
        compared.table = Some(table);
        compared.has_other_elements = changes.is_empty()
            && table == TableVersion::This
            && self.has_other_elements(config, machine, &new)?;
        problems.unknown.extend(facts.unknown);
        let mut fates = FlowFates::new(&new, &new, true);
        for change in &changes.changes {
            if change.old.verdict == VerdictKind::Served {
                fates.add_programmed(&change.frontend, change.to, &change.old.backends);
            }
        }
        Ok(Comparison {
            fates,
            new,
            changes,
            settings: Vec::new(),
            is_otherwise: compared.has_other_elements,
            compared,
        })
    }

    /// Whether a table of this version has other elements although connections end as they should: other shares of backends, for
    /// example.
    fn has_other_elements(
        &self,
        config: &Config,
        machine: &MachineAddresses,
        new: &Snapshot,
    ) -> anyhow::Result<bool> {
        let differs = |state: &Snapshot| {
            let found = TableVerifier::new().verify(state)?;
            anyhow::Ok(!found.drift.is_empty())
        };
        if !differs(new)? {
            return Ok(false);
        }
        thread::sleep(CONFIRMATION_INTERVAL);
        let (objects, _) = objects(config, self.stored(config)?);
        let desired = Desired {
            machine: Some(machine),
            facts: self.facts(config),
        };
        differs(&desired.state(config, &objects))
    }

    fn kernel_once(
        &self,
        config: &Config,
        machine: &MachineAddresses,
        objects: &[Object],
        places: Option<&BTreeSet<Place>>,
    ) -> anyhow::Result<(StateComparison, Snapshot, AgentFacts)> {
        let progress = Progress::with_words("sets read");
        let table = ProgrammedTable::read(&|done, total| progress.set(done, total))?;
        drop(progress);
        let Some(table) = table else {
            bail!(
                "the kernel has no table inet contiv here: no agent has programmed it; `contiv render` prints what one would"
            );
        };
        let desired = Desired {
            machine: Some(machine),
            facts: self.facts(config),
        };
        let new = desired.state(config, objects);
        let mut changes = StateComparison::from_kernel(&table, &new, places);
        if desired.facts.without_routes.is_none() {
            changes = changes.with_unknown_routes();
        }
        Ok((changes, new, desired.facts))
    }

    fn print(
        &self,
        comparison: &Comparison,
        conclusion: Conclusion,
        is_here: bool,
        terminal: &mut Terminal,
    ) -> anyhow::Result<()> {
        let Comparison {
            changes, settings, ..
        } = comparison;
        let flows = live_flows(comparison, is_here, terminal)?;
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
                let named = |flows: &LiveFlowsByService<'_>| {
                    let flows = flows.iter().map(|(service, count)| {
                        let mut value = serde_json::to_value(count).unwrap_or_default();
                        value["service"] = json!(service);
                        value
                    });
                    flows.collect::<Vec<_>>()
                };
                let value = json!({
                    "result": conclusion,
                    "compared": comparison.compared,
                    "changes": changes.changes,
                    "unknown": changes.unknown,
                    "settings": settings,
                    "connections": flows.as_ref().map(named),
                });
                format.print(value, self.options.no_headers)?
            }
            Output::Table | Output::Wide => self.tables(comparison, conclusion, flows.as_ref())?,
        };
        Ok(terminal.out.write_all(text.as_bytes())?)
    }

    fn tables(
        &self,
        comparison: &Comparison,
        conclusion: Conclusion,
        flows: Option<&LiveFlowsByService<'_>>,
    ) -> anyhow::Result<String> {
        let Comparison {
            changes, settings, ..
        } = comparison;
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
            last.extend(conclusion.text().map(str::to_owned));
        }
        if !settings.is_empty() {
            last.push("settings take effect when the agent is restarted".to_owned());
        }
        let summary = comparison.compared.summary();
        if !summary.is_empty() {
            last.push(summary);
        }
        if !last.is_empty() {
            parts.push(last.join("\n") + "\n");
        }
        Ok(parts.join("\n"))
    }
}

/// What happens to the connections to frontends that change; none if they are not known.
fn live_flows<'a>(
    comparison: &'a Comparison,
    is_here: bool,
    terminal: &mut Terminal,
) -> anyhow::Result<Option<LiveFlowsByService<'a>>> {
    let Comparison {
        changes,
        fates,
        new,
        ..
    } = comparison;
    if changes.changes.is_empty() {
        return Ok(Some(LiveFlowsByService::new()));
    }
    if !is_here {
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

fn print_problems(
    problems: &Problems,
    settings: &[SettingChange],
    terminal: &mut Terminal,
) -> io::Result<()> {
    for problem in problems.of_store.values() {
        writeln!(
            terminal.err,
            "note: {problem}; an agent may use an earlier state of it, which is not known here"
        )?;
    }
    for problem in problems.of_manifests.values() {
        writeln!(terminal.err, "{problem}")?;
    }
    for problem in &problems.unknown {
        writeln!(terminal.err, "not known: {problem}")?;
    }
    let absent = settings.iter().filter(|setting| !setting.is_in_file);
    let absent: Vec<&str> = absent.map(|setting| setting.setting.as_str()).collect();
    if !absent.is_empty() {
        writeln!(
            terminal.err,
            "note: not in the file, so as by default: {}; what flags or the environment give the agent has to be added to the file",
            absent.join(", ")
        )?;
    }
    Ok(())
}

/// Refuses to compare where there are no rules, or where all of them would come or go.
fn check_renderers(old: &Config, new: &Config, compares_kernel: bool) -> anyhow::Result<()> {
    let runs = |config: &Config, name| config.renderers.contains(&name);
    let sides = [old, new].map(|config| runs(config, RendererName::NFTABLES));
    let is_dry = |config| runs(config, RendererName::DRY_RUN);
    match sides {
        [true, true] => Ok(()),
        [false, false] if is_dry(old) && is_dry(new) && !compares_kernel => Ok(()),
        [false, false] => bail!(
            "the agent does not run the renderer nftables (its setting `renderers`): there are no rules to compare"
        ),
        [true, false] => bail!(
            "the agent would not run the renderer nftables (the setting `renderers`): its rules stay as they are until `contiv \
             cleanup`, and what replaces them is not compared"
        ),
        [false, true] => bail!(
            "the agent does not run the renderer nftables now, and then it would (the setting `renderers`): `contiv render` prints \
             the rules, and `contiv verify --against kube-proxy` compares them with those of kube-proxy"
        ),
    }
}

/// The addresses of a node by its object, and those of all others.
fn addresses_of(name: &str, objects: &[Object]) -> [BTreeSet<IpAddr>; 2] {
    let mut found = [BTreeSet::new(), BTreeSet::new()];
    for object in objects {
        if let Object::Node(node) = object {
            let [of_node, of_others] = &mut found;
            let side = if *node.name.0 == *name {
                of_node
            } else {
                of_others
            };
            side.extend(node.ips());
        }
    }
    found
}

/// Whether a node is this machine: it has its name, or one of its addresses. Without a known address it is, unless another node is.
fn is_here(
    node: &str,
    [of_node, of_others]: &[BTreeSet<IpAddr>; 2],
    host_name: Option<&str>,
    own: &BTreeSet<IpAddr>,
) -> bool {
    let is_free = of_node.is_empty() && of_others.is_disjoint(own);
    is_free || !of_node.is_disjoint(own) || host_name == Some(node)
}

/// What desired states are derived from besides objects.
struct Desired<'a> {
    machine: Option<&'a MachineAddresses>,
    facts: AgentFacts,
}

impl Desired<'_> {
    /// The desired state with another configuration of the same node.
    fn state(&self, config: &Config, objects: &[Object]) -> Snapshot {
        let addresses = self.machine.map(|it| it.addresses.clone());
        let mut processor = processor_with(objects.to_vec(), config, addresses);
        let interfaces: Option<LocalInterfaces> = self.machine.map(|it| it.interfaces.clone());
        processor.apply(interfaces.map(Event::LocalInterfaces));
        let failing = self.facts.failing.iter();
        let failing = failing.map(|(id, them)| Event::FailingBackends(id.clone(), them.clone()));
        processor.apply(failing);
        let mut snapshot = processor.snapshot();
        for id in self.facts.without_routes.iter().flatten() {
            if let Some(service) = snapshot.services.get_mut(id)
                && service.assignment.addresses == Carrier::Route
            {
                // As the agent does.
                Arc::make_mut(service).assignment.addresses = Carrier::NftablesUntilRoute;
            }
        }
        snapshot
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conclusion_says_what_is_not_compared_or_not_known() {
        let state = Snapshot::default();
        let of = |effect: Option<Effect>, is_otherwise, is_known| {
            let setting = |effect| SettingChange {
                setting: "service-cidrs".to_owned(),
                old: None,
                new: None,
                is_in_file: true,
                effect,
            };
            let changes = StateComparison::default();
            let comparison = Comparison {
                compared: Compared::new(
                    &changes,
                    &state,
                    &Config::default(),
                    &AgentFacts::default(),
                ),
                changes,
                settings: effect.map(setting).into_iter().collect(),
                fates: FlowFates::new(&state, &state, false),
                new: state.clone(),
                is_otherwise,
            };
            Conclusion::of(&comparison, is_known)
        };
        assert_eq!(of(None, false, true), Conclusion::Same);
        assert_eq!(of(Some(Effect::None), false, true), Conclusion::Same);
        for effect in [Effect::OtherConnections, Effect::Routes, Effect::SameEnds] {
            assert_eq!(
                of(Some(effect), false, true),
                Conclusion::Otherwise,
                "{effect}"
            );
        }
        assert_eq!(of(None, true, true), Conclusion::Otherwise);
        assert_eq!(of(None, true, false), Conclusion::Unknown);
    }

    #[test]
    fn node_with_other_addresses_and_name_is_not_this_machine() {
        let ips = |all: &[&str]| -> BTreeSet<IpAddr> {
            all.iter().map(|ip| ip.parse().unwrap()).collect()
        };
        let own = ips(&["127.0.0.1", "192.168.0.1"]);
        for (of_node, host_name, expected) in [
            (&["192.168.0.1", "2001:db8::1"][..], Some("laptop"), true),
            (&["192.168.0.2"], Some("laptop"), false),
            (&["192.168.0.2"], None, false),
            (&["192.168.0.2"], Some("n1"), true),
            (&[], Some("laptop"), true),
        ] {
            let addresses = [ips(of_node), ips(&["192.168.0.9"])];
            let is_here = is_here("n1", &addresses, host_name, &own);
            assert_eq!(is_here, expected, "{of_node:?} {host_name:?}");
        }
        let of_other = [ips(&[]), ips(&["192.168.0.1"])];
        assert!(!is_here("n1", &of_other, Some("laptop"), &own));
    }
}
