use clap::{Args as _, Command, FromArgMatches};

use super::*;
use crate::config::{ConfigFlags, file, flags};

/// The configuration of the file, with these flags on top.
fn load(file: &str, flags: &[&str]) -> Result<ControllerConfig, ConfigError> {
    let command =
        ConfigFlags::<ControllerConfig>::augment_args(Command::new("test").no_binary_name(true));
    let matches = command
        .try_get_matches_from(flags)
        .map_err(|error| ConfigError::one(error.to_string()))?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("controller.toml");
    std::fs::write(&path, file).unwrap();
    ControllerConfig::load(
        Some(&path),
        &ConfigFlags::from_arg_matches(&matches).unwrap(),
    )
}

fn problem(file: &str, flags: &[&str]) -> String {
    load(file, flags).unwrap_err().to_string()
}

#[test]
fn commented_default_file_documents_every_key_with_its_default() {
    let text = include_str!("../../../../systemd/controller.toml");
    // Commented keys have no space after the sign; sentences do.
    let uncommented: String = text
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|rest| !rest.starts_with(' '))
                .unwrap_or(line)
                .to_owned()
                + "\n"
        })
        .collect();
    let defaults = ControllerConfig::default();
    assert_eq!(
        file::parse::<ControllerConfig>("controller.toml", &uncommented).unwrap(),
        defaults
    );
    assert_eq!(
        file::parse::<ControllerConfig>("controller.toml", text).unwrap(),
        defaults
    );
    let documented: toml::Table = toml::from_str(&uncommented).unwrap();
    let mut keys = flags::keys::<ControllerConfig>();
    keys.sort();
    assert_eq!(documented.keys().cloned().collect::<Vec<_>>(), keys);
}

#[test]
fn lease_times_default_to_linkerds() {
    let defaults = ControllerConfig::default().election();
    let times = |config: &ElectionConfig| {
        [config.ttl, config.step_down_after, config.keep_alive_every].map(|time| time.as_secs())
    };
    assert_eq!(times(&defaults), [30, 10, 2]);
    let file = "identity = \"a\"\nlease-duration = \"9s\"\nlease-renew-deadline = \"3s\"\nlease-retry-period = \"1s\"";
    let mut config = file::parse::<ControllerConfig>("controller.toml", file).unwrap();
    assert_eq!(times(&config.election()), [9, 3, 1]);
    let flags = ["--lease-duration=8s", "--identity=b"];
    let command =
        ConfigFlags::<ControllerConfig>::augment_args(Command::new("test").no_binary_name(true));
    let matches = command.try_get_matches_from(flags).unwrap();
    ConfigFlags::from_arg_matches(&matches)
        .unwrap()
        .update(&mut config)
        .unwrap();
    assert_eq!(
        (
            times(&config.election()),
            config.election().identity.as_str()
        ),
        ([8, 3, 1], "b")
    );
}

#[test]
fn settings_out_of_range_are_refused_with_a_hint() {
    for (file, flags, expected) in [
        (
            "",
            &[][..],
            "enable: name at least one of external-workloads, connector, reflector",
        ),
        (
            "enable = [\"workloads\"]",
            &[],
            "controller.toml:1: enable: unknown controller \"workloads\"; valid controllers: external-workloads",
        ),
        (
            "",
            &["--enable=reflektor"],
            "valid controllers: external-workloads, connector, reflector",
        ),
        (
            "",
            &["--enable=reflector,reflector"],
            "enable: reflector is named twice",
        ),
        (
            "",
            &["--store=dir:/tmp"],
            "store: dir:/tmp is a folder, in which no election can be held; use etcd://",
        ),
        (
            "",
            &["--store=kube:"],
            "store: kube: is Kubernetes, in which no election can be held",
        ),
        (
            "",
            &["--enable=connector", "--connector-file=/nonexistent/c.toml"],
            "connector-file: failed to read the connector's file /nonexistent/c.toml",
        ),
        (
            "etcd-user = \"contiv\"",
            &[],
            "etcd-user: it is of no use without etcd-password-file",
        ),
        (
            "lease-duration = \"2500ms\"",
            &[],
            "lease-duration: etcd counts in whole seconds",
        ),
        (
            "lease-renew-deadline = \"30s\"",
            &[],
            "lease-retry-period: it must be less than lease-renew-deadline",
        ),
        (
            "lease-retry-period = \"0s\"",
            &[],
            "lease-retry-period: it must be less",
        ),
        (
            "log-level = \"inof\"",
            &[],
            "log-level: \"inof\" is not a log level",
        ),
        (
            "lease-period = \"1s\"",
            &[],
            "unknown key \"lease-period\"; did you mean",
        ),
    ] {
        let problem = problem(file, flags);
        assert!(problem.contains(expected), "{file} {flags:?}: {problem}");
    }
}
