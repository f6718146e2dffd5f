//! Descriptions of services for people. Pure.

use std::fmt::Write;

use contiv_model::BackendState;

use super::state::{Description, Place};
use crate::cli::{
    commands::{events, list_query::ListEntry, refused::RefusedView, services},
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        table::{Cell, Table, printable},
        table_options::TableOptions,
    },
    source::views::{QuarantinedView, ServiceView},
};

/// The width of titles.
const TITLE_WIDTH: usize = 26;
/// What tables and lists are indented by.
const INDENT: &str = "  ";

/// The text, with tables within this width, and an empty line between services. Of several agents each has its node.
pub(super) fn render(
    descriptions: &[(Option<String>, Description)],
    width: Option<usize>,
) -> String {
    let texts = descriptions
        .iter()
        .map(|(node, one)| describe(node.as_deref(), one, width));
    texts.collect::<Vec<_>>().join("\n")
}

fn describe(node: Option<&str>, description: &Description, width: Option<usize>) -> String {
    let mut text = String::new();
    if let Some(node) = node {
        line(&mut text, "Node", node);
    }
    let inner_width = width.map(|width| width.saturating_sub(INDENT.len()));
    line(&mut text, "Name", &description.id.name);
    line(&mut text, "Namespace", &description.id.namespace);
    if let Some((stored, _)) = &description.stored {
        let labels = stored
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        line(&mut text, "Labels", &list(labels));
        line(&mut text, "Type", stored.type_name());
    }
    let (served, style) = served(description);
    styled_line(&mut text, "Served", &served, style);
    if let Some((service, _)) = &description.service {
        settings(service, &mut text);
    }
    if let Some((stored, _)) = &description.stored {
        if !stored.source_ranges.is_empty() {
            line(
                &mut text,
                "Source ranges",
                &list(stored.source_ranges.iter().cloned()),
            );
        }
        if let Some(port) = stored.health_check_node_port {
            line(&mut text, "Health check node port", &port.to_string());
        }
    }
    line(&mut text, "Connections", &connections(description));
    block(&mut text, "Backends", &backends(description, inner_width));
    block(&mut text, "Refused", &refused(description, inner_width));
    let warnings = description
        .warnings
        .iter()
        .map(|(warning, _)| printable(format!("{}: {}", warning.subject(), warning.reason)) + "\n");
    block(&mut text, "Warnings", &warnings.collect::<String>());
    let certain = description.quarantine.iter();
    let by_name = description.quarantine_by_name.iter();
    let quarantine = certain
        .map(|(entry, _)| quarantined(entry, ""))
        .chain(by_name.map(|(entry, _)| quarantined(entry, ", its own by the name")));
    block(&mut text, "Quarantine", &quarantine.collect::<String>());
    let events = if description.events.is_empty() {
        String::new()
    } else {
        print(events::list(description.events.clone()), inner_width)
    };
    block(&mut text, "Events", &events);
    text
}

fn line(text: &mut String, title: &str, value: &str) {
    styled_line(text, title, value, TextStyle::Plain);
}

fn styled_line(text: &mut String, title: &str, value: &str, style: TextStyle) {
    let title = format!("{title}:");
    let value = style.paint(printable(value.to_owned()));
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{title:<TITLE_WIDTH$}{value}");
}

/// Indented lines under a title.
fn block(text: &mut String, title: &str, lines: &str) {
    if lines.is_empty() {
        line(text, title, "<none>");
        return;
    }
    let _ = writeln!(text, "{title}:");
    for line in lines.lines() {
        let _ = writeln!(text, "{INDENT}{line}");
    }
}

fn list(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "<none>".to_owned()
    } else {
        parts.join(",")
    }
}

/// Whether it is served, and if not why.
fn served(description: &Description) -> (String, TextStyle) {
    let Some((service, _)) = &description.service else {
        let why = if description.quarantine.is_empty() {
            "no: no renderer has it yet"
        } else {
            "no: it is in quarantine"
        };
        return (why.to_owned(), TextStyle::Bad);
    };
    if let Some(reason) = &service.not_served {
        return (format!("no: {reason}"), TextStyle::Warning);
    }
    let by = service.assignment.as_ref();
    let by = by.map_or_else(String::new, |by| format!(", by {}", by.addresses));
    let mut backends = service.ports.iter().flat_map(|port| &port.backends);
    let is_usable = backends.any(|backend| {
        backend.state == BackendState::Ready && service.is_in_family_of(backend.address)
    });
    if is_usable {
        (format!("yes{by}"), TextStyle::Good)
    } else {
        (format!("yes{by}, but no backend is ready"), TextStyle::Bad)
    }
}

/// Addresses, ports and policies.
fn settings(service: &ServiceView, text: &mut String) {
    line(
        text,
        "Cluster IPs",
        &list(service.cluster_ips.iter().cloned()),
    );
    line(
        text,
        "External IPs",
        &list(service.external_ips.iter().cloned()),
    );
    let ports = service.ports.iter().map(|port| {
        let node_port = port
            .node_port
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        let name = match port.name.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        format!("{}{node_port}/{}{name}", port.port, port.protocol)
    });
    line(text, "Ports", &list(ports));
    for (title, value) in [
        ("External traffic policy", &service.external_policy),
        ("Internal traffic policy", &service.internal_policy),
        ("Balance", &service.balance),
    ] {
        // What is not served has none.
        if !value.is_empty() {
            line(text, title, value);
        }
    }
    if service.not_served.is_none() {
        line(text, "Session affinity", &services::affinity(service));
    }
    if !service.lost.is_empty() {
        let lost = service.lost.iter();
        let lost = lost.map(|(frontend, holder)| format!("{frontend} to {holder}"));
        styled_line(text, "Lost addresses", &list(lost), TextStyle::Warning);
    }
}

fn connections(description: &Description) -> String {
    let counted = match &description.connections {
        Err(reason) => return format!("unknown: {reason}"),
        Ok(None) => return "none so far".to_owned(),
        Ok(Some(counted)) => counted,
    };
    let reasons = counted.refused_by.iter();
    let reasons: Vec<String> = reasons
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };
    format!(
        "{} served, {} refused{reasons}",
        counted.connections, counted.refused
    )
}

fn backends(description: &Description, width: Option<usize>) -> String {
    if description.backends.is_empty() && description.unused.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "PORT", "BACKEND", "STATE", "LOCAL", "WEIGHT", "NODE", "ZONE",
    ]);
    let place = |Place { node, zone, .. }: &Place| {
        [node, zone].map(|name| Cell::from(name.as_deref().unwrap_or("-")))
    };
    for (Item { cells, .. }, at) in &description.backends {
        // The first cell is the service; another says whether the backend is in the topology of this node's clients.
        let mut row = cells.0[1..].to_vec();
        if cells.1.first().is_some_and(|cell| cell.text() == "no") {
            let state = format!("{}, not in topology", row[2].text());
            row[2] = Cell::styled(state, TextStyle::Warning);
        }
        row.extend(place(at));
        table.push(row);
    }
    for (address, reason, at) in &description.unused {
        let mut row = vec![
            "-".into(),
            Cell::from(address.to_string()),
            Cell::styled(*reason, TextStyle::Warning),
            "-".into(),
            "-".into(),
        ];
        row.extend(place(at));
        table.push(row);
    }
    table.within(width).to_string()
}

fn refused(description: &Description, width: Option<usize>) -> String {
    if description.refused.is_empty() {
        return String::new();
    }
    let mut table = Table::new(RefusedView::TITLES);
    for (refused, _) in &description.refused {
        table.push(refused.cells());
    }
    table.within(width).to_string()
}

/// A line; `note` says more of the object.
fn quarantined(entry: &QuarantinedView, note: &str) -> String {
    let active = entry.active_state.as_deref().unwrap_or("unknown");
    let meanwhile = printable(format!(" (in use: {active}{note})"));
    let object = printable(entry.object.as_ref().unwrap_or(&entry.source).clone());
    let problem = printable(entry.problem());
    // The error of a whole value names it too.
    if problem.starts_with(object.as_str()) {
        return format!("{problem}{meanwhile}\n");
    }
    format!("{object}: {problem}{meanwhile}\n")
}

fn print(listing: Listing, width: Option<usize>) -> String {
    let printed = listing.print(&Output::Table, &TableOptions::default(), width, false);
    printed.unwrap_or_else(|error| format!("{error}\n"))
}
