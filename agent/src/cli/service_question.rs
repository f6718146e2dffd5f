//! What the commands about the services of an agent have in common: which of them, in which form, once or again and again.

use clap::Args;
use serde_json::Value;

use super::{
    Outcome, Terminal,
    agent_argument::AgentArgument,
    listing::{Listing, Output},
    scope::{Scope, Selected},
    views::ServiceView,
    watch::{Frame, WatchArgument, width},
};

/// A question about services.
#[derive(Debug, Args)]
pub(super) struct ServiceQuestion {
    #[command(flatten)]
    pub(super) scope: Scope,

    /// In which form
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,

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
            let Selected { items, missing } = self.fetch()?;
            let is_good = self.scope.is_open() || missing.is_empty();
            let out = list(items).print(self.output, width(), is_single && self.scope.is_single())?;
            Ok(Frame { out, err: missing, is_good })
        })
    }

    fn fetch(&self) -> anyhow::Result<Selected<(ServiceView, Value)>> {
        let values: Vec<Value> = self.agent.get("/services")?;
        let parsed = values.into_iter().map(|value| Ok((serde_json::from_value(value.clone())?, value)));
        let services: Vec<(ServiceView, Value)> = parsed.collect::<Result<_, serde_json::Error>>()?;
        self.scope.select(services, |(service, _)| &service.id, &self.agent)
    }
}
