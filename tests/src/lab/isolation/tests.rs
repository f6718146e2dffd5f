//! Failures inside a lab are failures outside, and nothing is left behind.

use std::thread;

use super::*;
use crate::lab::{Process, wait_for, wait_until};

/// Starts a command that only this test uses, and never stops it.
fn start_sleeping(lab: &Lab, seconds: &str) -> Result<()> {
    std::mem::forget(Process::start(
        &lab.pod1,
        "sleep",
        Command::new("sleep").arg(seconds),
    )?);
    wait_until("sleep runs", Duration::from_secs(5), || {
        is_sleeping(seconds)
    })
    .map(drop)
}

fn is_sleeping(seconds: &str) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    fs::read_dir("/proc")
        .expect("/proc can be read")
        .flatten()
        .any(|process| {
            fs::read(process.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes())
        })
}

#[test]
fn failure_inside_is_failure_outside() {
    let outcome = isolated(
        "lab::isolation::tests::failure_inside_is_failure_outside",
        |_| Err(LabError::Unexpected("on purpose".to_owned())),
    );
    // Inside it is another error, so this assertion fails there; outside that failure is expected.
    assert!(matches!(outcome, Err(LabError::Inside(_))), "{outcome:?}");
}

#[test]
fn name_that_is_no_test_is_error() {
    let outcome = isolated("no_such_test", |_| Ok(()));
    assert!(
        matches!(outcome, Err(LabError::NotIsolated(_))),
        "{outcome:?}"
    );
}

#[test]
fn processes_and_namespaces_end_with_run() {
    let outcome = isolated(
        "lab::isolation::tests::processes_and_namespaces_end_with_run",
        |lab| {
            start_sleeping(lab, "86399.125")?;
            assert!(Path::new("/run/netns").join(lab.node.host.name).exists());
            Ok(())
        },
    );
    outcome.expect("it passes inside");
    // Inside, the process exists to the end; only the outer run sees it gone.
    if env::var_os(MARK_VARIABLE).is_none() {
        assert!(!is_sleeping("86399.125"));
        assert!(!Path::new("/run/netns/node").exists());
    }
}

#[test]
fn run_that_hangs_is_killed_with_all_that_it_started() {
    let name = "lab::isolation::tests::run_that_hangs_is_killed_with_all_that_it_started";
    let outcome = isolated_within(Duration::from_secs(1), name, |lab| {
        start_sleeping(lab, "86399.25")?;
        thread::sleep(DEFAULT_TIME_LIMIT);
        Ok(())
    });
    assert!(
        matches!(outcome, Err(LabError::TooLate { .. })),
        "{outcome:?}"
    );
    wait_for(
        "the sleeping process is gone",
        Duration::from_secs(5),
        || (!is_sleeping("86399.25")).then_some(()),
    )
    .expect("the kernel ends all processes of the namespace");
}
