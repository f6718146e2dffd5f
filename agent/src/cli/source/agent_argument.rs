//! The argument `--agent`, and requests to that agent.

use std::time::Duration;

use anyhow::Context;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::http_client::{self, Server};

/// The default address of agents.
pub(crate) const DEFAULT_AGENT: &str = "http://127.0.0.1:9999";

/// The agent to query.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgument {
    // Must come before `agent`: clap removes an argument from the matches when it reads it, and its source with it.
    #[command(flatten)]
    source: AgentSource,

    /// Where the agent listens (its --listen), with or without http://
    #[arg(long, env = "CONTIV_AGENT", value_name = "URL", default_value = DEFAULT_AGENT)]
    pub(crate) agent: Server,

    /// How long it may take for an answer, if not as long as usual.
    #[arg(skip)]
    limit: Option<Duration>,
}

/// Whether the address of the agent comes from the command line, the environment or the default.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentSource(Option<ValueSource>);

impl AgentSource {
    /// True if `--agent` is on the command line.
    pub(super) fn is_given(&self) -> bool {
        self.0 == Some(ValueSource::CommandLine)
    }
}

impl Args for AgentSource {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for AgentSource {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(matches.value_source("agent")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl AgentArgument {
    pub(super) const fn new(source: AgentSource, agent: Server) -> Self {
        Self {
            source,
            agent,
            limit: None,
        }
    }

    /// With another limit for answers, and without advice where no agent runs.
    pub(super) fn within(self, limit: Duration) -> Self {
        let limit = Some(limit);
        Self { limit, ..self }
    }

    /// True if `--agent` is on the command line.
    pub(crate) fn is_given(&self) -> bool {
        self.source.is_given()
    }

    /// Sends a POST and returns the answer.
    ///
    /// # Errors
    /// When there is no answer, or its format is not that of this version.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.read(path, &http_client::post(&self.agent, path)?)
    }

    /// Sends a GET and returns the answer.
    ///
    /// # Errors
    /// When there is no answer, or its format is not that of this version.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let answer = match self.limit {
            None => http_client::get(&self.agent, path),
            Some(limit) => http_client::get_within(&self.agent, path, limit),
        };
        self.read(path, &answer?)
    }

    /// A list by GET; each item with its JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) fn list<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<(T, Value)>> {
        let values: Vec<Value> = self.get(path)?;
        let items = values
            .into_iter()
            .map(|value| Ok((serde_json::from_value(value.clone())?, value)));
        let items: serde_json::Result<_> = items.collect();
        items.with_context(|| self.unexpected(path))
    }

    fn unexpected(&self, path: &str) -> String {
        format!(
            "{} answered {path} in an unexpected format; is it an agent of this version?",
            self.agent
        )
    }

    fn read<T: DeserializeOwned>(&self, path: &str, text: &str) -> anyhow::Result<T> {
        serde_json::from_str(text).with_context(|| self.unexpected(path))
    }
}
