//! The parts of the page.

use std::collections::BTreeMap;

use contiv_model::{BackendState, ContivService, NotServed, ServiceId, UnservedService};
use contiv_node::plural::counted;
use contiv_node::{Outcome, Quarantined, Record, RendererView, Warning};
use contiv_renderer::nftables::counters::RefusalReason;
use jiff::tz::TimeZone;

use super::{
    Content, Page, escape,
    html::{Cell, Raw, colored},
};
use crate::{counters::ServiceConnections, health::AgentHealth, http::ENDPOINTS};

/// How many services are shown; all are available as JSON.
const MAX_SERVICES: usize = 200;
/// How many events are shown.
const MAX_EVENTS: usize = 30;

type Row = Vec<Box<dyn Cell>>;

pub(super) fn state(content: &Content, page: &mut Page) {
    let Content { status, sizes, .. } = content;
    let store = match &status.store_down {
        Some(down) => colored(
            &format!("down since {}: {}", down.since, down.reason),
            "bad",
        ),
        None if status.from_mirror => colored("not read yet; the saved state is in use", "warn"),
        None if status.synced => {
            colored(&format!("in sync at revision {}", status.revision), "good")
        }
        None => colored("not read yet", "warn"),
    };
    let health = content.health();
    let health = colored(
        health.text(),
        match health {
            AgentHealth::Healthy => "good",
            AgentHealth::NeedsAttention => "warn",
            AgentHealth::NotReady => "bad",
        },
    );
    let quarantined = match status.quarantined {
        0 => colored("0", "good"),
        count => colored(&count.to_string(), "warn"),
    };
    let mut rows: Vec<Row> = vec![
        vec![Box::new("state"), Box::new(health)],
        vec![
            Box::new("store"),
            Box::new(Raw(format!("{}: {}", escape(&status.store), store.0))),
        ],
        vec![
            Box::new("holds"),
            Box::new(format!(
                "{}, {}, {}",
                counted(sizes.services, "service"),
                counted(sizes.service_ports, "port"),
                counted(sizes.backends, "backend")
            )),
        ],
        vec![
            Box::new("without a backend"),
            Box::new(warning_if_any(sizes.services_without_backends, "service")),
        ],
        vec![
            Box::new("claiming a frontend of another"),
            Box::new(warning_if_any(
                sizes.services_with_lost_frontends,
                "service",
            )),
        ],
        vec![Box::new("in quarantine"), Box::new(quarantined)],
        vec![
            Box::new("version"),
            Box::new(format!("{}, since {:.0}", status.version, status.started)),
        ],
    ];
    if let Some(refused) = content.refused() {
        let refused = usize::try_from(refused).unwrap_or(usize::MAX);
        rows.insert(
            3,
            vec![
                Box::new("refused"),
                Box::new(warning_if_any(refused, "attempt")),
            ],
        );
    }
    let forwarding = content.forwarding_off.iter();
    rows.extend(forwarding.map(|off| -> Row {
        vec![
            Box::new("forwarding"),
            Box::new(colored(&off.to_string(), "warn")),
        ]
    }));
    let tables = content.table_problems.iter();
    rows.extend(tables.map(|problem| -> Row {
        vec![
            Box::new(problem.table.name()),
            Box::new(colored(&problem.to_string(), "warn")),
        ]
    }));
    let failover = content
        .failover()
        .into_iter()
        .flat_map(|failover| [failover.problem(), failover.summary()]);
    rows.extend(
        failover
            .flatten()
            .map(|text| -> Row { vec![Box::new("failover"), Box::new(colored(&text, "warn"))] }),
    );
    if content.drift() > 0 {
        let drift = counted(content.drift(), "element");
        let drift = colored(
            &format!("{drift} in the kernel differ: see `contiv verify`"),
            "warn",
        );
        rows.push(vec![Box::new("drift"), Box::new(drift)]);
    }
    if let Some(problem) = &status.node_problem {
        rows.push(vec![
            Box::new("name of the node"),
            Box::new(colored(problem, "warn")),
        ]);
    }
    if status.held_deletions.is_some() {
        rows.push(vec![
            Box::new("deletions"),
            Box::new(colored("held: too many at once; see /status", "bad")),
        ]);
    }
    page.table(&[], &rows);
}

/// The number, as a warning unless it is 0.
fn warning_if_any(count: usize, noun: &str) -> Raw {
    colored(&counted(count, noun), if count == 0 { "" } else { "warn" })
}

pub(super) fn renderers(renderers: &[RendererView], page: &mut Page) {
    page.heading("Renderers");
    let rows: Vec<Row> = renderers.iter().map(renderer).collect();
    page.table(
        &[
            "name",
            "state",
            "revision",
            "waiting",
            "last call",
            "last error",
        ],
        &rows,
    );
}

fn renderer(renderer: &RendererView) -> Row {
    let class = match renderer.state {
        "idle" | "busy" => "good",
        "retrying" | "slow" => "bad",
        _ => "warn",
    };
    let call = renderer.last_report.as_ref();
    let call = call
        .map(|last| format!("{}, {:.1}\u{a0}ms", last.call, last.duration_ms))
        .unwrap_or_default();
    let error = renderer
        .last_error
        .as_ref()
        .map(|last| format!("{:.0}: {}", last.at, last.error));
    let waiting = match renderer.pending {
        "changes" => counted(renderer.pending_services, "service"),
        other => other.to_owned(),
    };
    vec![
        Box::new(renderer.name.to_string()),
        Box::new(colored(renderer.state, class)),
        Box::new(renderer.applied_revision),
        Box::new(waiting),
        Box::new(call),
        Box::new(error.unwrap_or_default()),
    ]
}

/// The first rows, and how many there are.
pub(super) fn quarantine(quarantine: &[Quarantined], count: usize, page: &mut Page) {
    page.heading("Quarantine");
    if quarantine.is_empty() {
        return page.paragraph("Nothing: all that is stored can be used.");
    }
    let row = |entry: &Quarantined| -> Row {
        vec![
            Box::new(entry.object.clone().unwrap_or_else(|| entry.source.clone())),
            Box::new(colored(&problem_text(entry), "warn")),
            Box::new(entry.source.clone()),
            Box::new(entry.active_state.unwrap_or("not known")),
            Box::new(colored(&format!("{:.0}", entry.since), "time")),
        ]
    };
    page.table(
        &["object", "reason", "where", "in use", "since"],
        &quarantine.iter().map(row).collect::<Vec<_>>(),
    );
    more(quarantine.len(), count, "/quarantine", page);
}

/// The first rows, and how many there are. Nothing without a warning.
pub(super) fn warnings(warnings: &[Warning], count: usize, page: &mut Page) {
    if warnings.is_empty() {
        return;
    }
    page.heading("Warnings");
    let row = |warning: &Warning| -> Row {
        let Warning {
            source,
            object,
            field,
            reason,
            since,
        } = warning;
        let text = field
            .iter()
            .chain([reason])
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(": ");
        vec![
            Box::new(object.as_ref().unwrap_or(source).clone()),
            Box::new(colored(&text, "warn")),
            Box::new(source.clone()),
            Box::new(colored(&format!("{since:.0}"), "time")),
        ]
    };
    page.table(
        &["object", "warning", "where", "since"],
        &warnings.iter().map(row).collect::<Vec<_>>(),
    );
    more(warnings.len(), count, "/warnings", page);
}

/// How many entries are not shown, and where they are.
fn more(shown: usize, count: usize, path: &str, page: &mut Page) {
    if count > shown {
        page.paragraph(&format!("And {} more: {path}?skip={shown}", count - shown));
    }
}

pub(super) fn services(content: &Content, page: &mut Page) {
    page.heading("Services");
    if content.services.is_empty() {
        return page.paragraph("None. Is there something in the store?");
    }
    let attempts: BTreeMap<&ServiceId, &ServiceConnections> = content
        .connections
        .iter()
        .flatten()
        .map(|of| (&of.service, of))
        .collect();
    let counts = content.connections.is_some();
    let mut header = vec!["service", "backends", "addresses", "ports"];
    if counts {
        header.splice(2..2, ["served", "refused"]);
    }
    let row = |service: &std::sync::Arc<ContivService>| -> Row {
        let id = escape(&service.id.to_string());
        let mut row: Row = vec![
            Box::new(Raw(format!("<a href=\"/services/{id}\">{id}</a>"))),
            Box::new(backends(service)),
            Box::new(joined(
                service.cluster_ips.iter().chain(&service.external_ips),
            )),
            Box::new(joined(service.ports.iter().map(
                |port| match port.node_port {
                    Some(node_port) => format!("{}:{node_port}/{}", port.port, port.protocol),
                    None => format!("{}/{}", port.port, port.protocol),
                },
            ))),
        ];
        if counts {
            let of = attempts.get(&service.id);
            let class = if of.is_none_or(|of| of.refused == 0) {
                ""
            } else {
                "warn"
            };
            let refused = of.map_or_else(|| "0".to_owned(), |of| refused(&of.refused_by));
            row.insert(2, Box::new(of.map_or(0, |of| of.connections)));
            row.insert(3, Box::new(colored(&refused, class)));
        }
        row
    };
    let shown: Vec<Row> = content
        .services
        .iter()
        .take(MAX_SERVICES)
        .map(row)
        .collect();
    page.table(&header, &shown);
    let more = content.services.len().saturating_sub(MAX_SERVICES);
    if more > 0 {
        page.paragraph(&format!(
            "And {more} more: /services, or `contiv services -A`."
        ));
    }
}

/// The stored services that are not served: first those without an address, and folded those that no proxy should serve.
pub(super) fn unserved(unserved: &[UnservedService], page: &mut Page) {
    if unserved.is_empty() {
        return;
    }
    page.heading("Not served");
    let (without_address, by_design): (Vec<_>, Vec<_>) = unserved
        .iter()
        .partition(|service| service.not_served == NotServed::NoAddress);
    let table = |services: &[&UnservedService], page: &mut Page| {
        let row = |service: &&UnservedService| -> Row {
            vec![
                Box::new(service.id.to_string()),
                Box::new(service.not_served.to_string()),
            ]
        };
        let rows: Vec<Row> = services.iter().take(MAX_SERVICES).map(row).collect();
        page.table(&["service", "why"], &rows);
        let more = services.len().saturating_sub(MAX_SERVICES);
        if more > 0 {
            page.paragraph(&format!(
                "And {more} more: /services?all=true, or `contiv services -A --all`."
            ));
        }
    };
    if !without_address.is_empty() {
        table(&without_address, page);
    }
    if !by_design.is_empty() {
        let summary = format!(
            "headless, aliases, or left to another proxy: {}",
            by_design.len()
        );
        page.raw(&format!("<details><summary>{summary}</summary>\n"));
        table(&by_design, page);
        page.raw("</details>\n");
    }
}

/// How many attempts to connect were refused, by reason.
fn refused(by_reason: &BTreeMap<RefusalReason, u64>) -> String {
    let reasons = by_reason
        .iter()
        .map(|(reason, count)| format!("{count} {}", reason.name()));
    if by_reason.is_empty() {
        "0".to_owned()
    } else {
        reasons.collect::<Vec<_>>().join(", ")
    }
}

/// The number of backends, and a list of them.
fn backends(service: &ContivService) -> Raw {
    let backends: Vec<_> = service
        .ports
        .iter()
        .flat_map(|port| &port.backends)
        .collect();
    if backends.is_empty() {
        return colored("none", "bad");
    }
    let line = |backend: &&contiv_model::Backend| {
        let state = match backend.state {
            BackendState::Ready => "",
            BackendState::Terminating => ", terminating",
            BackendState::Failing => ", failing",
        };
        let place = if backend.local { ", on this node" } else { "" };
        format!("{}{place}{state}", backend.endpoint())
    };
    let lines = backends
        .iter()
        .map(|backend| escape(&line(backend)))
        .collect::<Vec<_>>()
        .join("<br>");
    Raw(format!(
        "<details><summary>{}</summary>{lines}</details>",
        backends.len()
    ))
}

/// The field, and its problem.
fn problem_text(entry: &Quarantined) -> String {
    entry
        .field
        .iter()
        .chain([&entry.reason])
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(": ")
}

pub(super) fn trace_form(page: &mut Page) {
    page.heading("Why does a connection fail? Where does it go?");
    page.raw(
        "<form action=\"/why\" method=\"get\"><input type=\"hidden\" name=\"format\" value=\"text\">\
         <label>from<input name=\"from\" placeholder=\"10.244.1.5\" required></label>\
         <label>to<input name=\"to\" placeholder=\"10.96.0.10\" required></label>\
         <label>port<input name=\"port\" type=\"number\" min=\"1\" max=\"65535\" value=\"80\" required></label>\
         <label>protocol<select name=\"protocol\"><option>tcp<option>udp<option>sctp</select></label>\
         <button>why</button><button formaction=\"/trace\">trace</button></form>\n",
    );
}

pub(super) fn events(history: &[Record], page: &mut Page) {
    page.heading("What happened");
    let row = |record: &Record| -> Row {
        vec![
            Box::new(record.seq_num),
            Box::new(colored(
                &record
                    .start
                    .to_zoned(TimeZone::system())
                    .strftime("%F %T%.3f")
                    .to_string(),
                "time",
            )),
            Box::new(record.kind),
            Box::new(format!("{:.2}\u{a0}ms", record.duration_ms)),
            Box::new(if record.changed == 0 {
                String::new()
            } else {
                record.changed.to_string()
            }),
            Box::new(outcomes(record)),
            Box::new(record.description.clone()),
        ]
    };
    let rows: Vec<Row> = history.iter().rev().take(MAX_EVENTS).map(row).collect();
    page.table(
        &[
            "event",
            "time",
            "kind",
            "took",
            "changed",
            "renderers",
            "what",
        ],
        &rows,
    );
}

fn outcomes(record: &Record) -> Raw {
    let outcome = |(name, outcome): (&std::sync::Arc<str>, &Outcome)| {
        let (text, class) = match outcome {
            Outcome::Pending => ("pending".to_owned(), "warn"),
            Outcome::Applied {
                sent_after_ms: Some(after),
                ..
            } => (format!("+{after:.2}\u{a0}ms"), "good"),
            Outcome::Applied { duration_ms, .. } => (format!("{duration_ms:.2}\u{a0}ms"), "good"),
            Outcome::Failed { error, .. } => (format!("failed: {error}"), "bad"),
        };
        // Short results stay on one line.
        let between = if matches!(outcome, Outcome::Failed { .. }) {
            ' '
        } else {
            '\u{a0}'
        };
        colored(&format!("{name}{between}{text}"), class).0
    };
    Raw(record
        .renderers
        .iter()
        .map(outcome)
        .collect::<Vec<_>>()
        .join("<br>"))
}

pub(super) fn endpoints(page: &mut Page) {
    page.heading("Where to look");
    let row = |(method, path, purpose): &(&str, &str, &'static str)| -> Row {
        // A link only if no parameter has to be filled in.
        let path = if *method == "GET" && !path.contains('{') && !["/trace", "/why"].contains(path)
        {
            format!("<a href=\"{path}\"><code>{path}</code></a>")
        } else {
            format!("<code>{method} {path}</code>")
        };
        vec![Box::new(Raw(path)), Box::new(*purpose)]
    };
    page.table(&[], &ENDPOINTS.iter().map(row).collect::<Vec<_>>());
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
