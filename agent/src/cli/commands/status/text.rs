//! The overview on one screen: 80 columns and 24 lines, or less.

use std::fmt::Write;

use contiv_model::ServiceId;
use contiv_node::{FailoverStatus, plural::counted};
use jiff::Timestamp;

use super::overview::{Overview, TOP_SERVICES};
use crate::{
    cli::{
        commands::events::milliseconds,
        output::{
            color::TextStyle,
            table::{Cell, Table, printable},
        },
        source::{
            latency::Latency,
            views::{LostFrontendView, QuarantinedView, RendererStateView, SizesView, StatusView},
        },
    },
    health::{AgentHealth, RendererFacts, ago},
};

/// How many problems and warnings are shown.
struct Limits {
    problems: usize,
    warnings: usize,
    /// What shows those that are left out.
    others: &'static str,
}

/// On one screen; fewer warnings where there is no room.
const SCREEN: Limits = Limits {
    problems: 3,
    warnings: 2,
    others: ": `contiv status -o wide`",
};
/// Where nothing is cut.
const ALL: Limits = Limits {
    problems: usize::MAX,
    warnings: usize::MAX,
    others: ", which the agent does not list",
};
/// The lines around the warnings: one before, the title, and one about the others.
const AROUND_WARNINGS: usize = 3;
/// Lines around the rows of the busiest services: one before, the header, and the prompt of the shell after.
const AROUND_SERVICES: usize = 3;

/// The text, with lines no longer than the terminal's width.
pub(super) fn render(overview: &Overview, size: Option<(usize, usize)>, now: Timestamp) -> String {
    render_up_to(&SCREEN, overview, size, now)
}

/// The text with every problem and warning that the agent lists, and no line cut.
pub(super) fn render_all(overview: &Overview, now: Timestamp) -> String {
    render_up_to(&ALL, overview, None, now)
}

fn render_up_to(
    limits: &Limits,
    overview: &Overview,
    size: Option<(usize, usize)>,
    now: Timestamp,
) -> String {
    let width = size.map(|(_, columns)| columns);
    let mut text = String::new();
    head(overview, now, width, &mut text);
    text.push('\n');
    text.push_str(&renderers(overview, now).within(width).to_string());
    problems(limits, overview, now, width, &mut text);
    let left =
        size.map(|(rows, _)| rows.saturating_sub(text.lines().count() + AROUND_SERVICES + 1));
    let room = left.map_or(limits.warnings, |left| {
        left.saturating_sub(AROUND_WARNINGS) / 2
    });
    warnings(limits, overview, room, width, &mut text);
    let left = size.map(|(rows, _)| rows.saturating_sub(text.lines().count() + AROUND_SERVICES));
    connections(
        overview,
        left.unwrap_or(TOP_SERVICES).clamp(1, TOP_SERVICES),
        width,
        &mut text,
    );
    text
}

fn head(overview: &Overview, now: Timestamp, width: Option<usize>, text: &mut String) {
    let Overview { status, sizes, .. } = overview;
    let health = overview.health();
    let style = match health {
        AgentHealth::Healthy => TextStyle::Good,
        AgentHealth::NeedsAttention => TextStyle::Warning,
        AgentHealth::NotReady => TextStyle::Bad,
    };
    let mut details = vec![format!("contiv {}", status.version)];
    details.extend(
        status
            .started
            .map(|started| format!("up {}", ago(started, now))),
    );
    line(text, "node", &status.node, TextStyle::Title, width);
    line(
        text,
        "agent",
        &format!("{} ({})", health.text(), details.join(", ")),
        style,
        width,
    );
    if let Some(problem) = &status.node_problem {
        line(text, "name", problem, TextStyle::Warning, width);
    }
    if let Some(failure) = &status.self_check {
        let text_of = format!("fails for {}: {}", ago(failure.since, now), failure.reason);
        line(text, "check", &text_of, TextStyle::Bad, width);
    }
    let (store, style) = store(status, now);
    line(text, "store", &store, style, width);
    let held = format!(
        "{}, {}, {}; {} in quarantine{}",
        counted(sizes.services, "service"),
        counted(sizes.service_ports, "port"),
        counted(sizes.backends, "backend"),
        status.quarantined,
        if status.warnings == 0 {
            String::new()
        } else {
            format!(", {}", counted(status.warnings, "warning"))
        }
    );
    let style = if status.quarantined > 0 {
        TextStyle::Warning
    } else {
        TextStyle::Plain
    };
    line(text, "holds", &held, style, width);
    if sizes.services_without_backends > 0 {
        line(
            text,
            "refused",
            &without_backends(sizes, overview.refused),
            TextStyle::Warning,
            width,
        );
    }
    if let Some(lost) = sizes.lost_frontends.first() {
        let more = match sizes.services_with_lost_frontends {
            0 | 1 => String::new(),
            count => format!(
                ", and {} more: `contiv services -A`",
                counted(count - 1, "service")
            ),
        };
        let LostFrontendView {
            service,
            frontend,
            holder,
        } = lost;
        let conflict = format!("{service} does not get {frontend}, which {holder} holds{more}");
        line(text, "conflict", &conflict, TextStyle::Warning, width);
    }
    if sizes.left_to_other_proxies > 0 {
        let left = counted(sizes.left_to_other_proxies, "service");
        line(
            text,
            "left",
            &format!("{left} to another proxy by label: see `contiv services -A`"),
            TextStyle::Plain,
            width,
        );
    }
    if sizes.services_without_address > 0 {
        let (first, more) = named(&sizes.without_address, sizes.services_without_address);
        let unserved = counted(sizes.services_without_address, "service");
        let unserved = format!("{unserved} without address and node port: {first}{more}");
        line(text, "unserved", &unserved, TextStyle::Warning, width);
    }
    let failover = status.failover.as_ref();
    if let Some(failing) = failover.and_then(FailoverStatus::summary) {
        line(text, "failover", &failing, TextStyle::Warning, width);
    }
    line(text, "latency", &latency(overview), TextStyle::Plain, width);
    if status.held_deletions.is_some() {
        let held = "too many at once: held; `contiv confirm-deletions` lets them count";
        line(text, "deletions", held, TextStyle::Bad, width);
    }
}

/// The services without backends: the first by name, and the number of others; and the number of attempts that were refused.
fn without_backends(sizes: &SizesView, refused: u64) -> String {
    let (first, more) = named(&sizes.without_backends, sizes.services_without_backends);
    let so_far = match refused {
        0 => String::new(),
        1 => "1 connection so far; ".to_owned(),
        count => format!("{count} connections so far; "),
    };
    format!("{so_far}no backend behind {first}{more}")
}

/// The names of the first of `count` services, and how many more there are.
fn named(services: &[ServiceId], count: usize) -> (String, String) {
    let names: Vec<String> = services.iter().map(ToString::to_string).collect();
    let more = match count.saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (names.join(", "), more)
}

fn store(status: &StatusView, now: Timestamp) -> (String, TextStyle) {
    let url = if status.store.is_empty() {
        String::new()
    } else {
        format!("{}: ", status.store)
    };
    match &status.store_down {
        Some(down) => (
            format!("{url}down for {}: {}", ago(down.since, now), down.reason),
            TextStyle::Bad,
        ),
        None if status.from_mirror => (
            format!("{url}not read yet; the saved state is in use"),
            TextStyle::Warning,
        ),
        None if status.synced => (
            format!("{url}in sync at revision {}", status.revision),
            TextStyle::Plain,
        ),
        None => (format!("{url}not read yet"), TextStyle::Warning),
    }
}

/// The time from the store's message until a renderer sent a change to the kernel, over the newest events.
fn latency(overview: &Overview) -> String {
    let Some(Latency {
        p50, worst, count, ..
    }) = Latency::of(&overview.history)
    else {
        return "no change has reached the kernel yet".to_owned();
    };
    let of = format!("{count} of the last {} events", overview.history.len());
    format!(
        "change to kernel: median {}, worst {} ({of})",
        milliseconds(p50),
        milliseconds(worst)
    )
}

fn renderers(overview: &Overview, now: Timestamp) -> Table {
    let mut table = Table::new(&[
        "RENDERER",
        "STATE",
        "REVISION",
        "LAG",
        "LAST CALL",
        "FOREIGN CHANGES",
    ]);
    for renderer in &overview.renderers {
        let style = match renderer.state.as_str() {
            "idle" | "busy" => TextStyle::Good,
            "retrying" | "slow" => TextStyle::Bad,
            _ => TextStyle::Warning,
        };
        let call = renderer.last_report.as_ref().map_or_else(
            || "none yet".to_owned(),
            |last| {
                format!(
                    "{} {}, {} ago",
                    last.call,
                    milliseconds(last.duration_ms),
                    ago(last.at, now)
                )
            },
        );
        table.push(vec![
            renderer.name.clone().into(),
            Cell::styled(&renderer.state, style),
            renderer.applied_revision.to_string().into(),
            lag(renderer),
            call.into(),
            Cell::from(renderer.foreign_changes.to_string()),
        ]);
    }
    table
}

/// Changes that wait for a renderer. Its revision may be older than the store's without any: not every revision affects it.
fn lag(renderer: &RendererStateView) -> Cell {
    match renderer.pending.as_str() {
        "nothing" | "" => "none".into(),
        "changes" => Cell::styled(
            counted(renderer.pending_services, "service"),
            TextStyle::Warning,
        ),
        other => Cell::styled(other, TextStyle::Warning),
    }
}

/// The problems, the most urgent first.
fn problems(
    limits: &Limits,
    overview: &Overview,
    now: Timestamp,
    width: Option<usize>,
    text: &mut String,
) {
    let error = |renderer: &RendererStateView| {
        let last = renderer.last_error.as_ref()?;
        let style = if renderer.failures > 0 {
            TextStyle::Bad
        } else {
            TextStyle::Plain
        };
        Some((
            vec![format!(
                "{} ago, {}: {}",
                ago(last.at, now),
                renderer.name,
                last.error
            )],
            style,
        ))
    };
    let (failing, well): (Vec<_>, Vec<_>) = overview
        .renderers
        .iter()
        .partition(|renderer| renderer.failures > 0);
    let quarantined = overview
        .quarantine
        .iter()
        .map(|entry| (quarantined(entry), TextStyle::Warning));
    let drifted = overview.renderers.iter().flat_map(|renderer| {
        RendererFacts::from(renderer)
            .drift()
            .into_iter()
            .chain(unverified(renderer))
    });
    let drifted = drifted.map(|drifted| (vec![drifted], TextStyle::Warning));
    let forwarding = overview.status.forwarding_off.iter();
    let forwarding = forwarding.map(|off| (vec![off.to_string()], TextStyle::Warning));
    let tables = overview.status.table_problems.iter();
    let tables = tables.map(|problem| (vec![problem.to_string()], TextStyle::Warning));
    let failover = overview.status.failover_problem();
    let failover = failover.map(|problem| (vec![problem], TextStyle::Warning));
    let past = well.into_iter().filter_map(error);
    let notes = overview
        .renderers
        .iter()
        .flat_map(notes)
        .map(|note| (vec![note], TextStyle::Warning));
    let lines: Vec<_> = failing
        .into_iter()
        .filter_map(error)
        .chain(forwarding)
        .chain(tables)
        .chain(failover)
        .chain(drifted)
        .chain(quarantined)
        .chain(notes)
        .chain(past)
        .collect();
    if lines.is_empty() {
        return;
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\nLAST ERRORS");
    // The agent lists only the first ones of many.
    let unlisted = overview
        .status
        .quarantined
        .saturating_sub(overview.quarantine.len());
    let more = lines.len().saturating_sub(limits.problems) + unlisted;
    for (lines, style) in lines.into_iter().take(limits.problems) {
        for line in lines {
            let _ = writeln!(text, "{}", style.paint(cut(&line, width)));
        }
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more{}", limits.others);
    }
}

/// The first warnings, a line for the field and one for the reason.
fn warnings(
    limits: &Limits,
    overview: &Overview,
    room: usize,
    width: Option<usize>,
    text: &mut String,
) {
    let shown = overview.warnings.len().min(limits.warnings).min(room);
    if shown == 0 {
        return;
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\nWARNINGS");
    for warning in &overview.warnings[..shown] {
        for line in [warning.subject(), format!("  {}", warning.reason)] {
            let _ = writeln!(text, "{}", TextStyle::Warning.paint(cut(&line, width)));
        }
    }
    let more = overview.status.warnings.saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(text, "and {more} more{}", limits.others);
    }
}

/// Why the kernel could not be verified.
pub(super) fn unverified(renderer: &RendererStateView) -> Option<String> {
    let error = renderer.verification.as_ref()?.error.as_ref()?;
    Some(format!("{}: not verified: {error}", renderer.name))
}

/// A renderer's advice about the machine.
fn notes(renderer: &RendererStateView) -> impl Iterator<Item = String> {
    let notes = renderer.last_report.iter().flat_map(|last| &last.notes);
    notes.map(|note| format!("{}: {note}", renderer.name))
}

/// The object and its problem; and below it, where to correct it and which state is used meanwhile.
fn quarantined(entry: &QuarantinedView) -> Vec<String> {
    let QuarantinedView {
        source,
        active_state,
        ..
    } = entry;
    let meanwhile = match active_state.as_deref() {
        Some("last good") => "; its last good state is in use",
        Some("nothing") => "; nothing of it is in use",
        _ => "",
    };
    vec![entry.summary(), format!("  in {source}{meanwhile}")]
}

fn connections(overview: &Overview, rows: usize, width: Option<usize>, text: &mut String) {
    let _ = writeln!(text);
    match &overview.connections {
        Ok(services) if services.is_empty() => text.push_str("no new connections so far\n"),
        Ok(services) => {
            let mut table = Table::new(&["SERVICE", "SERVED"]);
            for (service, connections) in services.iter().take(rows) {
                table.push(vec![service.to_string(), connections.to_string()]);
            }
            text.push_str(&table.within(width).to_string());
        }
        Err(error) => {
            let _ = writeln!(text, "{}", cut(error, width));
        }
    }
}

fn line(text: &mut String, title: &str, value: &str, style: TextStyle, width: Option<usize>) {
    let value = cut(value, width.map(|width| width.saturating_sub(10)));
    let _ = writeln!(text, "{title:<10}{}", style.paint(value));
}

/// The line without control characters, and no longer than `width`.
pub(super) fn cut(line: &str, width: Option<usize>) -> String {
    // An error may have several lines, and stored text may contain anything.
    let line = printable(line.replace('\n', " "));
    match width {
        Some(width) if line.chars().count() > width => line
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        _ => line,
    }
}

#[cfg(test)]
mod tests;
