use std::fs;

use crate::contiv::{command, finish, run, text};

#[test]
fn flags_override_environment_which_overrides_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    let settings =
        "node-name = \"file\"\nlog-level = \"warn\"\nhistory-age = \"1m\"\nlog-format = \"json\"\n";
    fs::write(&file, settings).unwrap();
    let mut check = command(&[
        "agent",
        "--check-config",
        "--config",
        text(&file),
        "--node-name",
        "flag",
    ]);
    check
        .env("CONTIV_NODE_NAME", "environment")
        .env("CONTIV_LOG_LEVEL", "debug");
    check
        .env("CONTIV_RENDERERS", "dry-run,nftables")
        .env("CONTIV_CONTIV_LOCAL_POLICY", "true");
    let run = finish(check);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(run.out.starts_with("# ok"), "{}", run.out);
    for expected in [
        "node-name = \"flag\"",
        "log-level = \"debug\"",
        "history-age = \"1m\"",
        "log-format = \"json\"",
        "renderers = [\"dry-run\", \"nftables\"]",
        "contiv-local-policy = true",
        "local-endpoint-weight = 1",
    ] {
        assert!(
            run.out.lines().any(|line| line == expected),
            "{expected} is not in:\n{}",
            run.out
        );
    }
}

#[test]
fn wrong_configuration_exits_2_with_and_without_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    fs::write(&file, "stor = \"dir:/\"\n").unwrap();
    for arguments in [
        &["agent", "--check-config", "--config", text(&file)][..],
        &["agent", "--config", text(&file)],
    ] {
        let run = run(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""));
        assert!(
            run.err
                .contains("agent.toml:1: unknown key \"stor\"; did you mean \"store\"?"),
            "{}",
            run.err
        );
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for (arguments, expected) in [
        (&["agent", "--listen", "here"][..], "--listen"),
        (&["agent", "--store", "x"], "expected dir:PATH"),
        (
            &["get", "deployments", "--store", "dir:/"],
            "valid types: pod, service",
        ),
        (&["delete", "svc", "--store", "dir:/"], "name the objects"),
        (&["apply", "--store", "dir:/"], "--filename"),
        (&["nonsense"], "unrecognized subcommand"),
    ] {
        let run = run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {run:?}");
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn version_is_printed() {
    let run = run(&["--version"]);
    assert_eq!(
        (run.code, run.out),
        (0, format!("contiv {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn password_in_url_is_refused_and_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    let url = "etcd://root:geheim@a:1";
    fs::write(&file, format!("store = {url:?}\n")).unwrap();
    let by_flag = command(&["agent", "--check-config", "--store", url]);
    let mut by_environment = command(&["agent", "--check-config"]);
    by_environment.env("CONTIV_STORE", url);
    let by_file = command(&["agent", "--check-config", "--config", text(&file)]);
    for command in [by_flag, by_environment, by_file] {
        let run = finish(command);
        assert!(
            run.code == 2 && run.err.contains("user and password have no place"),
            "{run:?}"
        );
        assert!(
            !run.err.contains("geheim") && run.err.contains("etcd://…@a:1"),
            "{run:?}"
        );
    }
}
