//! The settings that an agent would have on a node, for commands that work without an agent: flags override the environment,
//! which overrides the file, as for the agent.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{
    ArgMatches, Args, Command, Error, FromArgMatches, ValueHint,
    builder::{OsStringValueParser, Resettable, TypedValueParser as _},
    parser::ValueSource,
};
use contiv_model::{LocalInterfaces, NodePortAddresses};
use contiv_renderer::LocalAddresses;

use crate::cli::UsageError;
use crate::config::{self, Config, ConfigError, ConfigFlags, Settings as _};

/// Keys of the configuration that do not affect services on the node, besides those that begin with `etcd-`.
const PROCESS_KEYS: [&str; 25] = [
    "store",
    "own-table",
    "listen",
    "healthz-listen",
    "metrics-listen",
    "metrics-cert-file",
    "metrics-key-file",
    "metrics-token-file",
    "metrics-token-review",
    "kube-proxy-metrics",
    "state-dir",
    "log-format",
    "log-level",
    "mass-deletion-percent",
    "mass-deletion-wait",
    "service-counters",
    "failover-answer-within",
    "self-check",
    "verify-interval",
    "verify-heal",
    "history-events",
    "history-age",
    "history-bytes",
    "otlp-endpoint",
    "otlp-flows",
];

/// The sources of the settings.
#[derive(Debug, Args)]
pub(crate) struct NodeSettings {
    /// Without an agent: the configuration it would have [default: /etc/contiv/agent.toml, if it exists]
    // An empty value means no file.
    #[arg(
        long,
        env = "CONTIV_CONFIG",
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    config: Option<PathBuf>,

    #[command(flatten)]
    flags: NodeFlags,
}

/// The agent's flags that affect services, as on the command line. The environment is read only when the settings are needed:
/// its values do not matter if a running agent is queried.
#[derive(Debug)]
struct NodeFlags {
    arguments: Vec<OsString>,
}

impl NodeFlags {
    /// These flags, and for those that are not given the environment.
    fn read(&self) -> Result<ConfigFlags<Config>, UsageError> {
        ConfigFlags::of_environment(self.arguments.iter().cloned(), is_node_setting)
            .map_err(|error| flag_error(&error))
    }
}

/// A configuration, with facts about its machine.
#[derive(Debug)]
pub(crate) struct NodeConfig {
    pub(crate) config: Config,
    /// The addresses of its interfaces. None if nothing depends on them, or if it is another machine.
    pub(crate) local_addresses: Option<BTreeSet<IpAddr>>,
}

impl NodeSettings {
    /// Rejects contradictory arguments: an agent has its own settings, and is not used together with other input.
    ///
    /// # Errors
    /// [`UsageError`].
    pub(crate) fn check(&self, is_agent_given: bool, has_input: bool) -> Result<(), UsageError> {
        let problem = match (has_input, is_agent_given, !self.flags.arguments.is_empty()) {
            (true, true, _) => {
                "--agent cannot be used with -f or --store: these are read without an agent"
            }
            (false, _, true) => {
                "the settings of the node can only be given with -f or --store; a running agent has its own (see its /config)"
            }
            _ => return Ok(()),
        };
        Err(UsageError(problem.to_owned()))
    }

    fn file(&self) -> Option<&Path> {
        self.config
            .as_deref()
            .filter(|path| !path.as_os_str().is_empty())
    }

    /// The settings of this machine's agent.
    ///
    /// # Errors
    /// [`UsageError`] with all invalid settings.
    pub(crate) fn for_this_machine(&self) -> anyhow::Result<Config> {
        Ok(Config::load(self.file(), &self.flags.read()?).map_err(usage_error)?)
    }

    /// The settings for one of these nodes: the configured one; else this machine, if it is one of them; else the first by
    /// name. The result depends on the node (what is local, and where node ports answer), so if the first of several is taken,
    /// `err` says so.
    ///
    /// # Errors
    /// [`UsageError`] with all invalid settings; another error when the addresses of this machine cannot be read.
    pub(crate) fn for_one_of(
        &self,
        nodes: &BTreeSet<&str>,
        err: &mut impl Write,
    ) -> anyhow::Result<NodeConfig> {
        let mut config = Config::read(self.file(), &self.flags.read()?).map_err(usage_error)?;
        if config.node_name.is_empty() {
            config.node_name = choose_node(
                nodes,
                config::default_node_name().map_err(usage_error)?,
                err,
            )?;
        }
        let config = config.finish().map_err(usage_error)?;
        let is_from_store = |addresses: &NodePortAddresses| {
            matches!(
                addresses,
                NodePortAddresses::Primary | NodePortAddresses::Cluster
            )
        };
        let needs_addresses = !config.node_port_addresses.iter().all(is_from_store);
        if !needs_addresses {
            return Ok(NodeConfig {
                config,
                local_addresses: None,
            });
        }
        if config.node_name != self.name_of_this_machine()? {
            writeln!(
                err,
                "note: node-port-addresses is about the interfaces of node {}, which are not known on this machine: node ports \
                 have no addresses here",
                config.node_name
            )?;
            return Ok(NodeConfig {
                config,
                local_addresses: None,
            });
        }
        Ok(NodeConfig {
            config,
            local_addresses: Some(local_addresses()?),
        })
    }

    /// The name that an agent would have here without flags.
    fn name_of_this_machine(&self) -> anyhow::Result<String> {
        let environment =
            ConfigFlags::of_environment([], is_node_setting).map_err(|error| flag_error(&error))?;
        let config = Config::read(self.file(), &environment).map_err(usage_error)?;
        let is_set = !config.node_name.is_empty();
        Ok(if is_set {
            config.node_name
        } else {
            config::default_node_name().map_err(usage_error)?
        })
    }
}

/// The addresses of this machine's interfaces.
///
/// # Errors
/// When the kernel does not answer.
pub(crate) fn local_addresses() -> anyhow::Result<BTreeSet<IpAddr>> {
    Ok(machine_addresses()?.addresses)
}

/// The interfaces of this machine.
#[derive(Debug, Clone)]
pub(crate) struct MachineAddresses {
    /// The addresses of all of them.
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) interfaces: LocalInterfaces,
}

/// The interfaces of this machine, and their addresses.
///
/// # Errors
/// When the kernel does not answer.
pub(crate) fn machine_addresses() -> anyhow::Result<MachineAddresses> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let addresses = runtime.block_on(LocalAddresses::open());
    let addresses = addresses.context("the addresses of this node are not known")?;
    Ok(MachineAddresses {
        addresses: addresses.current().clone(),
        interfaces: addresses.interfaces().clone(),
    })
}

/// This machine if it is one of the nodes, or if there are none; else the first of them.
fn choose_node(
    nodes: &BTreeSet<&str>,
    this_machine: String,
    err: &mut impl Write,
) -> io::Result<String> {
    let Some(first) = nodes
        .first()
        .filter(|_| !nodes.contains(this_machine.as_str()))
    else {
        return Ok(this_machine);
    };
    if nodes.len() > 1 {
        let count = nodes.len();
        writeln!(
            err,
            "note: rendered for node {first}, the first of {count}; --node-name chooses another"
        )?;
    }
    Ok((*first).to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "as an argument of map_err")]
fn usage_error(error: ConfigError) -> UsageError {
    UsageError(error.to_string())
}

fn flag_error(error: &Error) -> UsageError {
    UsageError(error.to_string())
}

/// The arguments of the agent that are also arguments of these commands.
fn node_arguments() -> impl Iterator<Item = clap::Arg> {
    let command = Config::augment_args_for_update(Command::new("settings"));
    let arguments: Vec<clap::Arg> = command.get_arguments().cloned().collect();
    arguments
        .into_iter()
        .filter(|argument| argument.get_long().is_some_and(is_node_setting))
}

/// Whether a key of the configuration affects services on the node.
pub(crate) fn is_node_setting(key: &str) -> bool {
    !key.starts_with("etcd-") && !PROCESS_KEYS.contains(&key)
}

impl Args for NodeFlags {
    fn augment_args(command: Command) -> Command {
        // The node's name is often needed, the rest usually comes from the file.
        let argument = |argument: clap::Arg| {
            let is_name = argument.get_long() == Some("node-name");
            let help = match (argument.get_help(), argument.get_env()) {
                (Some(help), Some(env)) => format!("{help} [env: {}]", env.display()),
                (help, _) => help.map(ToString::to_string).unwrap_or_default(),
            };
            // The parser would validate the environment even if an agent is queried.
            let argument = argument.env(Resettable::Reset).help(help);
            argument
                .hide_short_help(!is_name)
                .help_heading("Settings of the node (without an agent)")
        };
        command.args(node_arguments().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NodeFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut arguments = Vec::new();
        for argument in node_arguments() {
            let (Some(key), id) = (argument.get_long(), argument.get_id().as_str()) else {
                continue;
            };
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            arguments.extend(matches.get_raw(id).into_iter().flatten().map(|value| {
                let mut flag = OsString::from(format!("--{key}="));
                flag.push(value);
                flag
            }));
        }
        Ok(Self { arguments })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_of_this_machine_is_chosen_before_first() {
        for (nodes, expected, note) in [
            (&["n1", "here"][..], "here", ""),
            (&[], "here", ""),
            (&["n1"], "n1", ""),
            (
                &["n2", "n1"],
                "n1",
                "note: rendered for node n1, the first of 2; --node-name chooses another\n",
            ),
        ] {
            let mut err = Vec::new();
            let chosen = choose_node(
                &nodes.iter().copied().collect(),
                "here".to_owned(),
                &mut err,
            )
            .unwrap();
            assert_eq!(
                (chosen.as_str(), String::from_utf8(err).unwrap().as_str()),
                (expected, note),
                "{nodes:?}"
            );
        }
    }

    #[test]
    fn process_keys_are_keys_of_configuration() {
        let command = Config::augment_args_for_update(Command::new("settings"));
        let known: Vec<&str> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        assert!(
            PROCESS_KEYS.iter().all(|key| known.contains(key)),
            "{known:?}"
        );
        assert!(node_arguments().any(|argument| argument.get_long() == Some("masquerade-all")));
    }
}
