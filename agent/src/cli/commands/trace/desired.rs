//! The desired outcome of a flow: from a running agent, or from a store or manifests.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use contiv_model::{Flow, Processor};
use contiv_node::Explanation;
use contiv_store::StoreUrl;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;

use crate::cli::{
    Terminal,
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, AgentsArgument},
        decoded::objects_of_store,
        http_client,
        input::{self, print_findings},
        node_settings::{NodeSettings, local_addresses},
        offline::{DesiredState, desired_state, processor_with},
        views::{QuarantinedView, RendererStateView, ServiceView},
    },
};
use crate::config::EtcdFlags;

/// For a query that fails.
const HINT: &str = "failed to query the agent; to read manifests instead, use -f";

/// The agent, the store or the manifests that are queried.
#[derive(Debug, Args)]
pub(in crate::cli) struct TraceTarget {
    #[command(flatten)]
    agents: AgentsArgument,

    /// Ask these manifests and no agent: a file, a folder with all below it, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "PATH", num_args = 1.., conflicts_with = "store")]
    files: Vec<PathBuf>,

    /// Ask this store and no agent: dir:PATH, etcd://HOST:PORT[,HOST:PORT…], etcds://… with TLS, or kube:[KUBECONFIG]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,

    #[command(flatten)]
    settings: NodeSettings,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// The sources of the desired outcome.
pub(in crate::cli) enum Sources {
    /// No input was good.
    None,
    One(Source),
    /// Agents of several nodes.
    Several(Vec<AgentArgument>),
}

/// The source of the desired outcome.
pub(in crate::cli) enum Source {
    Agent(AgentArgument),
    /// A store or manifests, read once: standard input cannot be read again.
    Offline(Box<Processor>),
}

impl TraceTarget {
    /// The sources, and whether all of their input was good.
    pub(in crate::cli) fn open(&self, terminal: &mut Terminal) -> anyhow::Result<(Sources, bool)> {
        let has_input = !self.files.is_empty() || self.store.is_some();
        self.settings.check(self.agents.is_given(), has_input)?;
        if !has_input {
            let sources = match self.agents.agents()? {
                Agents::One(agent) => Sources::One(Source::Agent(agent)),
                Agents::Several(agents) => Sources::Several(agents),
            };
            return Ok((sources, true));
        }
        let (source, is_good) = self.offline(terminal)?;
        Ok((source.map_or(Sources::None, Sources::One), is_good))
    }

    fn offline(&self, terminal: &mut Terminal) -> anyhow::Result<(Option<Source>, bool)> {
        if let Some(url) = &self.store {
            let config = self.settings.for_this_machine()?;
            let (objects, is_good) = objects_of_store(url, &self.etcd, &config, terminal)?;
            let processor = processor_with(objects, &config, Some(local_addresses()?));
            return Ok((Some(Source::Offline(Box::new(processor))), is_good));
        }
        let parsed = input::read(&self.files)?;
        print_findings(&parsed, &mut terminal.err)?;
        let DesiredState { processor, is_good } =
            desired_state(&parsed, &self.settings, true, terminal)?;
        Ok((
            processor.map(|processor| Source::Offline(Box::new(processor))),
            is_good,
        ))
    }
}

impl Source {
    /// The stored services, also those that are not served.
    pub(in crate::cli) fn services(&self) -> anyhow::Result<Vec<ServiceView>> {
        match self {
            Self::Agent(agent) => agent.get("/services?all=true").context(HINT),
            Self::Offline(processor) => {
                let view = |value: serde_json::Result<Value>| Ok(serde_json::from_value(value?)?);
                let served = processor
                    .services()
                    .map(|(_, service)| serde_json::to_value(&**service));
                let unserved = processor.unserved_services().map(serde_json::to_value);
                served.chain(unserved).map(view).collect()
            }
        }
    }

    /// A service that is served; none if there is none with this name. `name` is `NAMESPACE/NAME`.
    pub(in crate::cli) fn service(&self, name: &str) -> anyhow::Result<Option<ServiceView>> {
        match self {
            // The list may be long.
            Self::Agent(agent) => match agent.get(&format!("/services/{name}")) {
                Ok(service) => Ok(Some(service)),
                Err(error) if http_client::is_error_answer(&error) => Ok(None),
                Err(error) => Err(error.context(HINT)),
            },
            Self::Offline(_) => {
                let has_name = |service: &ServiceView| {
                    service.not_served.is_none() && service.id.to_string() == name
                };
                Ok(self.services()?.into_iter().find(has_name))
            }
        }
    }

    /// Why a service is in quarantine; none if it is not, or if there is no agent.
    pub(in crate::cli) fn quarantined(&self, service: &str) -> anyhow::Result<Option<String>> {
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
    pub(in crate::cli) fn renderers(&self) -> anyhow::Result<Option<Vec<RendererStateView>>> {
        match self {
            Self::Agent(agent) => agent.get("/renderers").context(HINT).map(Some),
            Self::Offline(_) => Ok(None),
        }
    }

    /// The agent; none if a store or manifests are queried.
    pub(in crate::cli) fn agent(&self) -> Option<&AgentArgument> {
        match self {
            Self::Agent(agent) => Some(agent),
            Self::Offline(_) => None,
        }
    }

    pub(in crate::cli) fn trace(&self, flow: &Flow) -> anyhow::Result<Explanation> {
        let agent = match self {
            Self::Agent(agent) => agent,
            Self::Offline(processor) => {
                return Ok(Explanation {
                    trace: processor.trace(flow),
                    former: None,
                    caveats: Vec::new(),
                });
            }
        };
        agent
            .get(&format!("/trace?{}", query_of(flow)))
            .context(HINT)
    }
}

/// The arguments of a request about a connection.
pub(in crate::cli) fn query_of(flow: &Flow) -> String {
    let (from, to, port, protocol) = (flow.from(), flow.to(), flow.port(), flow.protocol());
    let interface = flow
        .interface()
        .map(|name| format!("&interface={}", percent_encoded(&name.0)))
        .unwrap_or_default();
    format!("from={from}&to={to}&port={port}&protocol={protocol}{interface}")
}

/// Escapes every character that has a meaning in a query.
pub(in crate::cli) fn percent_encoded(text: &str) -> PercentEncode<'_> {
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
