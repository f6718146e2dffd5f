//! `contiv health-checks`

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use contiv_model::ServiceId;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        table::Cell,
        table_options::TableOptions,
        watch::{Frame, WatchArgument, width},
    },
    selection::scope::{Scope, SelectedItems},
    source::agent_argument::AgentArgument,
};

/// Print the health-check node ports of services as the running agent serves them, and those it cannot serve
///
/// Load balancers query them to learn whether this node has ready backends: 200 if it has, 503 if not. LOCAL is their number.
/// Exit codes: 0 success; 1 the agent does not answer, a health check cannot be served, or a named service has none; 2 wrong
/// usage.
#[derive(Debug, Args)]
#[command(alias = "health-check")]
pub(crate) struct HealthChecks {
    #[command(flatten)]
    scope: Scope,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agent: AgentArgument,
}

/// A health check in the agent's JSON.
#[derive(Debug, Deserialize)]
struct HealthCheckView {
    service: ServiceId,
    port: u16,
    local_endpoints: LocalEndpointsView,
    #[serde(default)]
    listeners: Vec<ListenerView>,
}

/// How many ready endpoints are on this node.
#[derive(Debug, Clone, Copy, Deserialize)]
struct LocalEndpointsView {
    ipv4: usize,
    ipv6: usize,
}

#[derive(Debug, Deserialize)]
struct ListenerView {
    address: IpAddr,
    #[serde(default)]
    error: Option<String>,
}

impl HealthChecks {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.watch.run(terminal, || self.frame())
    }

    fn frame(&self) -> anyhow::Result<Frame> {
        let values: Vec<Value> = self.agent.get("/health-checks")?;
        let parsed = values
            .into_iter()
            .map(|value| Ok((serde_json::from_value(value.clone())?, value)));
        let checks: Vec<(HealthCheckView, Value)> =
            parsed.collect::<Result<_, serde_json::Error>>()?;
        let SelectedItems { items, missing } = self.scope.select(
            checks,
            "health check",
            |(check, _)| &check.service,
            &self.agent,
        )?;
        let has_failed = |listener: &ListenerView| listener.error.is_some();
        let is_served = items
            .iter()
            .all(|(check, _)| !check.listeners.iter().any(has_failed));
        let is_good = is_served && (self.scope.selects_all() || missing.is_empty());
        let shows_namespace = self.scope.shows_namespace();
        let items = items
            .into_iter()
            .map(|(check, value)| item(&check, value, shows_namespace))
            .collect();
        let mut header = vec!["SERVICE", "PORT", "LOCAL", "LISTENS"];
        if shows_namespace {
            header.insert(0, "NAMESPACE");
        }
        let listing = Listing {
            header: (header, Vec::new()),
            items,
        };
        let out = listing.print(self.output, &self.table, width(), self.scope.is_single())?;
        Ok(Frame {
            out,
            err: missing,
            is_good,
        })
    }
}

fn item(check: &HealthCheckView, value: Value, shows_namespace: bool) -> Item {
    let mut cells = vec![
        Cell::from(&*check.service.name),
        check.port.to_string().into(),
        local_cell(check.local_endpoints),
        listeners_cell(check),
    ];
    if shows_namespace {
        cells.insert(0, Cell::from(&*check.service.namespace));
    }
    Item {
        name: check.service.to_string(),
        value,
        cells: (cells, Vec::new()),
    }
}

/// The number of ready endpoints, by family.
fn local_cell(LocalEndpointsView { ipv4, ipv6 }: LocalEndpointsView) -> Cell {
    match (ipv4, ipv6) {
        (0, 0) => Cell::styled("none", TextStyle::Warning),
        (ipv4, 0) => format!("{ipv4} IPv4").into(),
        (0, ipv6) => format!("{ipv6} IPv6").into(),
        _ => format!("{ipv4} IPv4, {ipv6} IPv6").into(),
    }
}

fn listeners_cell(check: &HealthCheckView) -> Cell {
    if check.listeners.is_empty() {
        return Cell::styled("nowhere: no address of this node is known", TextStyle::Bad);
    }
    let text = |listener: &ListenerView| {
        let address = SocketAddr::new(listener.address, check.port);
        listener.error.as_ref().map_or_else(
            || address.to_string(),
            |error| format!("{address} FAILS: {error}"),
        )
    };
    let is_bad = check
        .listeners
        .iter()
        .any(|listener| listener.error.is_some());
    let text = check
        .listeners
        .iter()
        .map(text)
        .collect::<Vec<_>>()
        .join(", ");
    Cell::styled(
        text,
        if is_bad {
            TextStyle::Bad
        } else {
            TextStyle::Plain
        },
    )
}
