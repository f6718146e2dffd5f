//! Charts: events and their latency on one axis of time, and attempts by minute. SVG, written by hand: lines need no library.
//!
//! Lines keep their width while the drawing is stretched to that of its place, and texts are outside of it: so it can be read on
//! every screen.

use std::fmt::Write;

use contiv_node::{Outcome, Record, plural::counted};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, PreEscaped, html};

use super::{
    super::attempt_history::{Attempts, MINUTES, Minutes, sum},
    layout::{local, service_link, time},
};

/// The parts into which the time of a timeline is divided: as many as lines can be told apart on a phone.
const PARTS: usize = 160;
/// The height of the drawing, and the latencies at its lower and upper end as powers of ten, in milliseconds.
const HEIGHT: f64 = 100.0;
const LOWEST_EXPONENT: f64 = -2.0;
const HIGHEST_EXPONENT: f64 = 4.0;
/// The hours that are offered, and the most that are drawn.
pub(super) const HOURS: [u32; 4] = [1, 6, 24, 168];
pub(super) const MAX_HOURS: u32 = 168;

/// The events of a part of the time.
#[derive(Debug, Clone, Default, PartialEq)]
struct Part {
    changes: usize,
    /// The longest time from a change to the kernel in milliseconds, and its event.
    slowest: Option<(f64, u64)>,
    /// Events of other kinds, with the worst kind first.
    others: Vec<(u64, &'static str)>,
    has_trouble: bool,
}

/// Events of these kinds are those that someone may want to know.
fn is_trouble(record: &Record) -> bool {
    let is_failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed { .. });
    let kinds = [
        "store-down",
        "store-slow",
        "store-repair",
        "store-replaced",
        "mirror-slow",
        "problems",
        "held",
        "retry",
        "failover",
        "foreign-change",
        "drift",
        "slow",
    ];
    kinds.contains(&record.kind) || record.renderers.values().any(is_failed)
}

/// The longest time from the receipt of a change until it was sent to the kernel, in milliseconds. A complete snapshot, as at the
/// start, has none: it says nothing about changes.
pub(super) fn latency(record: &Record) -> Option<f64> {
    let outcomes = record
        .renderers
        .values()
        .filter(|_| record.kind == "change");
    let sent = outcomes.filter_map(|outcome| match outcome {
        Outcome::Applied {
            sent_after_ms: Some(after),
            ..
        } => Some(record.waited_ms + after),
        _ => None,
    });
    sent.reduce(f64::max)
}

/// The part of the time from `start` to `end` to which a moment belongs; none if it is before.
fn part_of(at: Timestamp, start: Timestamp, end: Timestamp) -> Option<usize> {
    let span = end.duration_since(start).as_millis().max(1);
    let passed = at.duration_since(start).as_millis();
    let number = passed.saturating_mul(PARTS as i128) / span;
    let number = usize::try_from(number).ok().filter(|_| passed >= 0)?;
    Some(number.min(PARTS - 1))
}

/// Divides the time from `start` to `end` among the records.
fn parts(records: &[Record], start: Timestamp, end: Timestamp) -> Vec<Part> {
    let mut parts = vec![Part::default(); PARTS];
    for record in records {
        let Some(number) = part_of(record.start, start, end) else {
            continue;
        };
        let part = &mut parts[number];
        if record.kind == "change" {
            part.changes += 1;
        } else {
            part.others.push((record.seq_num, record.kind));
        }
        part.has_trouble |= is_trouble(record);
        let latency = latency(record).map(|latency| (latency, record.seq_num));
        part.slowest = match (part.slowest, latency) {
            (Some(one), Some(other)) if other.0 > one.0 => Some(other),
            (None, other) => other,
            (one, _) => one,
        };
    }
    parts
}

/// The distance from the top of the drawing of a latency.
fn height(latency_ms: f64) -> f64 {
    let exponent = latency_ms
        .max(f64::MIN_POSITIVE)
        .log10()
        .clamp(LOWEST_EXPONENT, HIGHEST_EXPONENT);
    HEIGHT * (HIGHEST_EXPONENT - exponent) / (HIGHEST_EXPONENT - LOWEST_EXPONENT)
}

/// Latencies and events from `hours` ago until now. Of the time before `remembered` nothing is known.
pub(super) fn timeline(
    records: &[Record],
    hours: u32,
    remembered: Timestamp,
    now: Timestamp,
) -> Markup {
    let start = now
        .checked_sub(SignedDuration::from_hours(i64::from(hours)))
        .unwrap_or(now);
    let parts = parts(records, start, now);
    let unknown = part_of(remembered, start, now).unwrap_or(0);
    let (mut latencies, mut marks) = (unknown_part(unknown), unknown_part(unknown));
    for (number, part) in parts.iter().enumerate() {
        if let Some((slowest, event)) = part.slowest {
            let title = format!(
                "{}, the slowest {} (event {event})",
                counted(part.changes, "change"),
                milliseconds(slowest)
            );
            line(
                &mut latencies,
                "",
                number,
                (height(slowest), HEIGHT),
                &title,
                event,
            );
        }
        let titles = part.others.iter();
        let titles = titles.map(|(number, kind)| format!("{kind} (event {number})"));
        let titles: Vec<String> = titles.take(10).collect();
        let class = if part.has_trouble { "trouble" } else { "other" };
        if let Some((event, _)) = part.others.first() {
            line(
                &mut marks,
                class,
                number,
                (0.0, HEIGHT),
                &titles.join(", "),
                *event,
            );
        }
    }
    let middle = now
        .checked_sub(SignedDuration::from_mins(i64::from(hours) * 30))
        .unwrap_or(now);
    let format = if hours > 24 { "%m-%d %H:%M" } else { "%H:%M" };
    let changes: usize = parts.iter().map(|part| part.changes).sum();
    let others: usize = parts.iter().map(|part| part.others.len()).sum();
    let label = format!(
        "Time from a change to the kernel, and events: {}, {}",
        counted(changes, "change"),
        counted(others, "other event")
    );
    html! {
        figure.chart role="group" aria-label=(label) {
            div.scale aria-hidden="true" { span { "10 s" } span { "1 s" } span { "100 ms" } span { "10 ms" } span { "1 ms" } span { "0.1 ms" } span { "10 µs" } }
            (drawing("", PARTS, &[16.7, 33.3, 50.0, 66.7, 83.3], &latencies))
            div.lane aria-hidden="true" { "events" }
            (drawing("marks", PARTS, &[], &marks))
            div.axis aria-hidden="true" { @for at in [start, middle, now] { span { (local(at, format)) } } }
        }
        @if unknown > 0 { p.hint { "Remembered since " (time(remembered)) ". Of the time before nothing is known." } }
    }
}

/// Attempts by minute, the newest on the right; of the first minutes nothing is known if only the last ones were counted.
pub(super) fn attempts(minutes: &Minutes, known: usize) -> Markup {
    let count = |it: &Attempts| it.served.saturating_add(it.refused);
    let most = minutes.iter().map(count).max().unwrap_or(0).max(1);
    let unknown = MINUTES.saturating_sub(known);
    let mut svg = unknown_part(unknown);
    for (number, minute) in minutes.iter().enumerate() {
        let bottom = |count: u64| HEIGHT - HEIGHT * as_number(count.min(most)) / as_number(most);
        // Connections are found to be silent later than they were served.
        let answered = minute.served.saturating_sub(minute.silent);
        let title = format!(
            "{}: {} served, {} silent, {} refused",
            match MINUTES - 1 - number {
                0 => "this minute".to_owned(),
                ago => format!("{} ago", counted(ago, "minute")),
            },
            minute.served,
            minute.silent,
            minute.refused
        );
        let mut below = 0;
        for (class, count) in [
            ("", answered),
            ("silent", minute.silent),
            ("refused", minute.refused),
        ] {
            if count > 0 {
                let ends = (bottom(below + count), bottom(below));
                path(&mut svg, class, number, ends, &title);
            }
            below += count;
        }
    }
    let all = sum(minutes);
    let period = if unknown == 0 {
        "in the last hour".to_owned()
    } else {
        format!(
            "in the last {}; before, nothing was counted",
            counted(known, "minute")
        )
    };
    let Attempts {
        served,
        silent,
        refused,
    } = all;
    let label = format!(
        "Attempts to connect by minute: {served} served, {silent} silent, {refused} refused {period}"
    );
    html! {
        p.legend {
            span { span.key {} (served) " served" }
            span { span.key.silent {} (silent) " silent" }
            span { span.key.refused {} (refused) " refused" }
            span.dim { (period) }
        }
        figure.chart.small role="group" aria-label=(label) {
            div.scale aria-hidden="true" { span { (most) } span { "0" } }
            (drawing("", MINUTES, &[], &svg))
            div.axis aria-hidden="true" { span { "1 hour ago" } span { "now" } }
        }
    }
}

/// The first part of a drawing, about which nothing is known.
fn unknown_part(width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    format!(
        "<rect class=\"unknown\" width=\"{width}\" height=\"{HEIGHT}\"><title>not remembered</title></rect>"
    )
}

/// A stretched drawing with its frame, and lines at these heights. The figure around it has a name, which says what matters.
fn drawing(class: &str, width: usize, lines: &[f64], content: &str) -> Markup {
    html! {
        svg class=(class) viewBox={ "0 0 " (width) " 100" } preserveAspectRatio="none" aria-hidden="true" {
            (PreEscaped(content))
            @for y in [0.0, HEIGHT].iter().chain(lines) { line x1="0" x2=(width) y1=(y) y2=(y) {} }
        }
    }
}

/// A line from one height to another, with a link to its event, which is for the mouse: the table has it for the keyboard.
fn line(svg: &mut String, class: &str, x: usize, ends: (f64, f64), title: &str, event: u64) {
    // Writing to a `String` cannot fail.
    let _ = write!(
        svg,
        "<a tabindex=\"-1\" href=\"/controller/event-history?seq-num={event}\">"
    );
    path(svg, class, x, ends, title);
    svg.push_str("</a>");
}

/// A line from one height to another. Titles are made of numbers and the names of kinds, which need no escaping.
fn path(svg: &mut String, class: &str, x: usize, (top, bottom): (f64, f64), title: &str) {
    let _ = write!(
        svg,
        "<path class=\"{class}\" d=\"M{x}.5 {bottom:.1}V{top:.1}\"><title>{title}</title></path>"
    );
}

/// A part of a whole as a bar and in percent.
pub(super) fn share(part: f64, whole: f64) -> Markup {
    let percent = if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    };
    html! {
        span.share {
            svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" { rect width={ (format!("{percent:.1}")) } height="1" {} }
            (format!("{percent:.0} %"))
        }
    }
}

/// The services of an event.
pub(super) fn changed(record: &Record) -> Markup {
    const SHOWN: usize = 3;
    let more = record
        .changed
        .saturating_sub(record.services.len().min(SHOWN));
    html! {
        @for (number, id) in record.services.iter().take(SHOWN).enumerate() { @if number > 0 { ", " } (service_link(id)) }
        @if more > 0 { " and " (more) " more" }
    }
}

/// A time in the unit that suits it.
pub(super) fn milliseconds(value: f64) -> String {
    match value {
        1000.0.. => format!("{:.1} s", value / 1000.0),
        10.0.. => format!("{value:.0} ms"),
        1.0.. => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts are far below 2^52, and drawn"
)]
pub(super) const fn as_number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use contiv_renderer::Report;

    use super::*;

    fn record(seq_num: u64, kind: &'static str, second: i64, sent_after_ms: Option<f64>) -> Record {
        let (start, report) = (Timestamp::from_second(second).unwrap(), Report::default());
        let applied = Outcome::Applied {
            first_seq_num: seq_num,
            at: start,
            report,
            duration_ms: 1.0,
            sent_after_ms,
        };
        Record {
            seq_num,
            kind,
            description: String::new(),
            start,
            start_instant: Instant::now(),
            waited_ms: 0.5,
            duration_ms: 0.5,
            revision: 7,
            changed: 1,
            services: Vec::new(),
            renderers: [("nftables".into(), applied)].into(),
        }
    }

    #[test]
    fn latency_is_of_changes_only() {
        assert_eq!(latency(&record(1, "snapshot", 0, Some(900.0))), None);
        assert_eq!(latency(&record(2, "change", 0, Some(2.0))), Some(2.5));
        assert_eq!(latency(&record(3, "change", 0, None)), None);
        assert_eq!(latency(&record(4, "retry", 0, Some(800.0))), None);
    }

    #[test]
    fn records_share_one_axis_of_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let records = [
            record(1, "change", 99, Some(9.0)),
            record(2, "snapshot", 100, Some(9.0)),
            record(3, "change", 179, Some(1.0)),
            record(4, "change", 179, Some(3.0)),
            record(5, "drift", 260, None),
        ];
        let parts = parts(&records, at(100), at(260));
        let shown: Vec<(usize, &Part)> = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| **part != Part::default())
            .collect();
        let expected = [
            (
                0,
                &Part {
                    others: vec![(2, "snapshot")],
                    ..Part::default()
                },
            ),
            (
                79,
                &Part {
                    changes: 2,
                    slowest: Some((3.5, 4)),
                    ..Part::default()
                },
            ),
            (
                PARTS - 1,
                &Part {
                    others: vec![(5, "drift")],
                    has_trouble: true,
                    ..Part::default()
                },
            ),
        ];
        assert_eq!(shown, expected, "the first is older");
        // Nothing is outside of the drawing.
        for latency in [0.0, 0.001, 1.0, 1e9, f64::INFINITY] {
            assert!((0.0..=HEIGHT).contains(&height(latency)), "{latency}");
        }
        assert!((height(1.0) - 66.7).abs() < 0.1, "the fourth of six lines");
    }
}
