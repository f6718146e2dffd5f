//! The common part of commands that print a list of the agent, in which each entry belongs to a service.

use clap::Args;
use contiv_model::ServiceId;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agent_lists::AgentList;
use crate::cli::{
    Outcome, Terminal,
    output::{
        listing::{Item, Listing, Output},
        table::Cell,
        table_options::TableOptions,
        watch::WatchArgument,
    },
    selection::scope::{Scope, SelectedItems},
    source::{agent_argument::AgentArgument, agents_argument::AgentsArgument},
};

/// A query for such a list.
#[derive(Debug, Args)]
pub(crate) struct ListQuery {
    #[command(flatten)]
    scope: Scope,

    /// Output format
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agents: AgentsArgument,
}

/// A list of the agent.
pub(crate) trait ListEntry: DeserializeOwned {
    /// Where the agent has it.
    const PATH: &'static str;
    /// What an entry is called.
    const NOUN: &'static str;
    /// The titles of the columns after those of the service.
    const TITLES: &'static [&'static str];
    /// A service has one entry at most, and one that is named should have it.
    const IS_ONE_EXPECTED: bool;

    fn service(&self) -> &ServiceId;

    /// The cells after those of the service.
    fn cells(&self) -> Vec<Cell>;

    /// False if something is wrong with it.
    fn is_good(&self) -> bool {
        true
    }
}

impl ListQuery {
    pub(crate) fn run<T: ListEntry>(&self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let agents = self.agents.agents()?;
        self.watch.run(terminal, || {
            let list = AgentList::of(&agents, |agent| self.list::<T>(agent))?;
            list.print(&self.output, &self.table)
        })
    }

    fn list<T: ListEntry>(&self, agent: &AgentArgument) -> anyhow::Result<AgentList> {
        let entries: Vec<(T, Value)> = agent.list(T::PATH)?;
        let SelectedItems { items, missing } =
            self.scope
                .select(entries, T::NOUN, |(entry, _)| entry.service(), agent)?;
        let is_complete = !T::IS_ONE_EXPECTED || self.scope.selects_all() || missing.is_empty();
        let is_good = is_complete && items.iter().all(|(entry, _)| entry.is_good());
        let shows_namespace = self.scope.shows_namespace();
        let items = items
            .into_iter()
            .map(|(entry, value)| item(&entry, value, shows_namespace))
            .collect();
        let of_service: &[&str] = if shows_namespace {
            &["NAMESPACE", "SERVICE"]
        } else {
            &["SERVICE"]
        };
        let listing = Listing {
            header: ([of_service, T::TITLES].concat(), Vec::new()),
            items,
        };
        Ok(AgentList {
            listing,
            err: missing,
            is_good,
            is_single: T::IS_ONE_EXPECTED && self.scope.is_single(),
        })
    }
}

fn item(entry: &impl ListEntry, value: Value, shows_namespace: bool) -> Item {
    let service = entry.service();
    let mut cells = Vec::new();
    if shows_namespace {
        cells.push(Cell::from(&*service.namespace));
    }
    cells.push(Cell::from(&*service.name));
    cells.extend(entry.cells());
    Item {
        name: service.to_string(),
        value,
        cells: (cells, Vec::new()),
    }
}
