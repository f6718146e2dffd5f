//! `contiv health-checks`

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use contiv_model::ServiceId;
use serde::Deserialize;

use super::list_query::{ListEntry, ListQuery};
use crate::cli::{
    Outcome, Terminal,
    output::{color::TextStyle, table::Cell},
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
    query: ListQuery,
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
        self.query.run::<HealthCheckView>(terminal)
    }
}

impl ListEntry for HealthCheckView {
    const PATH: &'static str = "/health-checks";
    const NOUN: &'static str = "health check";
    const TITLES: &'static [&'static str] = &["PORT", "LOCAL", "LISTENS"];
    const IS_ONE_EXPECTED: bool = true;

    fn service(&self) -> &ServiceId {
        &self.service
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.port.to_string().into(),
            local_cell(self.local_endpoints),
            listeners_cell(self),
        ]
    }

    fn is_good(&self) -> bool {
        self.listeners
            .iter()
            .all(|listener| listener.error.is_none())
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
