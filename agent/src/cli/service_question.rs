//! What the commands about the services of an agent have in common: which of them, in which form, once or again and again.

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

/// A question about services.
#[derive(Debug, Args)]
pub(super) struct ServiceQuestion {
    #[command(flatten)]
    pub(super) scope: Scope,

    /// In which form
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agent: AgentArgument,
}

impl ServiceQuestion {
    /// Prints what `list` makes of the services that are meant, each also as the agent says it. With `is_single` that is one
    /// item for a service that was asked for by name.
    pub(super) fn run(
        &self,
        terminal: &mut Terminal,
        is_single: bool,
        list: impl Fn(Vec<(ServiceView, Value)>) -> Listing,
    ) -> anyhow::Result<Outcome> {
        self.watch.run(terminal, || {
            // For people there is more to say than the agent does.
            let stored = if matches!(self.output, Output::Table | Output::Wide) {
                self.agent.get("/objects/svc")?
            } else {
                Vec::new()
            };
            let services = self.fetch(&stored)?;
            let known = services.iter().map(|(service, _)| service.id.clone()).collect();
            let SelectedItems { items, missing } =
                self.scope.select(services, "service", |(service, _)| &service.id, &self.agent)?;
            let is_good = self.scope.is_open() || missing.is_empty();
            let is_single = is_single && self.scope.is_single();
            let out = list(items).print(self.output, &self.table, width(), is_single)?;
            Ok(Frame { out, err: missing + &self.left_to_others(stored, &known)?, is_good })
        })
    }

    /// Every service, with the type that the `stored` one has; each also as the agent says it.
    fn fetch(&self, stored: &[StoredServiceView]) -> anyhow::Result<Vec<(ServiceView, Value)>> {
        let types: BTreeMap<&ServiceId, &'static str> =
            stored.iter().map(|service| (&service.id, service.type_name())).collect();
        let values: Vec<Value> = self.agent.get("/services")?;
        let mut services = Vec::new();
        for value in values {
            let mut service: ServiceView = serde_json::from_value(value.clone())?;
            // It may have come since.
            service.service_type = types.get(&service.id).copied().unwrap_or("<unknown>");
            services.push((service, value));
        }
        Ok(services)
    }

    /// A line about the services that are meant and that the agent leaves to another proxy.
    fn left_to_others(
        &self,
        mut stored: Vec<StoredServiceView>,
        known: &BTreeSet<ServiceId>,
    ) -> anyhow::Result<String> {
        stored.retain(|service| {
            self.scope.is_meant(&service.id)
                && self.scope.has_labels(&service.labels)
                && !known.contains(&service.id)
                && service.is_for_a_proxy()
        });
        if stored.is_empty() {
            return Ok(String::new());
        }
        let config: Config = file::parse("/config", &http_client::get(&self.agent.agent, "/config")?)?;
        stored
            .retain(|service| service.proxy_name.as_deref().unwrap_or_default() != config.service_proxy_name);
        let left: Vec<_> =
            stored.into_iter().map(|service| (service.id.to_string(), service.proxy_name)).collect();
        Ok(other_proxy::note(&left))
    }
}
