//! The desired outcome of a flow: from a running agent, or from manifests.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use contiv_model::{Flow, trace};
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use crate::cli::{
    Terminal,
    agent_argument::AgentArgument,
    input::{self, print_findings},
    node_settings::NodeSettings,
    offline::{DesiredState, desired_state},
    views::ServiceView,
};

/// The agent or the manifests that are queried.
#[derive(Debug, Args)]
pub(super) struct TraceTarget {
    #[command(flatten)]
    agent: AgentArgument,

    /// Ask these manifests and no agent: a file, a folder with all below it, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1..)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    settings: NodeSettings,
}

/// The source of the desired outcome.
pub(super) enum Source<'a> {
    Agent(&'a AgentArgument),
    /// Read once: standard input cannot be read again.
    Manifests(Box<contiv_model::Snapshot>),
}

impl TraceTarget {
    /// The source, and whether all of its input was good; no source if none of it was.
    pub(super) fn open(&self, terminal: &mut Terminal) -> anyhow::Result<(Option<Source<'_>>, bool)> {
        self.settings.check(&self.agent, !self.files.is_empty())?;
        if self.files.is_empty() {
            return Ok((Some(Source::Agent(&self.agent)), true));
        }
        let parsed = input::read(&self.files)?;
        print_findings(&parsed, &mut terminal.err)?;
        let DesiredState { snapshot, is_good } = desired_state(&parsed, &self.settings, true, terminal)?;
        Ok((snapshot.map(|snapshot| Source::Manifests(Box::new(snapshot))), is_good))
    }
}

impl Source<'_> {
    /// The services there are.
    pub(super) fn services(&self) -> anyhow::Result<Vec<ServiceView>> {
        match self {
            Self::Agent(agent) => {
                agent.get("/services").context("failed to query the agent; to read manifests instead, use -f")
            }
            Self::Manifests(snapshot) => {
                let view = |service| Ok(serde_json::from_value(serde_json::to_value(service)?)?);
                snapshot.services.values().map(|service| view(&**service)).collect()
            }
        }
    }

    pub(super) fn trace(&self, flow: &Flow) -> anyhow::Result<contiv_model::Trace> {
        let agent = match self {
            Self::Agent(agent) => agent,
            Self::Manifests(snapshot) => return Ok(trace(snapshot, flow)),
        };
        let (from, to, port, protocol) = (flow.from(), flow.to(), flow.port(), flow.protocol());
        let interface = flow
            .interface()
            .map(|name| format!("&interface={}", percent_encoded(&name.0)))
            .unwrap_or_default();
        let path = format!("/trace?from={from}&to={to}&port={port}&protocol={protocol}{interface}");
        agent.get(&path).context("failed to query the agent; to read manifests instead, use -f")
    }
}

/// Escapes every character that has a meaning in a query.
fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_interface_cannot_become_another_argument() {
        assert_eq!(percent_encoded("veth1&to=%").to_string(), "veth1%26to%3D%25");
    }
}
