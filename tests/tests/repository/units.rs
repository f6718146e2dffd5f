//! Checks of the systemd units by systemd's own tools.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The highest exposure level that systemd-analyze may report for a unit, in tenths.
const EXPOSURE: &str = "15";
const UNITS: [&str; 2] = ["contiv-agent.service", "contiv-controller.service"];

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("systemd")
        .join(name)
}

fn analyze(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("systemd-analyze: {error}: run scripts/deps"));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}

#[test]
fn systemd_finds_nothing_wrong_with_units() {
    let folder = tempfile::tempdir().unwrap();
    for name in UNITS {
        // The package installs the binary there; here any program will do.
        let text = fs::read_to_string(unit(name)).unwrap();
        let copy = folder.path().join(name);
        fs::write(&copy, text.replace("/usr/bin/contiv", "/bin/true")).unwrap();
        let (is_good, said) = analyze(&["verify", "--man=no", copy.to_str().unwrap()]);
        assert!(is_good && said.is_empty(), "{name}: {said}");
    }
}

#[test]
fn units_are_hardened() {
    for name in UNITS {
        let (is_good, said) = analyze(&[
            "security",
            "--offline=yes",
            &format!("--threshold={EXPOSURE}"),
            unit(name).to_str().unwrap(),
        ]);
        assert!(
            is_good && said.contains("Overall exposure level"),
            "{name}: {said}"
        );
    }
}

fn value(name: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(unit(name)).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix(&format!("{key}=")).map(str::to_owned))
}

#[test]
fn systemd_units_notify_readiness_and_watchdog_and_restart() {
    for name in UNITS {
        let value = |key| value(name, key).unwrap_or_default();
        assert_eq!(
            (value("Type"), value("NotifyAccess")),
            ("notify".to_owned(), "main".to_owned())
        );
        assert_eq!(
            (value("Restart"), value("StartLimitIntervalSec")),
            ("always".to_owned(), "0".to_owned())
        );
        // Liveness is checked each second.
        assert!(value("WatchdogSec").parse::<u32>().unwrap() >= 10, "{name}");
    }
    // Work in progress may take 10 s, and resigning the lease 3 s.
    assert!(
        value(UNITS[1], "TimeoutStopSec")
            .unwrap()
            .parse::<u32>()
            .unwrap()
            > 13
    );
}

#[test]
fn name_of_host_can_be_read_under_both_units() {
    for name in UNITS {
        assert_eq!(
            value(name, "ProcSubset"),
            None,
            "{name}: the host name is in /proc/sys"
        );
    }
}

#[test]
fn agent_has_one_capability_and_controllers_have_none() {
    assert_eq!(
        value(UNITS[0], "CapabilityBoundingSet").as_deref(),
        Some("CAP_NET_ADMIN")
    );
    assert_eq!(
        value(UNITS[1], "CapabilityBoundingSet").as_deref(),
        Some("")
    );
    assert_eq!(value(UNITS[1], "AmbientCapabilities"), None);
    for name in UNITS {
        assert_eq!(value(name, "User").as_deref(), Some("contiv"));
    }
}
