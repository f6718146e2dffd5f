//! `contiv backends`

use std::{io::Write, net::SocketAddr, time::Duration};

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
        balance::{self, BalanceView, ShareView},
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

    /// Count new connections for so long, as in --balance=1m, and print the share of each backend
    ///
    /// 10s if no time is said, at most an hour. WANTED is the share by the weights of today's backends, ACTUAL that of the connections that
    /// were counted, NEW; `gone` is a backend that was removed meanwhile. While it is counted new connections pay a little for it. Session
    /// affinity and choice by client spread clients, and not connections.
    #[arg(long, value_name = "TIME", value_parser = counted_time, num_args = 0..=1, require_equals = true, default_missing_value = "10s")]
    balance: Option<Duration>,
}

/// What was counted is forgotten after an hour.
const LONGEST_COUNT: Duration = Duration::from_secs(3600);

fn counted_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > LONGEST_COUNT {
        Err("at most 1h".to_owned())
    } else {
        Ok(time)
    }
}

impl Backends {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        if let Some(time) = self.balance {
            if self.query.output.is_table() {
                let text = humantime::format_duration(time);
                writeln!(terminal.err, "counting new connections for {text}")?;
            }
            balance::count_for(&self.query.agents()?, time);
        }
        self.query.run(
            terminal,
            false,
            |_| false,
            |agent, services| {
                let Some(time) = self.balance else {
                    return Ok((self.list(&services, None), String::new()));
                };
                let balance = BalanceView::of(agent)?;
                Ok((self.list(&services, Some(&balance)), balance.notes(time)))
            },
        )
    }

    fn list(&self, services: &[(ServiceView, Value)], balance: Option<&BalanceView>) -> Listing {
        let shows_namespace = self.query.scope.shows_namespace();
        // For programs, and as names, only existing backends are printed.
        let shows_missing = matches!(self.query.output, Output::Table | Output::Wide);
        let mut header = vec!["SERVICE", "PORT", "BACKEND", "STATE"];
        let mut wide = vec!["LOCAL", "WEIGHT"];
        if balance.is_some() {
            header.extend(["WANTED", "ACTUAL", "NEW"]);
        } else {
            header.append(&mut wide);
        }
        wide.extend(["IN-TOPOLOGY", "HOST-NETWORK"]);
        if shows_namespace {
            header.insert(0, "NAMESPACE");
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
            header: (header, wide),
            items: found,
        }
    }
}

/// A line for each backend of a port, or one line for a port without backends; with its share if that is asked for, and then also a line
/// for each backend that is gone.
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
    let mut shares = balance.map(|balance| balance.of_port(service, port));
    let first_cells = || vec![Cell::from(&*service.id.name), Cell::from(title.clone())];
    // The wide cells are those of the backend; without shares the first two of them are always shown.
    let cells = |mut cells: Vec<Cell>, share: Option<Option<&ShareView>>, mut wide: Vec<Cell>| {
        match share {
            Some(share) => cells.extend(share_cells(share)),
            None => cells.extend(wide.drain(..2)),
        }
        (cells, wide)
    };
    let of_service = |mut value: Value, share: Option<Option<&ShareView>>| {
        value["service"] = json!(service.id);
        value["service_port"] = json!(port.port);
        value["protocol"] = json!(port.protocol);
        if let Some(share) = share {
            value["balance"] = json!(share);
        }
        value
    };
    let mut items = Vec::new();
    for (position, backend) in port.backends.iter().enumerate() {
        let address = SocketAddr::new(backend.address, backend.port);
        let share = shares.as_mut().map(|shares| shares.remove(&address));
        let mut shown = first_cells();
        shown.extend([address.to_string().into(), state(service, backend)]);
        let wide = vec![
            yes_or_no(backend.local),
            backend.weight.to_string().into(),
            yes_or_no(backend.in_topology),
            yes_or_no(backend.host_network),
        ];
        items.push(Item {
            name: address.to_string(),
            value: of_service(value["backends"][position].clone(), share),
            cells: cells(shown, share, wide),
        });
    }
    let unknown = || vec!["".into(), "".into(), "".into(), "".into()];
    for (address, share) in shares.iter().flatten() {
        let mut shown = first_cells();
        shown.extend([
            address.to_string().into(),
            Cell::styled("gone", TextStyle::Warning),
        ]);
        let gone = json!({"address": address.ip(), "port": address.port(), "state": "gone"});
        items.push(Item {
            name: address.to_string(),
            value: of_service(gone, Some(Some(share))),
            cells: cells(shown, Some(Some(share)), unknown()),
        });
    }
    if items.is_empty() {
        let mut shown = first_cells();
        shown.extend([Cell::styled("<none>", TextStyle::Bad), "".into()]);
        items.push(Item {
            name: String::new(),
            value: Value::Null,
            cells: cells(shown, shares.map(|_| None), unknown()),
        });
    }
    items
}

fn state(service: &ServiceView, backend: &BackendView) -> Cell {
    match backend.state {
        _ if !service.is_in_family_of(backend.address) => {
            Cell::styled("other family", TextStyle::Warning)
        }
        BackendState::Ready => Cell::styled("ready", TextStyle::Good),
        BackendState::Terminating => Cell::styled("terminating", TextStyle::Warning),
        BackendState::Failing => Cell::styled("failing", TextStyle::Bad),
    }
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

fn yes_or_no(fact: bool) -> Cell {
    if fact { "yes" } else { "no" }.into()
}
