//! The common part of commands about an agent's services: selection, format, watching.

use std::collections::BTreeMap;

use clap::Args;
use contiv_model::{NotServed, ServiceId};
use serde_json::Value;

use super::agent_lists::AgentList;
use crate::cli::{
    Outcome, Terminal,
    output::{
        listing::{Listing, Output},
        table::printable,
        table_options::TableOptions,
        watch::WatchArgument,
    },
    selection::scope::{Scope, SelectedItems},
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, AgentsArgument},
        unserved,
        views::{ServiceView, StatusView, StoredServiceView, WarningView},
    },
};

/// How many warnings are printed.
const MAX_WARNINGS: usize = 5;

/// A query for services.
#[derive(Debug, Args)]
pub(crate) struct ServiceQuery {
    #[command(flatten)]
    pub(crate) scope: Scope,

    /// Output format
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Output,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agents: AgentsArgument,
}

impl ServiceQuery {
    /// The agents that are asked.
    ///
    /// # Errors
    /// When a file of agents cannot be used.
    pub(crate) fn agents(&self) -> anyhow::Result<Agents> {
        Ok(self.agents.agents()?)
    }

    /// Prints the items of `list`, and its notes, for the selected services, each with the agent's JSON. Services that are not served are left
    /// out unless `lists_unserved` for their reason. With `is_single` the list has one item if one service was requested by name.
    pub(crate) fn run(
        &self,
        terminal: &mut Terminal,
        is_single: bool,
        lists_unserved: impl Fn(&NotServed) -> bool + Sync,
        list: impl Fn(&AgentArgument, Vec<(ServiceView, Value)>) -> anyhow::Result<(Listing, String)>
        + Sync,
    ) -> anyhow::Result<Outcome> {
        let agents = self.agents.agents()?;
        let list_of = |agent: &AgentArgument| {
            let is_table = self.output.is_table();
            let SelectedItems { items, missing } = self.scope.select(
                fetch(agent, is_table)?,
                "service",
                |(service, _)| &service.id,
                agent,
            )?;
            let is_known = missing.is_empty();
            let mut err = missing;
            if is_table {
                let unserved = items
                    .iter()
                    .filter_map(|(service, _)| Some((&service.id, service.not_served.as_ref()?)));
                err += &unserved::notes(unserved);
            }
            let (listed, hidden): (Vec<_>, Vec<_>) = items
                .into_iter()
                .partition(|(service, _)| service.not_served.as_ref().is_none_or(&lists_unserved));
            err += &self.hidden(&hidden, listed.is_empty());
            let is_good = self.scope.selects_all() || is_known && hidden.is_empty();
            if is_table {
                err += &self.warnings(agent)?;
            }
            let (listing, notes) = list(agent, listed)?;
            err += &notes;
            Ok(AgentList {
                listing,
                err,
                is_good,
                is_single: is_single && self.scope.is_single(),
            })
        };
        self.watch.run(terminal, || {
            AgentList::of(&agents, list_of)?.print(&self.output, &self.table)
        })
    }

    /// Lines about fields of selected services that have no effect, or not the expected one.
    fn warnings(&self, agent: &AgentArgument) -> anyhow::Result<String> {
        let status: StatusView = agent.get("/status")?;
        // An agent of an earlier version has none, and no such path.
        if status.warnings == 0 {
            return Ok(String::new());
        }
        let mut warnings: Vec<WarningView> = agent.get("/warnings")?;
        warnings.retain(|warning| warning.service().is_some_and(|id| self.scope.contains(&id)));
        let line = |warning: &WarningView| {
            let text = format!("warning: {}: {}", warning.subject(), warning.reason);
            printable(text) + "\n"
        };
        let mut lines: String = warnings.iter().take(MAX_WARNINGS).map(line).collect();
        if let Some(more) = warnings
            .len()
            .checked_sub(MAX_WARNINGS)
            .filter(|more| *more > 0)
        {
            lines.extend([
                "and ",
                &more.to_string(),
                " more: `contiv status -o wide`\n",
            ]);
        }
        Ok(lines)
    }

    /// Lines about selected services that are left out: each one that was named, and a hint if nothing else is listed.
    fn hidden(&self, hidden: &[(ServiceView, Value)], nothing_listed: bool) -> String {
        if self.scope.selects_all() {
            let hint =
                "no service found that is served; `contiv services --all` lists the others\n";
            return if nothing_listed && !hidden.is_empty() {
                hint.to_owned()
            } else {
                String::new()
            };
        }
        let line = |(service, _): &(ServiceView, Value)| {
            let reason = service.not_served.as_ref()?;
            Some(format!(
                "error: {} is not served: {reason}; `contiv services --all` lists it\n",
                service.id
            ))
        };
        hidden.iter().filter_map(line).collect()
    }
}

/// Requests all services. For tables each has the type of its stored object; it comes with the agent's JSON.
fn fetch(agent: &AgentArgument, is_table: bool) -> anyhow::Result<Vec<(ServiceView, Value)>> {
    let stored: Vec<StoredServiceView> = if is_table {
        agent.get("/objects/svc")?
    } else {
        Vec::new()
    };
    let types: BTreeMap<&ServiceId, &'static str> = stored
        .iter()
        .map(|service| (&service.id, service.type_name()))
        .collect();
    let mut services: Vec<(ServiceView, Value)> = agent.list("/services?all=true")?;
    for (service, _) in &mut services {
        // A service created after the stored ones were read has no type yet.
        service.service_type = types.get(&service.id).copied().unwrap_or("<unknown>");
    }
    Ok(services)
}
