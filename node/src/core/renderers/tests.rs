mod schedule;

use contiv_renderer::Report;

use super::*;
use crate::logged::logged;

/// The first failure of several, the recovery, and each note when it is new.
#[test]
fn result_of_call_is_logged_if_it_differs_from_that_before() {
    let now = Now {
        instant: Instant::now(),
        time: Timestamp::UNIX_EPOCH,
        random: 0.0,
    };
    let applied = |notes: &[&str]| {
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        let report = Report {
            notes,
            ..Report::default()
        };
        Ok(LastReport {
            call: "update",
            at: now.time,
            duration_ms: 1.0,
            report,
        })
    };
    let refused = || Err("refused".to_owned());
    let mut renderer = RendererSchedule::new("a".into());
    for (number, (result, expected)) in [
        (applied(&[]), None),
        (refused(), Some("WARN")),
        (refused(), None),
        (applied(&["full"]), Some("recovered")),
        (applied(&["full"]), None),
        (applied(&["full", "slow"]), Some("slow")),
        (refused(), Some("WARN")),
    ]
    .into_iter()
    .enumerate()
    {
        let calls = renderer.calls + u64::from(result.is_ok());
        let lines = logged(|| match result {
            Ok(report) => succeeded(&mut renderer, 7, report),
            Err(error) => failed(&mut renderer, error, now),
        });
        assert_eq!(renderer.calls, calls, "of result {number}");
        let first = lines.first().map(String::as_str);
        assert!(first.is_some() == expected.is_some(), "{number}: {lines:?}");
        assert!(
            expected.is_none_or(|text| first.is_some_and(|line| line.contains(text))),
            "{number}: {lines:?}"
        );
    }
}
