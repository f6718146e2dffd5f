//! `contiv backends`

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use contiv_model::BackendState;
use serde_json::{Value, json};

use super::service_query::ServiceQuery;
use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        table::Cell,
    },
    source::{
        balance::{BalanceView, ShareView},
        views::{BackendView, PortView, ServiceView},
    },
};

/// Print the backends of services as the running agent has them, a line for each port and backend
///
/// A port without backends has a line too. STATE is `other family` where the service has no address of the backend's family: it
/// gets no connection. The name of a backend is its address and port. Exit codes: 0 success; 1 the agent does not answer, or
/// does not have a named service; 2 wrong usage.
#[derive(Debug, Args)]
#[command(alias = "backend")]
pub(crate) struct Backends {
    #[command(flatten)]
    query: ServiceQuery,

    /// Count new connections for at least so long, 10s if not said: their WANTED share by weights, and the ACTUAL one
    ///
    /// New connections pay for the counting a little, until a minute after the last look. NEW are those since it began. Session
    /// affinity and choice by client spread clients, and not connections.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, num_args = 0..=1, require_equals = true, default_missing_value = "10s")]
    balance: Option<Duration>,
}

impl Backends {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.query.run(
            terminal,
            false,
            |_| false,
            |agent, services| {
                let balance = self.balance.map(|time| BalanceView::of(agent, time));
                Ok(self.list(&services, balance.transpose()?.as_ref()))
            },
        )
    }

    fn list(&self, services: &[(ServiceView, Value)], balance: Option<&BalanceView>) -> Listing {
        let shows_namespace = self.query.scope.shows_namespace();
        // For programs, and as names, only existing backends are printed.
        let shows_missing = matches!(self.query.output, Output::Table | Output::Wide);
        let mut header = vec!["SERVICE", "PORT", "BACKEND", "STATE", "LOCAL", "WEIGHT"];
        if shows_namespace {
            header.insert(0, "NAMESPACE");
        }
        if balance.is_some() {
            header.extend(["WANTED", "ACTUAL", "NEW"]);
        }
        let mut found = Vec::new();
        for (service, value) in services {
            for (position, port) in service.ports.iter().enumerate() {
                for mut item in lines(service, port, &value["ports"][position], balance) {
                    if item.name.is_empty() && !shows_missing {
                        continue;
                    }
                    if shows_namespace {
                        item.cells.0.insert(0, Cell::from(&*service.id.namespace));
                    }
                    found.push(item);
                }
            }
        }
        Listing {
            header: (header, vec!["IN-TOPOLOGY", "HOST-NETWORK"]),
            items: found,
        }
    }
}

/// A line for each backend of a port, or one line for a port without backends; with its share if that is asked for.
pub(super) fn lines(
    service: &ServiceView,
    port: &PortView,
    value: &Value,
    balance: Option<&BalanceView>,
) -> Vec<Item> {
    let title = match port.name.as_str() {
        "" => format!("{}/{}", port.port, port.protocol),
        name => format!("{}/{} ({name})", port.port, port.protocol),
    };
    let first_cells = || vec![Cell::from(&*service.id.name), Cell::from(title.clone())];
    if port.backends.is_empty() {
        let mut cells = first_cells();
        cells.extend([
            Cell::styled("<none>", TextStyle::Bad),
            "".into(),
            "".into(),
            "".into(),
        ]);
        cells.extend(
            balance
                .iter()
                .flat_map(|_| [Cell::from(""), "".into(), "".into()]),
        );
        return vec![Item {
            name: String::new(),
            value: Value::Null,
            cells: (cells, vec!["".into(), "".into()]),
        }];
    }
    let item = |(position, backend): (usize, &BackendView)| {
        let mut value = value["backends"][position].clone();
        value["service"] = json!(service.id);
        value["service_port"] = json!(port.port);
        value["protocol"] = json!(port.protocol);
        let mut cells = first_cells();
        cells.extend(row(service, backend));
        if let Some(balance) = balance {
            let share = balance.share(service, port, backend);
            cells.extend(share_cells(share));
            value["balance"] = json!(share);
        }
        let wide = vec![
            yes_or_no(backend.in_topology),
            yes_or_no(backend.host_network),
        ];
        Item {
            name: endpoint(backend),
            value,
            cells: (cells, wide),
        }
    };
    port.backends.iter().enumerate().map(item).collect()
}

fn row(service: &ServiceView, backend: &BackendView) -> [Cell; 4] {
    let state = match backend.state {
        _ if !service.is_in_family_of(backend.address) => {
            Cell::styled("other family", TextStyle::Warning)
        }
        BackendState::Ready => Cell::styled("ready", TextStyle::Good),
        BackendState::Terminating => Cell::styled("terminating", TextStyle::Warning),
        BackendState::Failing => Cell::styled("failing", TextStyle::Bad),
    };
    [
        endpoint(backend).into(),
        state,
        yes_or_no(backend.local),
        backend.weight.to_string().into(),
    ]
}

/// A port without new connections has no share.
fn share_cells(share: Option<&ShareView>) -> [Cell; 3] {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    match share {
        None => ["-".into(), "-".into(), "0".into()],
        Some(share) => [
            percent(share.wanted).into(),
            percent(share.actual).into(),
            share.new_connections.to_string().into(),
        ],
    }
}

fn endpoint(backend: &BackendView) -> String {
    SocketAddr::new(backend.address, backend.port).to_string()
}

fn yes_or_no(fact: bool) -> Cell {
    if fact { "yes" } else { "no" }.into()
}
