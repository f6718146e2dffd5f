//! `contiv verify --against kube-proxy`

mod compare;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use contiv_model::ServiceId;
use contiv_renderer::packet_path::KubeProxy;
use serde::Serialize;
use serde_json::Value;

use self::compare::{Comparison, Difference, compare};
use super::desired::{DesiredStateSource, VerifyTarget};
use crate::cli::{
    Outcome, Terminal,
    commands::compared_flows::{Place, Unknown, clients_text, destination_text, end_text},
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        progress::Progress,
        table::Cell,
        table_options::TableOptions,
        watch::width,
    },
};

/// kube-proxy writes its rules at most once in its minimum period, a second by default.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(1200);
/// The same difference of more services than these is one line of the table.
const NAMED_SERVICES: usize = 10;

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Report {
    /// The mode of kube-proxy.
    mode: &'static str,
    /// The number of contiv's services.
    services: usize,
    /// How long it took to read the rules and to compare them, twice where they differ.
    seconds: f64,
    #[serde(flatten)]
    comparison: Comparison,
}

/// Compares the source's services with kube-proxy's rules on this node.
pub(super) fn run(
    target: &VerifyTarget,
    output: &Output,
    options: &TableOptions,
    terminal: &mut Terminal,
) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let read = |earlier| {
        let progress = Progress::with_words("sets read");
        KubeProxy::read(earlier, &|done, total| progress.set(done, total))
            .context("verify --against kube-proxy")
    };
    // Without rules nothing else needs to be asked.
    let first = read(None)?;
    if !first.unread_tables().is_empty() {
        writeln!(
            terminal.err,
            "The tables {} of iptables-legacy cannot be read (iptables-legacy-save is missing): rules there are not compared.",
            first.unread_tables()
        )?;
    }
    let (source, is_good) = target.open(terminal)?;
    let Some(mut source) = source else {
        return Ok(Outcome::PartialFailure);
    };
    let mut report = compare_once(&first, &mut source, None)?;
    if !report.comparison.is_equal() {
        thread::sleep(CONFIRMATION_INTERVAL);
        let places = report.comparison.places();
        let second = compare_once(&read(Some(&first))?, &mut source, Some(&places))?;
        report.comparison = report.comparison.confirmed_by(second.comparison);
    }
    report.seconds = started.elapsed().as_secs_f64();
    let is_equal = report.comparison.is_equal();
    print(report, output, options, terminal)?;
    Ok(Outcome::success_if(is_good && is_equal))
}

fn compare_once(
    proxy: &KubeProxy,
    source: &mut impl DesiredStateSource,
    places: Option<&BTreeSet<Place>>,
) -> anyhow::Result<Report> {
    let snapshot = source.snapshot()?;
    let comparison = compare(&snapshot, proxy, places);
    Ok(Report {
        mode: proxy.mode(),
        services: snapshot.services.len(),
        seconds: 0.0,
        comparison,
    })
}

fn print(
    report: Report,
    output: &Output,
    options: &TableOptions,
    terminal: &mut Terminal,
) -> anyhow::Result<()> {
    match output {
        Output::Data(format) => {
            let text = format.print(serde_json::to_value(report)?, options.no_headers)?;
            write!(terminal.out, "{text}")?;
        }
        Output::Name => {
            let differences = report.comparison.differences.iter();
            let of_unknown = report.comparison.unknown.iter();
            let services: BTreeSet<&ServiceId> = differences
                .filter_map(|difference| difference.service.as_ref())
                .chain(of_unknown.filter_map(|unknown| unknown.service.as_ref()))
                .collect();
            for service in services {
                writeln!(terminal.out, "{service}")?;
            }
        }
        Output::Table | Output::Wide => print_table(&report, output, options, terminal)?,
    }
    Ok(())
}

fn print_table(
    report: &Report,
    output: &Output,
    options: &TableOptions,
    terminal: &mut Terminal,
) -> anyhow::Result<()> {
    let comparison = &report.comparison;
    let is_wide = *output == Output::Wide;
    let mut items = if is_wide {
        let all = comparison.differences.iter().chain(&comparison.intended);
        all.map(|difference| item(&[difference])).collect()
    } else {
        groups(&comparison.differences)
    };
    let mut by_reason: BTreeMap<&str, Vec<&Unknown>> = BTreeMap::new();
    for unknown in &comparison.unknown {
        let same = by_reason.entry(&unknown.reason).or_default();
        same.push(unknown);
    }
    items.extend(by_reason.values().filter_map(|same| unknown_item(same)));
    let listing = Listing {
        header: (
            ["SERVICE", "TO", "FROM", "DIFFERENCE"].to_vec(),
            ["KUBE-PROXY", "CONTIV", "INTENDED"].to_vec(),
        ),
        items,
    };
    let text = listing.print(output, options, width(), false)?;
    write!(terminal.out, "{text}")?;
    let count = |count: usize, one: &str, several: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    };
    let mut result = Vec::new();
    if !comparison.differences.is_empty() {
        result.push(format!("{} different", comparison.differences.len()));
    }
    if !comparison.unknown.is_empty() {
        result.push(format!("{} cannot be compared", comparison.unknown.len()));
    }
    if result.is_empty() {
        result.push("all equal".to_owned());
    }
    if !comparison.intended.is_empty() {
        result.push(format!("{} intended", comparison.intended.len()));
    }
    writeln!(
        terminal.out,
        "kube-proxy ({}): {} of {} compared by {} in {:.1} s: {}",
        report.mode,
        count(comparison.frontends, "frontend", "frontends"),
        count(report.services, "service", "services"),
        count(comparison.connections, "connection", "connections"),
        report.seconds,
        result.join(", ")
    )?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for difference in &comparison.intended {
        *reasons.entry(&difference.reason).or_default() += 1;
    }
    for (reason, count) in reasons {
        writeln!(terminal.out, "intended: {count} ({reason})")?;
    }
    let is_same = comparison.differences.is_empty() && comparison.intended.is_empty();
    if !is_wide && !is_same {
        writeln!(terminal.err, "-o wide shows both sides of each.")?;
    }
    Ok(())
}

/// The lines of the table: a line for all connections of a service with the same difference, and for many services with the same.
fn groups(differences: &BTreeSet<Difference>) -> Vec<Item> {
    let mut by_difference: BTreeMap<_, BTreeMap<_, Vec<&Difference>>> = BTreeMap::new();
    for difference in differences {
        let services = by_difference.entry(&difference.summary).or_default();
        services
            .entry(&difference.service)
            .or_default()
            .push(difference);
    }
    let mut groups: Vec<Vec<&Difference>> = Vec::new();
    for services in by_difference.into_values() {
        if services.len() > NAMED_SERVICES {
            groups.push(services.into_values().flatten().collect());
        } else {
            groups.extend(services.into_values());
        }
    }
    groups.sort();
    groups.iter().map(|group| item(group)).collect()
}

fn service_text(service: Option<&ServiceId>) -> String {
    service.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// A line for differences that are described alike.
fn item(group: &[&Difference]) -> Item {
    let Some(first) = group.first() else {
        return Item {
            name: String::new(),
            value: Value::Null,
            cells: (Vec::new(), Vec::new()),
        };
    };
    let services: BTreeSet<_> = group.iter().map(|difference| &difference.service).collect();
    let service = match services.len() {
        1 => service_text(first.service.as_ref()),
        count => format!("{count} services"),
    };
    let mut to = destination_text(&first.frontend, first.to);
    if group.len() > 1 {
        let all: BTreeSet<_> = group.iter().map(|one| (one.frontend, one.to)).collect();
        if all.len() > 1 {
            to = format!("{to} and {} more", all.len() - 1);
        }
    }
    let style = if first.reason.is_empty() {
        TextStyle::Bad
    } else {
        TextStyle::Plain
    };
    let ends: Vec<String> = first.kube_proxy.iter().map(end_text).collect();
    let or_none = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    Item {
        name: service.clone(),
        value: Value::Null,
        cells: (
            vec![
                service.into(),
                to.into(),
                clients_text(group.iter().flat_map(|one| one.clients.clone())).into(),
                Cell::styled(first.summary.clone(), style),
            ],
            vec![
                ends.join(" or ").into(),
                end_text(&first.contiv).into(),
                or_none(&first.reason).into(),
            ],
        ),
    }
}

/// A line for what cannot be compared for the same reason.
fn unknown_item(same: &[&Unknown]) -> Option<Item> {
    let (unknown, more) = same.split_first()?;
    let mut to = destination_text(&unknown.frontend, unknown.to);
    if !more.is_empty() {
        to = format!("{to} and {} more", more.len());
    }
    let service = service_text(unknown.service.as_ref());
    Some(Item {
        name: service.clone(),
        value: Value::Null,
        cells: (
            vec![
                service.into(),
                to.into(),
                "-".into(),
                Cell::styled(
                    format!("cannot be compared: {}", unknown.reason),
                    TextStyle::Warning,
                ),
            ],
            vec!["-".into(), "-".into(), "-".into()],
        ),
    })
}
