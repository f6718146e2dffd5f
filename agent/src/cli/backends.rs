//! `contiv backends`

use std::net::SocketAddr;

use clap::Args;
use contiv_model::BackendState;
use serde_json::{Value, json};

use super::{
    Outcome, Terminal,
    agent_argument::AgentArgument,
    color::Tone,
    listing::{Item, Listing, Output},
    scope::{Scope, Selected},
    services,
    table::Cell,
    views::{BackendView, PortView, ServiceView},
    watch::{Frame, WatchArgument, width},
};

/// Print the backends behind services as the running agent has them, a line for each port and backend
///
/// A port without any has a line too. Exit codes: 0 all is well; 1 the agent does not answer, or has no service of a name
/// that was given; 2 wrong usage.
#[derive(Debug, Args)]
#[command(visible_alias = "backend")]
pub(super) struct Backends {
    #[command(flatten)]
    scope: Scope,

    /// In which form; the name of a backend is its address and port
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agent: AgentArgument,
}

impl Backends {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.watch.run(terminal, || self.look())
    }

    fn look(&self) -> anyhow::Result<Frame> {
        let Selected { items, missing } = services::fetch(&self.scope, &self.agent)?;
        let is_good = self.scope.is_open() || missing.is_empty();
        let shows_namespace = self.scope.shows_namespace();
        let mut header = vec!["SERVICE", "PORT", "BACKEND", "STATE", "LOCAL", "WEIGHT"];
        if shows_namespace {
            header.insert(0, "NAMESPACE");
        }
        let mut found = Vec::new();
        for (service, value) in &items {
            for (position, port) in service.ports.iter().enumerate() {
                for item in lines(service, port, &value["ports"][position]) {
                    // For programs and as names only what is there counts.
                    if item.name.is_empty() && !matches!(self.output, Output::Table | Output::Wide) {
                        continue;
                    }
                    let (mut cells, wide) = item.cells;
                    if shows_namespace {
                        cells.insert(0, Cell::from(&*service.id.namespace));
                    }
                    found.push(Item { cells: (cells, wide), ..item });
                }
            }
        }
        let listing = Listing { header: (header, vec!["IN-TOPOLOGY", "HOST-NETWORK"]), items: found };
        Ok(Frame { out: listing.print(self.output, width(), false)?, err: missing, is_good })
    }
}

/// A line for each backend of a port, or one that says that there is none.
fn lines(service: &ServiceView, port: &PortView, value: &Value) -> Vec<Item> {
    let title = match port.name.as_str() {
        "" => format!("{}/{}", port.port, port.protocol),
        name => format!("{}/{} ({name})", port.port, port.protocol),
    };
    let lead = || vec![Cell::from(&*service.id.name), Cell::from(title.clone())];
    if port.backends.is_empty() {
        let mut cells = lead();
        cells.extend([Cell::toned("<none>", Tone::Bad), "".into(), "".into(), "".into()]);
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
        let mut cells = lead();
        cells.extend(row(backend));
        let wide = vec![yes(backend.in_topology), yes(backend.host_network)];
        Item { name: endpoint(backend), value, cells: (cells, wide) }
    };
    port.backends.iter().enumerate().map(item).collect()
}

fn row(backend: &BackendView) -> [Cell; 4] {
    let state = match backend.state {
        BackendState::Ready => Cell::toned("ready", Tone::Good),
        BackendState::Terminating => Cell::toned("terminating", Tone::Warning),
    };
    [endpoint(backend).into(), state, yes(backend.local), backend.weight.to_string().into()]
}

fn endpoint(backend: &BackendView) -> String {
    SocketAddr::new(backend.address, backend.port).to_string()
}

fn yes(fact: bool) -> Cell {
    if fact { "yes" } else { "no" }.into()
}
