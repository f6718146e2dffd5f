//! The common part of commands about an agent's services: selection, format, watching.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use contiv_model::ServiceId;
use serde_json::Value;

use super::{
    Outcome, Terminal,
    agent_argument::AgentArgument,
    http_client,
    listing::{Listing, Output},
    other_proxy,
    scope::{Scope, SelectedItems},
    table_options::TableOptions,
    views::{ServiceView, StoredServiceView},
    watch::{Frame, WatchArgument, width},
};
use crate::config::{Config, file};

/// A query for services.
#[derive(Debug, Args)]
pub(super) struct ServiceQuery {
    #[command(flatten)]
    pub(super) scope: Scope,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agent: AgentArgument,
}

impl ServiceQuery {
    /// Prints the items of `list` for the selected services, each with the agent's JSON. With `is_single` the list has one item
    /// if one service was requested by name.
    pub(super) fn run(
        &self,
        terminal: &mut Terminal,
        is_single: bool,
        list: impl Fn(Vec<(ServiceView, Value)>) -> Listing,
    ) -> anyhow::Result<Outcome> {
        self.watch.run(terminal, || {
            // Only tables need the stored objects: for the types of services, and for the note about other proxies.
            let stored = if matches!(self.output, Output::Table | Output::Wide) {
                self.agent.get("/objects/svc")?
            } else {
                Vec::new()
            };
            let services = self.fetch(&stored)?;
            let known = services.iter().map(|(service, _)| service.id.clone()).collect();
            let SelectedItems { items, missing } =
                self.scope.select(services, "service", |(service, _)| &service.id, &self.agent)?;
            let is_good = self.scope.selects_all() || missing.is_empty();
            let is_single = is_single && self.scope.is_single();
            let out = list(items).print(self.output, &self.table, width(), is_single)?;
            Ok(Frame { out, err: missing + &self.left_to_others(stored, &known)?, is_good })
        })
    }

    /// Requests all services. Each has the type of its `stored` object, and comes with the agent's JSON.
    fn fetch(&self, stored: &[StoredServiceView]) -> anyhow::Result<Vec<(ServiceView, Value)>> {
        let types: BTreeMap<&ServiceId, &'static str> =
            stored.iter().map(|service| (&service.id, service.type_name())).collect();
        let values: Vec<Value> = self.agent.get("/services")?;
        let mut services = Vec::new();
        for value in values {
            let mut service: ServiceView = serde_json::from_value(value.clone())?;
            // A service created after `stored` was read has no type yet.
            service.service_type = types.get(&service.id).copied().unwrap_or("<unknown>");
            services.push((service, value));
        }
        Ok(services)
    }

    /// A line about selected services that the agent leaves to another proxy.
    fn left_to_others(
        &self,
        mut stored: Vec<StoredServiceView>,
        known: &BTreeSet<ServiceId>,
    ) -> anyhow::Result<String> {
        stored.retain(|service| {
            self.scope.contains(&service.id)
                && self.scope.has_labels(&service.labels)
                && !known.contains(&service.id)
                && service.is_for_a_proxy()
        });
        if stored.is_empty() {
            return Ok(String::new());
        }
        let text = http_client::get(&self.agent.agent, "/config")?;
        let config: Config = file::parse_of_any_version("/config", &text)?;
        stored
            .retain(|service| service.proxy_name.as_deref().unwrap_or_default() != config.service_proxy_name);
        let left: Vec<_> =
            stored.into_iter().map(|service| (service.id.to_string(), service.proxy_name)).collect();
        Ok(other_proxy::note(&left))
    }
}
