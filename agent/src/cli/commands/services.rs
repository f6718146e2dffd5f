//! `contiv services`

use std::{collections::BTreeSet, net::IpAddr};

use clap::Args;
use contiv_model::{BackendState, NotServed};
use serde_json::Value;

use super::service_query::ServiceQuery;
use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        listing::{Item, Listing},
        table::Cell,
    },
    source::views::{BackendView, PortView, ServiceView},
};

/// The renderer that carries all services by default.
const DEFAULT_RENDERER: &str = "nftables";

/// Print the services as the running agent has them: their addresses, and the number of their backends
///
/// BACKENDS is the number of ready ones, and after a + the number of those that are terminating and still serving, and in
/// parentheses that of those that do not answer this node (failing): each address once, whatever its ports, and only of the service's address families. Where all are of the other family it says how many. NOT
/// SERVED, where there is one, says why a stored service is not served: it has neither an address nor a node port. Exit codes: 0 success; 1 the agent does not answer, or does not have a named service; 2 wrong usage.
#[derive(Debug, Args)]
#[command(alias = "service")]
pub(crate) struct Services {
    #[command(flatten)]
    query: ServiceQuery,

    /// Also those that are not served by design: headless ones, aliases, and those left to another proxy
    #[arg(long)]
    all: bool,
}

impl Services {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let lists_unserved = |reason: &NotServed| self.all || *reason == NotServed::NoAddress;
        self.query
            .run(terminal, true, lists_unserved, |_, services| {
                Ok((self.list(services), String::new()))
            })
    }

    fn list(&self, services: Vec<(ServiceView, Value)>) -> Listing {
        let mut header = vec![
            "NAME",
            "TYPE",
            "CLUSTER-IP",
            "EXTERNAL-IP",
            "PORT(S)",
            "BACKENDS",
        ];
        let shows_namespace = self.query.scope.shows_namespace();
        if shows_namespace {
            header.insert(0, "NAMESPACE");
        }
        // Shown only if renderers differ.
        let shows_renderer = services
            .iter()
            .any(|(service, _)| renderer(service) != DEFAULT_RENDERER);
        if shows_renderer {
            header.push("RENDERER");
        }
        let shows_lost = services.iter().any(|(service, _)| !service.lost.is_empty());
        if shows_lost {
            header.push("LOST");
        }
        let shows_unserved = services
            .iter()
            .any(|(service, _)| service.not_served.is_some());
        if shows_unserved {
            header.push("NOT SERVED");
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
            if shows_unserved {
                cells.push(not_served(&service));
            }
            Item {
                name: service.id.to_string(),
                value,
                cells: (cells, wide_cells(&service)),
            }
        });
        let wide = vec![
            "LOCAL",
            "EXTERNAL-POLICY",
            "INTERNAL-POLICY",
            "BALANCE",
            "AFFINITY",
        ];
        Listing {
            header: (header, wide),
            items: items.collect(),
        }
    }
}

/// The renderer that carries connections to the addresses of a service.
fn renderer(service: &ServiceView) -> &str {
    service
        .assignment
        .as_ref()
        .map_or(DEFAULT_RENDERER, |assignment| &assignment.addresses)
}

fn row(service: &ServiceView) -> Vec<Cell> {
    let joined = |addresses: &BTreeSet<String>| {
        if addresses.is_empty() {
            "<none>".to_owned()
        } else {
            addresses.iter().cloned().collect::<Vec<_>>().join(",")
        }
    };
    // As kubectl shows it.
    let is_headless = service.not_served == Some(NotServed::Headless);
    let cluster_ips = if is_headless {
        "None".to_owned()
    } else {
        joined(&service.cluster_ips)
    };
    let ports = service.ports.iter().map(|port| match port.node_port {
        Some(node_port) => format!("{}:{node_port}/{}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    });
    vec![
        Cell::from(&*service.id.name),
        service.service_type.into(),
        cluster_ips.into(),
        joined(&service.external_ips).into(),
        ports.collect::<Vec<_>>().join(",").into(),
        backends(service),
    ]
}

/// The addresses of matching backends, each once for all its ports.
fn addresses(
    service: &ServiceView,
    is_selected: impl Fn(&BackendView) -> bool,
) -> BTreeSet<IpAddr> {
    let backends = service.ports.iter().flat_map(|port| &port.backends);
    backends
        .filter(|backend| is_selected(backend))
        .map(|backend| backend.address)
        .collect()
}

fn backends(service: &ServiceView) -> Cell {
    if service.not_served.is_some() {
        return "<none>".into();
    }
    let is_usable = |backend: &BackendView| service.is_in_family_of(backend.address);
    let all = addresses(service, is_usable);
    let ready = addresses(service, |backend| {
        is_usable(backend) && backend.state == BackendState::Ready
    });
    let failing = addresses(service, |backend| {
        is_usable(backend) && backend.state == BackendState::Failing
    });
    let failing = failing.difference(&ready).count();
    let others = addresses(service, |backend| !is_usable(backend));
    let is_served = |port: &PortView| port.backends.iter().any(is_usable);
    let mut text = match (ready.len(), all.len() - ready.len() - failing) {
        (0, 0) if all.is_empty() && !others.is_empty() => {
            format!("0 ({} of the other family)", others.len())
        }
        (ready, 0) => ready.to_string(),
        // Terminating ones that are ready at no port.
        (ready, terminating) => format!("{ready}+{terminating}"),
    };
    if failing > 0 {
        text = format!("{text} ({failing} failing)");
    }
    let style = match (ready.is_empty(), service.ports.iter().all(is_served)) {
        (true, _) => TextStyle::Bad,
        (false, true) if failing == 0 => TextStyle::Plain,
        // A port without backends, or a backend that does not answer.
        (false, _) => TextStyle::Warning,
    };
    Cell::styled(text, style)
}

/// How long a client stays with its backend.
pub(super) fn affinity(service: &ServiceView) -> String {
    match service.session_affinity_timeout {
        0 => "none".to_owned(),
        seconds => format!("{seconds}s"),
    }
}

fn wide_cells(service: &ServiceView) -> Vec<Cell> {
    let local = addresses(service, |backend| {
        backend.local && service.is_in_family_of(backend.address)
    })
    .len();
    vec![
        local.to_string().into(),
        service.external_policy.clone().into(),
        service.internal_policy.clone().into(),
        service.balance.clone().into(),
        affinity(service).into(),
    ]
}

/// Frontends that it asks for and another service holds.
fn lost(service: &ServiceView) -> Cell {
    let lost = service
        .lost
        .iter()
        .map(|(frontend, holder)| format!("{frontend} to {holder}"));
    Cell::styled(lost.collect::<Vec<_>>().join(","), TextStyle::Warning)
}

/// Why it is not served.
fn not_served(service: &ServiceView) -> Cell {
    match &service.not_served {
        Some(reason @ NotServed::NoAddress) => Cell::styled(reason.summary(), TextStyle::Warning),
        Some(reason) => reason.summary().into(),
        None => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(cluster_ips: &[&str], ports: &[&[(&str, &str)]]) -> ServiceView {
        let backend = |(address, state): &(&str, &str)| json!({"address": address, "port": 8080, "state": state, "local": true});
        let port = |backends: &&[(&str, &str)]| {
            let backends: Vec<Value> = backends.iter().map(backend).collect();
            json!({"port": 80, "protocol": "TCP", "backends": backends})
        };
        let ports: Vec<Value> = ports.iter().map(port).collect();
        serde_json::from_value(
            json!({"id": "default/web", "cluster_ips": cluster_ips, "ports": ports}),
        )
        .unwrap()
    }

    #[test]
    fn backends_count_once_for_all_their_ports() {
        let (one, other) = (("10.1.0.1", "Ready"), ("10.1.0.2", "Ready"));
        let ending = |(address, _): (&'static str, &str)| (address, "Terminating");
        for (ports, expected, style) in [
            (&[&[one][..], &[one]][..], "1", TextStyle::Plain),
            (&[&[one, other], &[one]], "2", TextStyle::Plain),
            (
                &[&[one, ending(other)], &[one, ending(other)]],
                "1+1",
                TextStyle::Plain,
            ),
            (&[&[ending(one)], &[one]], "1", TextStyle::Plain),
            (&[&[one], &[]], "1", TextStyle::Warning),
            (&[&[]], "0", TextStyle::Bad),
        ] {
            let service = service(&["10.96.0.1"], ports);
            assert_eq!(
                backends(&service),
                Cell::styled(expected.to_owned(), style),
                "{ports:?}"
            );
        }
        let service = service(&["10.96.0.1"], &[&[one], &[one]]);
        assert_eq!(wide_cells(&service)[0], Cell::from("1"));
    }

    #[test]
    fn backends_of_another_family_do_not_count() {
        let ports: &[&[(&str, &str)]] = &[&[("10.1.0.1", "Ready"), ("10.1.0.2", "Ready")]];
        for (cluster_ips, expected, style) in [
            (
                &["fd00::1"][..],
                "0 (2 of the other family)",
                TextStyle::Bad,
            ),
            (&["10.96.0.1", "fd00::1"], "2", TextStyle::Plain),
        ] {
            assert_eq!(
                backends(&service(cluster_ips, ports)),
                Cell::styled(expected.to_owned(), style)
            );
        }
        for (external_ip, node_port, expected) in [
            ("fd00::1", None, "0 (2 of the other family)"),
            ("192.0.2.1", None, "2"),
            ("fd00::1", Some(30080), "2"),
        ] {
            let mut service = service(&[], ports);
            service.external_ips.insert(external_ip.to_owned());
            service.ports[0].node_port = node_port;
            assert_eq!(
                backends(&service).text(),
                expected,
                "{external_ip} {node_port:?}"
            );
        }
    }
}
