//! The desired outcome of a flow: from a running agent, or from manifests.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use contiv_model::{Flow, Processor};
use contiv_node::Explanation;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;

use crate::cli::{
    Terminal,
    source::{
        agent_argument::AgentArgument,
        input::{self, print_findings},
        node_settings::NodeSettings,
        offline::{DesiredState, desired_state},
        views::{QuarantinedView, RendererStateView, ServiceView},
    },
};

/// For a query that fails.
const HINT: &str = "failed to query the agent; to read manifests instead, use -f";

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
    Manifests(Box<Processor>),
}

impl TraceTarget {
    /// The source, and whether all of its input was good; no source if none of it was.
    pub(super) fn open(
        &self,
        terminal: &mut Terminal,
    ) -> anyhow::Result<(Option<Source<'_>>, bool)> {
        self.settings.check(&self.agent, !self.files.is_empty())?;
        if self.files.is_empty() {
            return Ok((Some(Source::Agent(&self.agent)), true));
        }
        let parsed = input::read(&self.files)?;
        print_findings(&parsed, &mut terminal.err)?;
        let DesiredState { processor, is_good } =
            desired_state(&parsed, &self.settings, true, terminal)?;
        Ok((
            processor.map(|processor| Source::Manifests(Box::new(processor))),
            is_good,
        ))
    }
}

impl Source<'_> {
    /// The stored services, also those that are not served.
    pub(super) fn services(&self) -> anyhow::Result<Vec<ServiceView>> {
        match self {
            Self::Agent(agent) => agent.get("/services?all=true").context(HINT),
            Self::Manifests(processor) => {
                let view = |value: serde_json::Result<Value>| Ok(serde_json::from_value(value?)?);
                let served = processor
                    .services()
                    .map(|(_, service)| serde_json::to_value(&**service));
                let unserved = processor.unserved_services().map(serde_json::to_value);
                served.chain(unserved).map(view).collect()
            }
        }
    }

    /// Why a service is in quarantine; none if it is not, or if there is no agent.
    pub(super) fn quarantined(&self, service: &str) -> anyhow::Result<Option<String>> {
        let Self::Agent(agent) = self else {
            return Ok(None);
        };
        let quarantine: Vec<QuarantinedView> = agent.get("/quarantine").context(HINT)?;
        let object = format!("service {service}");
        let is_it = |entry: &&QuarantinedView| {
            entry
                .object
                .as_ref()
                .is_some_and(|it| it.eq_ignore_ascii_case(&object))
        };
        Ok(quarantine.iter().find(is_it).map(QuarantinedView::problem))
    }

    /// The renderers of the agent; none without one.
    pub(super) fn renderers(&self) -> anyhow::Result<Option<Vec<RendererStateView>>> {
        match self {
            Self::Agent(agent) => agent.get("/renderers").context(HINT).map(Some),
            Self::Manifests(_) => Ok(None),
        }
    }

    pub(super) fn trace(&self, flow: &Flow) -> anyhow::Result<Explanation> {
        let agent = match self {
            Self::Agent(agent) => agent,
            Self::Manifests(processor) => {
                return Ok(Explanation {
                    trace: processor.trace(flow),
                    former: None,
                    caveats: Vec::new(),
                });
            }
        };
        let (from, to, port, protocol) = (flow.from(), flow.to(), flow.port(), flow.protocol());
        let interface = flow
            .interface()
            .map(|name| format!("&interface={}", percent_encoded(&name.0)))
            .unwrap_or_default();
        let path = format!("/trace?from={from}&to={to}&port={port}&protocol={protocol}{interface}");
        agent.get(&path).context(HINT)
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
        assert_eq!(
            percent_encoded("veth1&to=%").to_string(),
            "veth1%26to%3D%25"
        );
    }
}
