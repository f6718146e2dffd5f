//! The commands that ask a running agent.

use std::{fs, process::Stdio};

use serde_json::Value;

use crate::{
    agent::{Agent, folder},
    contiv::{Run, command, run, web},
};

fn ask(agent: &Agent, arguments: &[&str]) -> Run {
    run(&[arguments, &["--agent", &format!("http://{}", agent.address)]].concat())
}

#[test]
fn services_and_their_backends_are_shown_in_every_form() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["services", "-n", "shop"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "NAME   CLUSTER-IP   EXTERNAL-IP   PORT(S)   BACKENDS\nweb    10.96.0.7    <none>        80/TCP    1\n"
    );
    let all = ask(&agent, &["services", "-A", "-o", "wide"]).out;
    assert!(
        all.starts_with("NAMESPACE") && all.contains("INTERNAL-POLICY") && all.contains("Random"),
        "{all}"
    );
    assert_eq!(ask(&agent, &["services", "-A", "-o", "name"]).out, "shop/web\n");
    let one: Value = serde_json::from_str(&ask(&agent, &["services", "shop/web", "-o", "json"]).out).unwrap();
    assert_eq!(one["id"], "shop/web");
    let yaml = ask(&agent, &["services", "shop/web", "-o", "yaml"]).out;
    assert!(yaml.contains("id: shop/web"), "{yaml}");

    let backends = ask(&agent, &["backends", "shop/web"]).out;
    assert!(backends.contains("80/TCP (http)   10.1.0.7:8080   ready   no      1"), "{backends}");
    let json: Value =
        serde_json::from_str(&ask(&agent, &["backends", "shop/web", "-o", "json"]).out).unwrap();
    assert_eq!((&json[0]["service"], &json[0]["address"]), (&"shop/web".into(), &"10.1.0.7".into()));
}

#[test]
fn labels_select_services() {
    let folder = folder();
    let labelled = web("api", 8).replacen("namespace: shop", "namespace: shop, labels: {app: api}", 1);
    fs::write(folder.path().join("manifests/api.yaml"), labelled).unwrap();
    let agent = Agent::start(folder.path());
    for (selector, expected) in [("app=api", "shop/api\n"), ("!app", "shop/web\n"), ("app in (x)", "")] {
        let run = ask(&agent, &["services", "-A", "-o", "name", "-l", selector]);
        assert_eq!((run.code, run.out.as_str()), (0, expected), "{selector}");
    }
    assert_eq!(ask(&agent, &["services", "-l", "=x"]).code, 2);
}

#[test]
fn a_service_that_is_not_there_is_answered_with_what_was_probably_meant() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    for command in ["services", "backends"] {
        let run = ask(&agent, &[command, "shop/wbe"]);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{command}");
        assert!(run.err.contains("did you mean shop/web?"), "{}", run.err);
    }
}

#[test]
fn events_say_what_changed_and_what_renderers_made_of_it() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["events"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(run.out.contains("snapshot") && run.out.contains("dry-run "), "{}", run.out);
    assert_eq!(ask(&agent, &["events", "shop/web", "-o", "name"]).out, "1\n");
    for chosen in [&["web", "-n", "shop"][..], &["-n", "shop"], &["-l", "!app"], &["-A"]] {
        let run = ask(&agent, &[&["events", "-o", "name"], chosen].concat());
        assert_eq!((run.code, run.out.as_str()), (0, "1\n"), "{chosen:?}");
    }
    for other in [&["shop/wbe"][..], &["web"], &["-n", "other"], &["-l", "app"]] {
        let run = ask(&agent, &[&["events"], other].concat());
        assert_eq!((run.code, run.out.as_str()), (0, ""), "{other:?}");
        assert!(run.err.contains("no events found"), "{}", run.err);
        let is_name = !other[0].starts_with('-');
        assert_eq!(run.err.contains("did you mean shop/web?"), is_name, "{}", run.err);
    }
}

#[test]
fn status_is_good_until_something_is_wrong_and_then_says_what() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let well = ask(&agent, &["status"]);
    assert_eq!((well.code, well.err.as_str()), (0, ""));
    for part in [
        "node      n1",
        "agent     ready",
        "1 service, 1 port, 1 backend; 0 in quarantine",
        "dry-run    idle",
    ] {
        assert!(well.out.contains(part), "{part} is not in:\n{}", well.out);
    }
    fs::write(folder.path().join("manifests/bad.yaml"), web("bad", 8).replace("port: 80,", "port: 99999,"))
        .unwrap();
    agent.wait_for("/quarantine", |answer| answer.contains("shop/bad"));
    let ill = ask(&agent, &["status"]);
    assert_eq!(ill.code, 1);
    assert!(ill.out.contains("shop/bad: spec.ports[0].port: 99999 is not a number"), "{}", ill.out);
    let json: Value = serde_json::from_str(&ask(&agent, &["status", "-o", "json"]).out).unwrap();
    assert_eq!((&json["status"]["node"], &json["sizes"]["services"]), (&"n1".into(), &1.into()));
}

#[test]
fn top_says_why_nothing_counts_where_nothing_does() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["top", "--once"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("no renderer that counts connections runs"), "{}", run.err);
    assert_eq!(ask(&agent, &["top", "--interval", "1ms"]).code, 2);
}

#[test]
fn what_comes_later_is_shown_while_somebody_watches() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let server = format!("http://{}", agent.address);
    let mut command = command(&["services", "-A", "--watch", "-o", "name", "--agent", &server]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut lines = lines.map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("shop/web"));
    fs::write(folder.path().join("manifests/api.yaml"), web("api", 8)).unwrap();
    assert_eq!(lines.next().as_deref(), Some("shop/api"), "what was shown is not shown again");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn without_an_agent_each_command_says_so_and_the_environment_names_another() {
    // Nobody listens on a port that was just given back.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for arguments in [&["services"][..], &["backends"], &["events"], &["status"], &["top", "--once"]] {
        let mut command = command(arguments);
        let output = command.env("CONTIV_AGENT", format!("http://{address}")).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(&address.to_string()) && error.contains("is the agent running?"), "{error}");
    }
}

#[test]
fn colours_are_for_terminals() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let plain = ask(&agent, &["status"]);
    assert!(!plain.out.contains('\x1b'), "{}", plain.out);
    // `script` runs it on a terminal of its own.
    let on_terminal = |settings: &str| {
        let contiv = env!("CARGO_BIN_EXE_contiv");
        let line = format!("{settings} {contiv} status --agent http://{}", agent.address);
        let mut script = std::process::Command::new("script");
        let output = script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(on_terminal("").contains("\x1b[32m"), "ready is green");
    assert!(!on_terminal("env NO_COLOR=1").contains("\x1b[3"), "nobody wants colours");
}
