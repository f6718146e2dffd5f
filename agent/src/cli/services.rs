//! `contiv services`

use clap::Args;
use contiv_model::BackendState;
use serde_json::Value;

use super::{
    Outcome, Terminal,
    color::Tone,
    listing::{Item, Listing},
    service_question::ServiceQuestion,
    table::Cell,
    views::{BackendView, ServiceView},
};

/// Carries what no other renderer does.
const DEFAULT_RENDERER: &str = "nftables";

/// Print the services as the running agent has them: their addresses, and how many backends stand behind them
///
/// BACKENDS is how many are ready, and after a + how many terminate and still serve. Exit codes: 0 all is well; 1 the agent
/// does not answer, or has no service of a name that was given; 2 wrong usage.
#[derive(Debug, Args)]
#[command(alias = "service")]
pub(super) struct Services {
    #[command(flatten)]
    question: ServiceQuestion,
}

impl Services {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.question.run(terminal, true, |services| self.list(services))
    }

    fn list(&self, services: Vec<(ServiceView, Value)>) -> Listing {
        let mut header = vec!["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "BACKENDS"];
        let shows_namespace = self.question.scope.shows_namespace();
        if shows_namespace {
            header.insert(0, "NAMESPACE");
        }
        // As long as all have the same there is nothing to tell.
        let shows_renderer = services.iter().any(|(service, _)| renderer(service) != DEFAULT_RENDERER);
        if shows_renderer {
            header.push("RENDERER");
        }
        let shows_lost = services.iter().any(|(service, _)| !service.lost.is_empty());
        if shows_lost {
            header.push("LOST");
        }
        let items = services.into_iter().map(|(service, value)| {
            let mut cells = row(&service);
            if shows_namespace {
                cells.insert(0, Cell::from(&*service.id.namespace));
            }
            if shows_renderer {
                cells.push(renderer(&service).into());
            }
            if shows_lost {
                cells.push(lost(&service));
            }
            Item { name: service.id.to_string(), value, cells: (cells, wide_cells(&service)) }
        });
        let wide = vec!["LOCAL", "EXTERNAL-POLICY", "INTERNAL-POLICY", "BALANCE", "AFFINITY"];
        Listing { header: (header, wide), items: items.collect() }
    }
}

/// The renderer that carries connections to the addresses of a service.
fn renderer(service: &ServiceView) -> &str {
    service.assignment.as_ref().map_or(DEFAULT_RENDERER, |assignment| &assignment.addresses)
}

fn row(service: &ServiceView) -> Vec<Cell> {
    let joined = |addresses: &std::collections::BTreeSet<String>| {
        if addresses.is_empty() {
            "<none>".to_owned()
        } else {
            addresses.iter().cloned().collect::<Vec<_>>().join(",")
        }
    };
    let ports = service.ports.iter().map(|port| match port.node_port {
        Some(node_port) => format!("{}:{node_port}/{}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    });
    vec![
        Cell::from(&*service.id.name),
        service.service_type.into(),
        joined(&service.cluster_ips).into(),
        joined(&service.external_ips).into(),
        ports.collect::<Vec<_>>().join(",").into(),
        backends(service),
    ]
}

/// The backends of the ports, each address once for each port.
fn all_backends(service: &ServiceView) -> impl Iterator<Item = &BackendView> {
    service.ports.iter().flat_map(|port| &port.backends)
}

fn backends(service: &ServiceView) -> Cell {
    let is_ready = |backend: &&BackendView| backend.state == BackendState::Ready;
    let (ready, terminating): (Vec<_>, Vec<_>) = all_backends(service).partition(is_ready);
    let without = service.ports.iter().filter(|port| port.backends.is_empty()).count();
    let text = match (ready.len(), terminating.len()) {
        (ready, 0) => ready.to_string(),
        (ready, terminating) => format!("{ready}+{terminating}"),
    };
    let tone = match (ready.is_empty(), without) {
        (true, _) => Tone::Bad,
        (false, 0) => Tone::Plain,
        // Some port has none.
        (false, _) => Tone::Warning,
    };
    Cell::toned(text, tone)
}

fn wide_cells(service: &ServiceView) -> Vec<Cell> {
    let local = all_backends(service).filter(|backend| backend.local).count();
    let affinity = match service.session_affinity_timeout {
        0 => "none".to_owned(),
        seconds => format!("{seconds}s"),
    };
    vec![
        local.to_string().into(),
        service.external_policy.clone().into(),
        service.internal_policy.clone().into(),
        service.balance.clone().into(),
        affinity.into(),
    ]
}

/// What it asks for and another service holds.
fn lost(service: &ServiceView) -> Cell {
    let lost = service.lost.iter().map(|(frontend, holder)| format!("{frontend} to {holder}"));
    Cell::toned(lost.collect::<Vec<_>>().join(","), Tone::Warning)
}
