//! Small plots of the history: latencies and numbers of changes. SVG, written by hand: bars need no library.

use std::fmt::Write;

use contiv_node::{Outcome, Record};

use super::{Page, escape};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 90.0;
/// Space for a line of text above the bars.
const TOP_MARGIN: f64 = 16.0;

pub(super) fn plots(history: &[Record], page: &mut Page) {
    page.heading("The last events");
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of services are far below 2^52"
    )]
    let churn: Vec<(u64, f64)> = history
        .iter()
        .map(|record| (record.seq_num, record.changed as f64))
        .collect();
    page.raw("<div class=\"plots\">\n");
    page.raw(&bars(
        "From a change to the kernel, in milliseconds",
        &latencies(history),
    ));
    page.raw(&bars("Changed services of each event", &churn));
    page.raw("</div>\n");
}

/// The latency of each change to the kernel, with its number. A complete snapshot, as at the start, is left out: it would make
/// all other bars flat.
fn latencies(history: &[Record]) -> Vec<(u64, f64)> {
    let changes = history.iter().filter(|record| record.kind == "change");
    changes
        .flat_map(|record| {
            record
                .renderers
                .values()
                .map(move |outcome| (record.seq_num, outcome))
        })
        .filter_map(|(number, outcome)| match outcome {
            Outcome::Applied {
                sent_after_ms: Some(after),
                ..
            } => Some((number, *after)),
            _ => None,
        })
        .collect()
}

/// A bar for each value, the newest on the right.
fn bars(title: &str, values: &[(u64, f64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut svg = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\
         <text x=\"0\" y=\"11\">{most}</text>\
         <line x1=\"0\" y1=\"{TOP_MARGIN}\" x2=\"{WIDTH}\" y2=\"{TOP_MARGIN}\"/>\
         <line x1=\"0\" y1=\"{HEIGHT}\" x2=\"{WIDTH}\" y2=\"{HEIGHT}\"/>",
        title = escape(title),
        most = number(most),
    );
    let step = WIDTH / f64::from(u32::try_from(values.len().max(24)).unwrap_or(u32::MAX));
    let mut x = 0.0;
    for (event, value) in values {
        let height = if most > 0.0 {
            (HEIGHT - TOP_MARGIN) * value / most
        } else {
            0.0
        };
        // Writing to a `String` cannot fail.
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>event {event}: {}</title></rect>",
            HEIGHT - height,
            step * 0.8,
            number(*value),
        );
        x += step;
    }
    let caption = if values.is_empty() {
        format!("{title}: none yet")
    } else {
        title.to_owned()
    };
    let _ = writeln!(
        svg,
        "</svg><figcaption>{}</figcaption></figure>",
        escape(&caption)
    );
    svg
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use contiv_renderer::Report;
    use jiff::Timestamp;
    use std::time::Instant;

    use super::*;

    #[test]
    fn latencies_first_snapshot_is_left_out() {
        let record = |seq_num, kind, sent_after_ms| {
            let (at, report) = (Timestamp::UNIX_EPOCH, Report::default());
            let applied = Outcome::Applied {
                first_seq_num: seq_num,
                at,
                report,
                duration_ms: 1.0,
                sent_after_ms,
            };
            Record {
                seq_num,
                kind,
                description: String::new(),
                start: at,
                start_instant: Instant::now(),
                waited_ms: 0.0,
                duration_ms: 0.5,
                revision: 7,
                changed: 1,
                services: Vec::new(),
                renderers: [("nftables".into(), applied)].into(),
            }
        };
        let history = [
            record(1, "snapshot", Some(900.0)),
            record(2, "change", Some(2.0)),
            record(3, "change", None),
            record(4, "retry", Some(800.0)),
        ];
        assert_eq!(latencies(&history), [(2, 2.0)]);
    }
}
