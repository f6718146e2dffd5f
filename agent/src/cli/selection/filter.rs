//! A filter of services, for commands that cover all of them by default.

use std::collections::BTreeSet;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_model::ServiceId;

use super::{complete, scope::labelled, selector::Selector};
use crate::cli::source::agent_argument::AgentArgument;

/// Selects services.
#[derive(Debug, Clone, Args)]
pub(crate) struct Filter {
    /// Only services of this namespace
    #[arg(short, long, conflicts_with = "all_namespaces", add = ArgValueCompleter::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,

    /// Services of every namespace, as without -n
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only services with these labels, as in app=web,tier!=cache or 'app in (web, api)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Selector>,
}

/// The filter with the labels of services.
#[derive(Debug)]
pub(crate) struct Matcher {
    namespace: Option<String>,
    labelled: Option<BTreeSet<ServiceId>>,
}

impl Filter {
    /// True without any filter.
    pub(crate) const fn selects_all(&self) -> bool {
        self.namespace.is_none() && self.selector.is_none()
    }

    /// Requests labels from the agent if they are needed.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn matcher(&self, agent: &AgentArgument) -> anyhow::Result<Matcher> {
        let labelled = self
            .selector
            .as_ref()
            .map(|selector| labelled(selector, agent))
            .transpose()?;
        let namespace = self.namespace.clone().filter(|_| !self.all_namespaces);
        Ok(Matcher {
            namespace,
            labelled,
        })
    }
}

impl Matcher {
    pub(crate) fn matches(&self, service: &ServiceId) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|namespace| **namespace == *service.namespace)
            && self
                .labelled
                .as_ref()
                .is_none_or(|labelled| labelled.contains(service))
    }
}
