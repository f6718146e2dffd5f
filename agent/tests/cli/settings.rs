//! Commands that run without an agent use the same settings as an agent.

use std::{fs, path::Path};

use crate::contiv::{Run, command, finish, text, web};

const NODE: &str =
    "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDRs: [10.1.0.0/24]}\n";

/// A folder with manifests and a configuration file with these settings.
fn folder(settings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("manifests")).unwrap();
    let local = web("web", 7).replace(
        "addresses: [10.1.0.7]",
        "addresses: [10.1.0.7], nodeName: from-file",
    );
    fs::write(folder.path().join("manifests/web.yaml"), local + NODE).unwrap();
    fs::write(folder.path().join("agent.toml"), settings).unwrap();
    folder
}

/// Runs the command on the manifests.
fn preview(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Run {
    let manifests = folder.join("manifests");
    let mut command = command(&[arguments, &["-f", text(&manifests)]].concat());
    command
        .env("CONTIV_CONFIG", folder.join("agent.toml"))
        .envs(environment.iter().copied());
    finish(command)
}

#[test]
fn render_obeys_flag_before_environment_before_file() {
    let folder =
        folder("masquerade-all = true\nlocal-endpoint-weight = 7\nnode-name = \"from-file\"\n");
    let render = |flags: &[&str], environment: &[(&str, &str)]| {
        let run = preview(
            folder.path(),
            &[&["render", "-o", "json"], flags].concat(),
            environment,
        );
        assert_eq!(run.code, 0, "{}", run.err);
        let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
        let desired = &json["desired"];
        let backend = &desired["services"]["shop/web"]["ports"][0]["backends"][0];
        (
            desired["node"]["cluster_ip_masquerade"] == "all",
            backend["weight"].clone(),
            backend["local"].clone(),
        )
    };
    assert_eq!(render(&[], &[]), (true, 7.into(), true.into()), "the file");
    let environment = [
        ("CONTIV_LOCAL_ENDPOINT_WEIGHT", "5"),
        ("CONTIV_MASQUERADE_ALL", "false"),
    ];
    assert_eq!(
        render(&[], &environment),
        (false, 5.into(), true.into()),
        "the environment"
    );
    let flags = ["--local-endpoint-weight", "3", "--masquerade-all"];
    assert_eq!(
        render(&flags, &environment),
        (true, 3.into(), true.into()),
        "flags"
    );
    let elsewhere = render(&["--node-name=n1"], &[]);
    assert_eq!(elsewhere.2, serde_json::Value::from(false), "another node");
}

#[test]
fn trace_of_manifests_obeys_settings() {
    let folder = folder("node-name = \"n1\"\n");
    let trace = ["trace", "--from", "10.1.0.9", "--to", "10.96.0.7:80"];
    let kept = preview(folder.path(), &trace, &[]);
    assert_eq!((kept.code, kept.err.as_str()), (0, ""));
    assert!(kept.out.contains("kept: "), "{}", kept.out);
    for (flags, environment) in [
        (&["--masquerade-all"][..], &[][..]),
        (&[], &[("CONTIV_MASQUERADE_ALL", "true")]),
    ] {
        let hidden = preview(folder.path(), &[&trace, flags].concat(), environment);
        assert!(
            hidden.out.contains("masqueraded: "),
            "{flags:?}: {}{}",
            hidden.out,
            hidden.err
        );
    }
}

#[test]
fn verify_of_manifests_obeys_settings() {
    let folder = folder("renderers = [\"nftables\"]\n");
    // The renderer in the environment programs nothing, so nothing is compared.
    let environment = [
        ("CONTIV_RENDERERS", "dry-run"),
        ("CONTIV_AGENT", "http://127.0.0.1:1"),
    ];
    let run = preview(folder.path(), &["verify"], &environment);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, "", ""));
    let run = preview(folder.path(), &["verify", "--renderers", "dry-run"], &[]);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, "", ""));
}

#[test]
fn wrong_settings_are_wrong_usage_as_for_agent() {
    let folder = folder("masquerade-al = true\n");
    for arguments in [
        &["render"][..],
        &["verify"],
        &["trace", "--from", "10.1.0.9", "--to", "10.96.0.7:80"],
    ] {
        let run = preview(folder.path(), arguments, &[]);
        assert_eq!(
            (run.code, run.out.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            run.err
        );
        assert!(
            run.err.contains("did you mean \"masquerade-all\"?"),
            "{}",
            run.err
        );
    }
}

#[test]
fn node_ports_on_interfaces_of_another_machine_are_not_guessed() {
    let folder = folder("node-port-addresses = [\"all\"]\n");
    let run = preview(folder.path(), &["render", "--node-name", "n1"], &[]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.err
            .contains("node-port-addresses is about the interfaces of node n1"),
        "{}",
        run.err
    );
}

#[test]
fn settings_beside_agent_are_refused() {
    for arguments in [
        &["verify", "--masquerade-all"][..],
        &[
            "verify",
            "--agent",
            "http://127.0.0.1:1",
            "--node-name",
            "n1",
        ],
        &["verify", "--agent", "http://127.0.0.1:1", "-f", "/nowhere"],
        &[
            "trace",
            "--from",
            "10.1.0.9",
            "--to",
            "10.96.0.7:80",
            "--node-name",
            "n1",
        ],
    ] {
        let run = finish(command(arguments));
        assert_eq!(
            (run.code, run.out.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            run.err
        );
    }
}

#[test]
fn environment_variable_applies_to_commands_with_its_flag() {
    let ask = ["trace", "--from", "10.1.0.9", "--to", "10.96.0.7:80"];
    let mut asked = command(&[&ask[..], &["--agent", "http://127.0.0.1:1"]].concat());
    asked.envs([
        ("CONTIV_LISTEN", "foo"),
        ("CONTIV_MASQUERADE_ALL", "foo"),
        ("CONTIV_CONFIG", ""),
    ]);
    let run = finish(asked);
    assert!(
        run.err.contains("failed to query the agent"),
        "{}: {}",
        run.code,
        run.err
    );

    let folder = folder("");
    let run = preview(
        folder.path(),
        &ask,
        &[("CONTIV_LISTEN", "foo"), ("CONTIV_CONFIG", "")],
    );
    assert_eq!(run.code, 0, "{}", run.err);
    let run = preview(folder.path(), &ask, &[("CONTIV_MASQUERADE_ALL", "foo")]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("masquerade-all"), "{}", run.err);
}

#[test]
fn empty_environment_variables_count_as_unset() {
    let names = [
        "CONTIV_CONFIG",
        "CONTIV_STORE",
        "CONTIV_LISTEN",
        "CONTIV_LOG_LEVEL",
        "CONTIV_MASQUERADE_ALL",
        "CONTIV_NODE_NAME",
        "CONTIV_NODE_PORT_ADDRESSES",
        "CONTIV_LEASE_DURATION",
        "CONTIV_AGENT",
    ];
    for arguments in [
        &["agent", "--check-config"][..],
        &["controller", "--check-config"],
        &["render", "-f", "/dev/null"],
        &["status"],
    ] {
        let unset = finish(command(arguments));
        let mut with_empty = command(arguments);
        with_empty.envs(names.map(|name| (name, "")));
        let with_empty = finish(with_empty);
        assert_eq!(
            (with_empty.code, with_empty.err),
            (unset.code, unset.err),
            "{arguments:?}"
        );
        assert_eq!(with_empty.out, unset.out, "{arguments:?}");
    }
    let mut flag = command(&["agent", "--check-config"]);
    flag.arg("--log-level=").env("CONTIV_LOG_LEVEL", "info");
    assert_eq!(
        finish(flag).code,
        2,
        "an empty flag is an error all the same"
    );
}
