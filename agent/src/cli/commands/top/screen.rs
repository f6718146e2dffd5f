//! The screen of `contiv top`.

use std::{collections::BTreeMap, fmt::Write};

use super::{rates::Load, view::View};
use crate::cli::{
    commands::events::milliseconds,
    output::{
        color::TextStyle,
        table::{Cell, Table},
    },
    source::{balance::FurthestOff, latency::Latency},
};

/// Lines above the table.
const HEADER_LINES: usize = 3;
/// The widest bar.
const MAX_BAR_WIDTH: usize = 30;

/// As many services as fit into the rows and columns, and at most `services`. With keys, their line is the last one.
pub(super) fn render(
    load: &Load,
    view: &View,
    services: usize,
    size: Option<(usize, usize)>,
    has_keys: bool,
) -> String {
    let footer = if has_keys { 2 } else { 0 };
    let fitting = size.map_or(usize::MAX, |(rows, _)| {
        rows.saturating_sub(HEADER_LINES + 2 + footer)
    });
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        text,
        "{} new connections/s   {} changed services/s",
        TextStyle::Title.paint(rate(load.total())),
        TextStyle::Title.paint(rate(load.changes())),
    );
    let _ = match load.latency() {
        None => writeln!(text, "change to kernel: none yet"),
        Some(Latency {
            p50, p99, worst, ..
        }) => writeln!(
            text,
            "change to kernel: p50 {}, p99 {}, worst {}",
            milliseconds(p50),
            milliseconds(p99),
            milliseconds(worst)
        ),
    };
    let busiest = load.first(view.order, &view.name, services.min(fitting));
    let most = busiest
        .iter()
        .map(|usage| usage.connections_per_second)
        .fold(0.0, f64::max);
    let is_empty = busiest.is_empty();
    let mut header = vec!["SERVICE", "NEW/S", "", "ATTEMPTS", "SERVED", "REFUSED"];
    if load.has_nodes() {
        header.insert(0, "NODE");
    }
    let has_shares = busiest.iter().any(|usage| usage.furthest_off.is_some());
    if has_shares {
        header.push("FURTHEST OFF");
    }
    let mut table = Table::new(&header);
    for usage in busiest {
        let mut row = vec![
            usage.service.to_string().into(),
            Cell::from(rate(usage.connections_per_second)),
            Cell::styled(bar(usage.connections_per_second, most), TextStyle::Good),
            usage.attempts.to_string().into(),
            usage.connections.to_string().into(),
            refused(&usage.refused_by).into(),
        ];
        if has_shares {
            row.push(furthest_off(usage.furthest_off).into());
        }
        if load.has_nodes() {
            row.insert(0, usage.node.as_str().into());
        }
        table.push(row);
    }
    if is_empty {
        let none = if view.name.is_empty() {
            "no service has had a connection yet"
        } else {
            "no such service"
        };
        let _ = writeln!(text, "\n{none}");
    } else {
        let _ = write!(text, "\n{}", table.within(size.map(|(_, columns)| columns)));
    }
    if has_keys {
        let width = size.map_or(usize::MAX, |(_, columns)| columns);
        let help: String = view.help().chars().take(width).collect();
        let _ = writeln!(text, "\n{help}");
    }
    text
}

/// As in "10.244.1.10:8080 41% of 25%".
fn furthest_off(backend: Option<FurthestOff>) -> String {
    backend.map_or_else(String::new, |of| {
        let [actual, wanted] = [of.actual, of.wanted].map(|share| share * 100.0);
        format!("{} {actual:.0}% of {wanted:.0}%", of.backend)
    })
}

/// How many attempts were refused, by reason.
fn refused(by_reason: &BTreeMap<String, u64>) -> String {
    let reasons = by_reason
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"));
    if by_reason.is_empty() {
        "0".to_owned()
    } else {
        reasons.collect::<Vec<_>>().join(", ")
    }
}

fn rate(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 {
        format!("{rate:.0}")
    } else {
        format!("{rate:.1}")
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and the widest bar"
)]
#[expect(clippy::cast_precision_loss, reason = "the widest bar is small")]
fn bar(rate: f64, most: f64) -> String {
    let length = if most > 0.0 {
        (rate / most * MAX_BAR_WIDTH as f64).ceil() as usize
    } else {
        0
    };
    "#".repeat(length.min(MAX_BAR_WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_services_print_that_nothing_happens() {
        let text = render(&Load::default(), &View::default(), 5, None, false);
        assert!(
            text.starts_with("0 new connections/s   0 changed services/s\n"),
            "{text}"
        );
    }

    #[test]
    fn refused_attempts_name_their_reasons() {
        let by_reason = |counts: &[(&str, u64)]| {
            refused(
                &counts
                    .iter()
                    .map(|(reason, count)| ((*reason).to_owned(), *count))
                    .collect(),
            )
        };
        assert_eq!(by_reason(&[]), "0");
        assert_eq!(by_reason(&[("policy", 12)]), "12 policy");
        assert_eq!(
            by_reason(&[("source-ranges", 3), ("no-endpoints", 5)]),
            "5 no-endpoints, 3 source-ranges"
        );
    }

    #[test]
    fn backend_that_is_furthest_off_has_both_shares() {
        let of = |actual, wanted| FurthestOff {
            backend: ([10, 244, 1, 10], 8080).into(),
            wanted,
            actual,
        };
        let text = furthest_off(Some(of(0.412, 0.25)));
        assert_eq!(text, "10.244.1.10:8080 41% of 25%");
        assert_eq!(furthest_off(None), "");
    }

    #[test]
    fn bars_are_in_proportion_and_none_is_longer_than_widest() {
        assert_eq!(
            (
                bar(50.0, 100.0).len(),
                bar(100.0, 100.0).len(),
                bar(0.1, 100.0).len()
            ),
            (15, 30, 1)
        );
        assert_eq!(bar(0.0, 0.0), "");
    }
}
