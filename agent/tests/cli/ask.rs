//! The commands that query a running agent.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Stdio,
};

use contiv_store_testing::ReservedPort;
use serde_json::Value;

use crate::{
    agent::{Agent, arguments, folder, get},
    contiv::{Run, command, run, text, web},
};

fn ask(agent: &Agent, arguments: &[&str]) -> Run {
    run(&[
        arguments,
        &["--agent", &format!("http://{}", agent.address)],
    ]
    .concat())
}

#[test]
fn services_and_their_backends_are_shown_in_every_form() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["services", "-n", "shop"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "NAME   TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   BACKENDS\n\
         web    ClusterIP   10.96.0.7    <none>        80/TCP    1\n"
    );
    let all = ask(&agent, &["services", "-A", "-o", "wide"]).out;
    assert!(
        all.starts_with("NAMESPACE") && all.contains("INTERNAL-POLICY") && all.contains("Random"),
        "{all}"
    );
    assert_eq!(
        ask(&agent, &["services", "-A", "-o", "name"]).out,
        "shop/web\n"
    );
    let one: Value =
        serde_json::from_str(&ask(&agent, &["services", "shop/web", "-o", "json"]).out).unwrap();
    assert_eq!(one["id"], "shop/web");
    let yaml = ask(&agent, &["services", "shop/web", "-o", "yaml"]).out;
    assert!(yaml.contains("id: shop/web"), "{yaml}");

    let backends = ask(&agent, &["backends", "shop/web"]).out;
    assert!(
        backends.contains("80/TCP (http)   10.1.0.7:8080   ready   no      1"),
        "{backends}"
    );
    let json: Value =
        serde_json::from_str(&ask(&agent, &["backends", "shop/web", "-o", "json"]).out).unwrap();
    assert_eq!(
        (&json[0]["service"], &json[0]["address"]),
        (&"shop/web".into(), &"10.1.0.7".into())
    );
}

/// A running agent of the node `name`, with the services of `folder`.
fn node(name: &str, folder: &Path) -> Agent {
    let mut arguments = arguments(folder, "127.0.0.1:0");
    let node = arguments.iter().position(|argument| argument == "n1");
    name.clone_into(&mut arguments[node.unwrap()]);
    Agent::start_waiting_for(&arguments, "ready: ")
}

/// Two agents, of which only that of n2 has the service shop/db, and the arguments that name both.
fn two_nodes() -> ([tempfile::TempDir; 2], [Agent; 2], Vec<String>) {
    let (one, two) = (folder(), folder());
    fs::write(two.path().join("manifests/db.yaml"), web("db", 9)).unwrap();
    let agents = [node("n1", one.path()), node("n2", two.path())];
    let named = |agent: &Agent| ["--agent".to_owned(), agent.address.clone()];
    let arguments = agents.iter().flat_map(named).collect();
    ([one, two], agents, arguments)
}

#[test]
fn several_agents_explain_a_connection_by_node() {
    let (_folders, _agents, both) = two_nodes();
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    let trace = |to: &str, more: &[&str]| {
        run(&[&["trace", "--from", "10.244.1.5", "--to", to], more, &both].concat())
    };
    let same = trace("10.96.0.7:80", &[]);
    assert_eq!((same.code, same.err.as_str()), (0, ""));
    assert!(
        same.out.starts_with("served on n1, n2\n\nNODE n1, n2\n"),
        "{same:?}"
    );
    let other = trace("10.96.0.9:80", &[]);
    assert!(
        other
            .out
            .starts_with("no service on n1; served on n2\n\nNODE n1\n")
            && other.out.contains("\n\nNODE n2\n"),
        "{other:?}"
    );
    let all: Value = serde_json::from_str(&trace("shop/web", &["-o", "json"]).out).unwrap();
    assert_eq!(
        (&all[0]["node"], &all[1]["node"]),
        (&"n1".into(), &"n2".into())
    );
    let of_kernel = trace("10.96.0.7:80", &["--kernel"]);
    assert_eq!(of_kernel.code, 2, "{of_kernel:?}");
    let missing = trace("shop/db", &[]);
    assert!(
        missing.code == 1
            && missing
                .err
                .starts_with("error: n1: there is no service shop/db")
            && missing.out.starts_with("served on n2\n"),
        "{missing:?}"
    );

    let why = |to: &str| run(&[&["why", "--from", "10.244.1.5", "--to", to], &both[..]].concat());
    let nowhere = why("shop/nothing");
    assert_eq!(nowhere.code, 1, "{nowhere:?}");
    assert!(
        nowhere.out.starts_with("fails (") && nowhere.out.contains(") on n1, n2\n\nNODE n1, n2\n"),
        "{nowhere:?}"
    );
    let partly = why("shop/db");
    assert!(
        partly.out.starts_with("fails (there is no service shop/db")
            && partly.out.contains(") on n1; "),
        "{partly:?}"
    );
    let nobody = run(&[
        "why",
        "--from",
        "pod/shop/nobody",
        "--to",
        "10.96.0.7:80",
        both[0],
        both[1],
        both[2],
        both[3],
        "-o",
        "json",
    ]);
    let all: Value = serde_json::from_str(&nobody.out).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 2, "none has it: {all:#}");
}

#[test]
fn several_agents_describe_services_and_follow_events() {
    let (folders, _agents, both) = two_nodes();
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    let describe = |arguments: &[&str]| run(&[&["describe", "svc"], arguments, &both].concat());
    let web_of_both = describe(&["web", "-n", "shop"]);
    assert_eq!((web_of_both.code, web_of_both.err.as_str()), (0, ""));
    let nodes: Vec<&str> = web_of_both
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("Node:"))
        .map(str::trim)
        .collect();
    assert_eq!(nodes, ["n1", "n2"]);
    let db = describe(&["db", "-n", "shop", "-o", "json"]);
    assert!(
        db.code == 1
            && db
                .err
                .starts_with("n1: error: the agent has no service shop/db"),
        "{db:?}"
    );
    let all: Value = serde_json::from_str(&db.out).unwrap();
    assert_eq!(
        (&all[0]["node"], &all[0]["id"]),
        (&"n2".into(), &"shop/db".into())
    );

    let top = run(&[&["top", "--once"], &both[..]].concat());
    assert!(
        top.code == 1
            && top.err.starts_with("error: no agent answers\n")
            && top
                .err
                .matches("no renderer that counts connections runs")
                .count()
                == 2,
        "{top:?}"
    );

    let mut command = command(&[&["events", "--watch", "--no-headers"], &both[..]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut lines = lines.map(Result::unwrap);
    let mut wait_for = |node: &str, what: &str| {
        let is_it = |line: &String| line.starts_with(node) && line.contains(what);
        assert!(lines.any(|line| is_it(&line)), "{node}: {what}");
    };
    wait_for("n1", "");
    for (folder, node) in folders.iter().zip(["n1", "n2"]) {
        fs::write(folder.path().join("manifests/api.yaml"), web("api", 8)).unwrap();
        wait_for(node, "change");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn several_agents_are_asked_at_once() {
    let (one, two) = (folder(), folder());
    fs::write(two.path().join("manifests/db.yaml"), web("db", 9)).unwrap();
    let (n1, n2) = (node("n1", one.path()), node("n2", two.path()));
    let file = one.path().join("agents");
    let both = format!("# a rack\n{}\nhttp://{}\n", n1.address, n2.address);
    fs::write(&file, &both).unwrap();
    let ask = |arguments: &[&str]| run(&[arguments, &["--agents", text(&file)]].concat());
    let services = ask(&["services", "-n", "shop"]);
    assert_eq!((services.code, services.err.as_str()), (0, ""));
    assert_eq!(
        services.out,
        "NODE   NAME   TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   BACKENDS\n\
         n1     web    ClusterIP   10.96.0.7    <none>        80/TCP    1\n\
         n2     db     ClusterIP   10.96.0.9    <none>        80/TCP    1\n\
         n2     web    ClusterIP   10.96.0.7    <none>        80/TCP    1\n"
    );
    let fields = r#"jsonpath={range .items[*]}{.node}/{.service}{"\n"}{end}"#;
    let backends = ask(&["backends", "-n", "shop", "-o", fields]).out;
    assert_eq!(backends, "n1/shop/web\nn2/shop/db\nn2/shop/web\n");
    let events = ask(&["events", "--sort-by", ".start", "-o", "json"]);
    let events: Value = serde_json::from_str(&events.out).unwrap();
    let of: BTreeSet<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["node"].as_str())
        .collect();
    assert_eq!(of, ["n1", "n2"].into());
    let checks = ask(&["health-checks", "-A"]);
    assert_eq!((checks.code, checks.out.as_str()), (0, ""), "{checks:?}");
    assert!(
        checks.err.starts_with("n1: no health checks found\nn2: "),
        "{checks:?}"
    );

    let newest = ask(&["events", "--last", "1", "-o", "name"]);
    assert_eq!(newest.out.lines().count(), 1, "{newest:?}");
    let columns = ask(&[
        "status",
        "-o",
        "custom-columns=NODE:.node,LAG:.lag_revisions",
    ]);
    assert_eq!(columns.out, "NODE   LAG\nn1     0\nn2     0\n");

    // Two addresses of one node, and an agent that is silent.
    let (_, port) = n1.address.rsplit_once(':').unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let agents = [
        n1.address.clone(),
        format!("localhost:{port}"),
        silent.local_addr().unwrap().to_string(),
    ];
    let agents = agents.iter().flat_map(|agent| ["--agent", agent]);
    let arguments: Vec<&str> = ["services", "-A", "-o", "name"]
        .into_iter()
        .chain(agents)
        .collect();
    let services = run(&arguments);
    assert_eq!((services.code, services.out.as_str()), (1, "shop/web\n"));
    for expected in [
        "is left out: it answers for the node n1, as http://",
        "has not answered within 4 s",
    ] {
        assert!(services.err.contains(expected), "{services:?}");
    }

    // A service that one of them does not have.
    let named = ask(&["services", "shop/db", "--no-headers"]);
    assert!(
        named.code == 1 && named.out.starts_with("n2") && named.out.lines().count() == 1,
        "{named:?}"
    );
    assert!(
        named
            .err
            .starts_with("n1: error: the agent has no service shop/db"),
        "{named:?}"
    );

    // One that does not answer hides nothing.
    let port = ReservedPort::new().unwrap();
    let absent = format!("http://{}", port.address());
    let (first, second) = (n1.address.as_str(), n2.address.as_str());
    let status = run(&[
        "status", "--agent", first, "--agent", &absent, "--agent", second,
    ]);
    assert_eq!(status.code, 1, "{status:?}");
    for line in [
        "n1 ",
        "n2 ",
        &format!("{absent}: no answer: no agent at {absent}"),
        "3 nodes: 2 healthy, 1 without an answer",
    ] {
        assert!(
            status.out.lines().any(|found| found.starts_with(line)),
            "{line}: {}",
            status.out
        );
    }
    fs::write(&file, format!("{both}{absent}\n")).unwrap();
    let services = ask(&["services", "-A", "-o", "name"]);
    assert_eq!(
        (services.code, services.out.as_str()),
        (1, "shop/web\nshop/db\nshop/web\n")
    );
    assert!(
        services
            .err
            .starts_with(&format!("error: no agent at {absent}"))
            && services.err.lines().count() == 1,
        "{services:?}"
    );

    let nothing = run(&["services", "--agents", "/nowhere"]);
    assert!(
        nothing.code == 2 && nothing.err.contains("failed to read /nowhere"),
        "{nothing:?}"
    );
}

#[test]
fn rows_are_sorted_and_stand_without_header_on_demand() {
    let folder = folder();
    let others = [web("api", 10), web("db", 9)].join("---\n");
    fs::write(folder.path().join("manifests/others.yaml"), others).unwrap();
    let agent = Agent::start(folder.path());
    let names = |arguments: &[&str]| {
        let run = ask(&agent, &[&["services", "-n", "shop"], arguments].concat());
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}");
        let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        run.out.lines().map(first).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&["--no-headers"]), "api db web");
    assert_eq!(names(&["--sort-by", "cluster-ip"]), "NAME web db api");
    assert_eq!(
        names(&["--sort-by", ".cluster_ips[0]", "--no-headers"]),
        "web db api"
    );
    assert_eq!(
        names(&["--sort-by", "cluster-ip", "-o", "name"]),
        "shop/web shop/db shop/api"
    );
    let wrong = ask(&agent, &["services", "-n", "shop", "--sort-by", "size"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("valid columns: name, type, cluster-ip"),
        "{wrong:?}"
    );
    let backends = ask(
        &agent,
        &[
            "backends",
            "-n",
            "shop",
            "--sort-by",
            "backend",
            "--no-headers",
        ],
    )
    .out;
    let of: Vec<&str> = backends
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(of, ["web", "db", "api"], "{backends}");
    assert_eq!(
        ask(&agent, &["events", "--no-headers", "--last", "1"])
            .out
            .lines()
            .count(),
        1
    );
}

#[test]
fn types_are_those_of_stored_services() {
    let folder = folder();
    let port = "spec: {type: NodePort, ";
    let node_port = web("np", 8)
        .replacen("spec: {", port, 1)
        .replace("port: 80,", "port: 80, nodePort: 30080,");
    let balancer = web("lb", 9).replacen("spec: {", "spec: {type: LoadBalancer, ", 1);
    fs::write(
        folder.path().join("manifests/more.yaml"),
        [node_port, balancer].join("---\n"),
    )
    .unwrap();
    let agent = Agent::start(folder.path());
    let all = ask(&agent, &["services", "-A", "--no-headers"]).out;
    let types: Vec<&str> = all
        .lines()
        .map(|line| line.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(types, ["LoadBalancer", "NodePort", "ClusterIP"], "{all}");
}

#[test]
fn services_left_to_another_proxy_are_mentioned() {
    let folder = folder();
    let label = "namespace: shop, labels: {service.kubernetes.io/service-proxy-name: cilium}";
    let other = web("db", 8).replacen("namespace: shop", label, 1);
    fs::write(folder.path().join("manifests/other.yaml"), other).unwrap();
    let agent = Agent::start(folder.path());
    let note = "note: left to another proxy by the label service.kubernetes.io/service-proxy-name: shop/db (cilium)\n";
    let all = ask(&agent, &["services", "-A"]);
    assert_eq!((all.code, all.err.as_str()), (0, note));
    assert!(
        ask(&agent, &["status"])
            .out
            .contains("1 service to another proxy by label")
    );
    let named = ask(&agent, &["services", "shop/db"]);
    assert!(named.code == 1 && named.err.contains(note), "{named:?}");
    assert_eq!(
        ask(&agent, &["services"]).err.matches("note:").count(),
        0,
        "another namespace"
    );
    let manifests = folder.path().join("manifests");
    let rendered = run(&["render", "-f", manifests.to_str().unwrap()]);
    assert_eq!((rendered.code, rendered.err.as_str()), (0, note));
}

/// As many projects publish their manifests: an API server allocates the cluster IP of a Service without one.
const UNSERVED: &str = "
apiVersion: v1
kind: Service
metadata: {name: controller, namespace: ingress}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: ingress}
spec: {clusterIP: None, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: mail, namespace: ingress}
spec: {type: ExternalName, externalName: mail.example}
";

#[test]
fn service_without_address_is_listed_with_its_reason() {
    let folder = folder();
    let manifests = folder.path().join("manifests");
    fs::write(manifests.join("unserved.yaml"), UNSERVED).unwrap();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["services", "-n", "ingress"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        run.out,
        "NAME         TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   BACKENDS   NOT SERVED\n\
         controller   ClusterIP   <none>       <none>        80/TCP    <none>     no address\n"
    );
    let note = "note: not served, with neither an address nor a node port (an API server would allocate \
                spec.clusterIP): ingress/controller\n";
    assert_eq!(run.err, note);
    let rendered = crate::contiv::run(&["render", "-f", text(&manifests)]);
    assert_eq!((rendered.code, rendered.err.as_str()), (0, note));
    let json: Value =
        serde_json::from_str(&ask(&agent, &["services", "ingress/controller", "-o", "json"]).out)
            .unwrap();
    assert_eq!(
        (&json["id"], &json["not_served"]),
        (&"ingress/controller".into(), &"no-address".into())
    );
    let status = ask(&agent, &["status"]).out;
    assert!(
        status.contains("1 service, 1 port, 1 backend;"),
        "only what is served counts: {status}"
    );
    assert!(
        status.contains("unserved  1 service without address and node port: ingress/controller\n"),
        "{status}"
    );
    let page = get(&agent.address, "/?show=unserved");
    let link = "<a href=\"/page/services/ingress/controller\">ingress/controller</a>";
    assert!(
        page.contains(link) && page.contains("not served: no address"),
        "{page}"
    );
}

#[test]
fn headless_and_alias_services_are_listed_on_request() {
    let folder = folder();
    fs::write(folder.path().join("manifests/unserved.yaml"), UNSERVED).unwrap();
    let agent = Agent::start(folder.path());
    let all = ask(&agent, &["services", "-A", "--all"]).out;
    let lines: Vec<&str> = all.lines().map(str::trim_end).collect();
    let expected = [
        ("ingress     controller", "no address"),
        ("ingress     db           ClusterIP      None", "headless"),
        ("ingress     mail         ExternalName   <none>", "alias"),
        ("shop        web", "1"),
    ];
    assert_eq!(lines.len(), 5, "{all}");
    for (line, (start, end)) in lines[1..].iter().zip(expected) {
        assert!(
            line.starts_with(start) && line.ends_with(end),
            "{start} {end}: {all}"
        );
    }
    assert_eq!(
        ask(&agent, &["services", "-A", "-o", "name"]).out,
        "ingress/controller\nshop/web\n"
    );
    for (named, reason) in [
        ("ingress/db", "it is headless"),
        ("ingress/mail", "an alias in DNS"),
    ] {
        for command in ["services", "backends"] {
            let run = ask(&agent, &[command, named]);
            assert!(
                run.code == 1 && run.err.contains(reason) && run.out.is_empty(),
                "{run:?}"
            );
        }
        let all = ask(&agent, &["services", "--all", named, "-o", "json"]);
        assert_eq!(all.code, 0, "{all:?}");
    }
}

#[test]
fn address_of_agent_needs_no_scheme() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = run(&["services", "-A", "-o", "name", "--agent", &agent.address]);
    assert_eq!(
        (run.code, run.out.as_str(), run.err.as_str()),
        (0, "shop/web\n", "")
    );
}

#[test]
fn shell_completes_services_of_agent() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let complete = |words: &[&str]| {
        let mut command = command(&[&["--", "contiv"], words].concat());
        // As bash's completion function calls it, with the cursor in the last word.
        command
            .env("CONTIV_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command
            .env("_CLAP_IFS", "\n")
            .env("_CLAP_COMPLETE_COMP_TYPE", "9");
        command
            .env("_CLAP_COMPLETE_SPACE", "true")
            .env("CONTIV_AGENT", &agent.address);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for words in [
        &["services", "sh"][..],
        &["backends", "shop/"],
        &["events", "s"],
        &["trace", "--to", "sh"],
    ] {
        assert_eq!(complete(words).trim(), "shop/web", "{words:?}");
    }
    assert_eq!(complete(&["services", "-n", "s"]).trim(), "shop");
    assert_eq!(complete(&["get", "svc", "sh"]).trim(), "shop/web");
    assert_eq!(complete(&["get", "svc/w"]).trim(), "svc/web");
    assert_eq!(
        complete(&["get", "endpoints"]).trim(),
        "endpoints\nendpointslice"
    );
    assert!(complete(&["serv"]).contains("services"));
}

#[test]
fn health_checks_and_held_deletions_are_commands() {
    let folder = folder();
    let policy =
        "spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 31999, ";
    let balancer = web("lb", 9).replacen("spec: {", policy, 1);
    fs::write(folder.path().join("manifests/lb.yaml"), balancer).unwrap();
    let agent = Agent::start(folder.path());
    agent.wait_for("/health-checks", |answer| answer.contains("shop/lb"));
    let all = ask(&agent, &["health-checks", "-A"]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    assert!(
        all.out.contains("shop") && all.out.contains("31999") && all.out.contains("none"),
        "{}",
        all.out
    );
    assert_eq!(
        ask(&agent, &["health-checks", "-A", "-o", "name"]).out,
        "shop/lb\n"
    );
    let missing = ask(&agent, &["health-checks", "shop/web"]);
    assert!(
        missing.code == 1
            && missing
                .err
                .contains("the agent has no health check shop/web"),
        "{missing:?}"
    );

    let none = ask(&agent, &["confirm-deletions"]);
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "deletions: none are held\n"),
        "{none:?}"
    );
    let resync = ask(&agent, &["resync"]);
    assert!(
        resync.code == 0 && resync.out.starts_with("resync: requested"),
        "{resync:?}"
    );
    agent.wait_for("/controller/event-history", |history| {
        history.contains("\"POST /controller/resync\"")
    });
}

#[test]
fn status_of_dry_run_has_no_error_in_it() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["status"]);
    assert_eq!(run.code, 0);
    assert!(!run.out.contains("503"), "{}", run.out);
    assert!(
        run.out
            .ends_with("connections are not counted: that needs the renderer nftables\n"),
        "{}",
        run.out
    );
}

#[test]
fn events_name_manifest_that_cannot_be_read() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    fs::write(
        folder.path().join("manifests/bad.yaml"),
        web("bad", 8).replace("port: 80,", "port: 99999,"),
    )
    .unwrap();
    agent.wait_for("/quarantine", |answer| answer.contains("shop/bad"));
    let events = ask(&agent, &["events", "-o", "wide"]).out;
    for part in [
        "cannot be read: ",
        "bad.yaml",
        "Service shop/bad",
        "spec.ports[0].port",
    ] {
        assert!(events.contains(part), "{part} is not in:\n{events}");
    }
}

#[test]
fn watched_services_beyond_screen_are_counted() {
    let folder = folder();
    let many: Vec<String> = (20..60).map(|i| web(&format!("s{i}"), i)).collect();
    fs::write(
        folder.path().join("manifests/many.yaml"),
        many.join("---\n"),
    )
    .unwrap();
    let agent = Agent::start(folder.path());
    let contiv = env!("CARGO_BIN_EXE_contiv");
    let line = format!(
        "stty rows 24 cols 80 && timeout 5 {contiv} services -A -w --agent {}",
        agent.address
    );
    let output = std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .output()
        .unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    // A header and 41 services; one line is left for the cursor.
    assert!(screen.contains("… 20 more lines do not fit"), "{screen}");
}

/// Runs a command on a terminal of its own until it shows the text, presses the keys, and returns its exit code and its output.
/// A command that goes on is killed after a minute.
fn press(agent: &Agent, command: &str, until: &str, keys: &str) -> (Option<i32>, String) {
    let contiv = env!("CARGO_BIN_EXE_contiv");
    let line = format!(
        "timeout --foreground 60 {contiv} {command} --agent {}",
        agent.address
    );
    let mut script = std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut output, mut part) = (Vec::new(), [0; 4096]);
    let mut stdout = script.stdout.take().unwrap();
    while !String::from_utf8_lossy(&output).contains(until) {
        let read = stdout.read(&mut part).unwrap();
        assert!(
            read > 0,
            "{command} has ended: {}",
            String::from_utf8_lossy(&output)
        );
        output.extend_from_slice(&part[..read]);
    }
    let mut stdin = script.stdin.take().unwrap();
    stdin.write_all(keys.as_bytes()).unwrap();
    stdout.read_to_end(&mut output).unwrap();
    let code = script.wait().unwrap().code();
    (code, String::from_utf8_lossy(&output).into_owned())
}

#[test]
fn keys_end_watched_commands_on_terminals() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    for (command, until) in [
        ("status --watch", "in quarantine"),
        ("services -A -w", "10.96.0.7"),
    ] {
        for key in ["q", "\x1b"] {
            let (code, screen) = press(&agent, command, until, key);
            assert_eq!(code, Some(0), "{command}, {key:?}: {screen}");
        }
    }
    let (code, screen) = press(&agent, "status --watch", "in quarantine", "\x03");
    assert_eq!(code, Some(130), "Ctrl-C: {screen}");
}

/// Sends a signal to `services -w` on a terminal, once it has printed twice: the second time a key is awaited after the first.
/// `line` is what a shell does with that command. Returns what the shell prints.
fn end_watch(agent: &Agent, folder: &Path, line: impl Fn(&str) -> String, signal: &str) -> String {
    let pid = folder.join("pid");
    let watch = format!(
        "sh -c 'echo $$ > {}; exec {} services -A -w --agent {}'",
        text(&pid),
        env!("CARGO_BIN_EXE_contiv"),
        agent.address
    );
    let mut script = std::process::Command::new("script")
        .args(["-qc", &line(&watch), "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut output, mut part) = (Vec::new(), [0; 4096]);
    let mut stdout = script.stdout.take().unwrap();
    while String::from_utf8_lossy(&output)
        .matches("10.96.0.7")
        .count()
        < 2
    {
        let read = stdout.read(&mut part).unwrap();
        assert!(
            read > 0,
            "it has ended: {}",
            String::from_utf8_lossy(&output)
        );
        output.extend_from_slice(&part[..read]);
    }
    let process = fs::read_to_string(&pid).unwrap();
    let mut kill = std::process::Command::new("kill");
    assert!(
        kill.args([&format!("-{signal}"), process.trim()])
            .status()
            .unwrap()
            .success()
    );
    stdout.read_to_end(&mut output).unwrap();
    script.wait().unwrap();
    String::from_utf8_lossy(&output).into_owned()
}

#[test]
fn signal_ends_a_watch_in_the_background() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let line = |watch: &str| {
        format!("set -m; {watch} & wait $!; echo exit code $?; kill -KILL $! 2> /dev/null")
    };
    let output = end_watch(&agent, folder.path(), line, "TERM");
    // The number of a stopped process is another.
    assert!(output.contains("exit code 143"), "{output}");
}

#[test]
fn terminal_gets_its_mode_back_when_a_signal_ends_the_command() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    for signal in ["TERM", "HUP", "INT", "QUIT"] {
        let around = |watch: &str| {
            let [before, after] = [&before, &after].map(|file| text(file));
            format!("stty -g > {before}; {watch}; stty -g > {after}")
        };
        end_watch(&agent, folder.path(), around, signal);
        let modes = [&before, &after].map(|file| fs::read_to_string(file).unwrap());
        assert_eq!(modes[0], modes[1], "{signal}");
    }
}

/// A service of two nodes with a warning, an endpoint that is not ready, and a slice in quarantine.
const DESCRIBED: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop, labels: {app: shop}}
spec: {clusterIP: 10.96.0.20, externalTrafficPolicy: Local, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: shop, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.1.0.20], nodeName: n1}
- {addresses: [10.1.1.20], nodeName: n2, conditions: {ready: false}}
- {addresses: [10.1.2.20], nodeName: n3}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: east}}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
";

#[test]
fn described_service_shows_all_that_is_known_of_it() {
    let folder = folder();
    let manifest = folder.path().join("manifests/described.yaml");
    fs::write(&manifest, DESCRIBED).unwrap();
    let agent = Agent::start(folder.path());
    fs::write(&manifest, DESCRIBED.replace("[10.1.2.20]", "[nowhere]")).unwrap();
    let described = ask(&agent, &["describe", "svc", "shop", "-n", "shop"]);
    assert_eq!(
        (described.code, described.err.as_str()),
        (0, ""),
        "{described:?}"
    );
    for expected in [
        "Name:                     shop\nNamespace:                shop\nLabels:                   app=shop\n",
        "Type:                     ClusterIP\nServed:                   yes, by nftables\n",
        "Cluster IPs:              10.96.0.20\n",
        "Ports:                    80/TCP (http)\n",
        "External traffic policy:  Local\n",
        "Session affinity:         none\n",
        "Connections:              unknown: ",
        "  PORT            BACKEND          STATE       LOCAL   WEIGHT   NODE   ZONE\n",
        "  80/TCP (http)   10.1.0.20:8080   ready       yes     1        n1     east\n",
        "  -               10.1.1.20        not ready   -       -        n2     -\n",
        "Refused:                  <none>\n",
        "externalTrafficPolicy",
        "\n  endpointslice shop/shop-1: endpoints[2].addresses[0]: \"nowhere\" is not an IP address",
        "(in use: the rest)\n",
        "Events:\n  SEQ",
    ] {
        assert!(
            described.out.contains(expected),
            "{expected}: {}",
            described.out
        );
    }
    let json = ask(
        &agent,
        &["describe", "svc/shop", "-n", "shop", "-o", "json"],
    );
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (
            &json["service"]["id"],
            &json["backends"][0]["zone"],
            &json["unused_endpoints"][0]["node_name"]
        ),
        (&"shop/shop".into(), &"east".into(), &"n2".into())
    );
    let all = ask(
        &agent,
        &[
            "describe",
            "services",
            "-A",
            "-o",
            "jsonpath={.items[*].id}",
        ],
    );
    assert_eq!(all.out, "shop/shop shop/web");

    for (arguments, code, expected) in [
        (
            &["svc", "shop/web", "shop/wbe"][..],
            1,
            "the agent has no service shop/wbe; did you mean shop/web?",
        ),
        (
            &["svc", "-n", "none"],
            0,
            "no services found in namespace none",
        ),
        (
            &["pod", "a"],
            2,
            "`contiv get pod -o yaml` prints another object",
        ),
    ] {
        let run = ask(&agent, &[&["describe"], arguments].concat());
        assert!(run.code == code && run.err.contains(expected), "{run:?}");
    }
}

#[test]
fn names_of_fields_do_nothing_to_the_terminal() {
    let folder = folder();
    let field = web("odd", 40).replace("spec: {", r#"spec: {"co\e[31mlor\nerror: forged": 1, "#);
    fs::write(folder.path().join("manifests/odd.yaml"), field).unwrap();
    let agent = Agent::start(folder.path());
    agent.wait_for("/warnings", |answer| answer.contains("forged"));
    for arguments in [&["describe", "svc"][..], &["services"]] {
        let Run { out, err, .. } = ask(&agent, &[arguments, &["shop/odd"]].concat());
        let text = out + &err;
        let is_forged = text
            .lines()
            .any(|line| line.trim_start().starts_with("error: forged"));
        assert!(
            text.contains("forged") && !is_forged && !text.contains('\u{1b}'),
            "{text:?}"
        );
    }
}

/// A service and a slice of the service web that were never valid.
const NEVER_VALID: &str = "
apiVersion: v1
kind: Service
metadata: {name: bad, namespace: shop}
spec: {clusterIP: here, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-9, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 808000}]
endpoints: [{addresses: [10.1.0.7]}]
";

#[test]
fn objects_that_were_never_valid_are_described() {
    let folder = folder();
    fs::write(folder.path().join("manifests/bad.yaml"), NEVER_VALID).unwrap();
    let agent = Agent::start(folder.path());
    agent.wait_for("/quarantine", |answer| {
        answer.contains("shop/web-9") && answer.contains("shop/bad")
    });
    let names = ask(&agent, &["describe", "svc", "-n", "shop", "-o", "name"]);
    assert_eq!(
        (names.code, names.out.as_str()),
        (0, "shop/bad\nshop/web\n")
    );
    // The beginning of a name is enough.
    let web = ask(&agent, &["describe", "svc", "we", "-n", "shop"]);
    assert_eq!((web.code, web.err.as_str()), (0, ""));
    let line = "\n  EndpointSlice shop/web-9: ports[0].port: 808000";
    assert!(
        web.out.contains(line) && web.out.contains("(in use: nothing, its own by the name)\n"),
        "{}",
        web.out
    );
    let bad = ask(&agent, &["describe", "svc/bad", "-n", "shop"]).out;
    assert!(
        bad.contains("no: it is in quarantine") && !bad.contains("web-9"),
        "{bad}"
    );
}

#[test]
fn labels_select_services() {
    let folder = folder();
    let labelled =
        web("api", 8).replacen("namespace: shop", "namespace: shop, labels: {app: api}", 1);
    fs::write(folder.path().join("manifests/api.yaml"), labelled).unwrap();
    let agent = Agent::start(folder.path());
    for (selector, expected) in [
        ("app=api", "shop/api\n"),
        ("!app", "shop/web\n"),
        ("app in (x)", ""),
    ] {
        let run = ask(&agent, &["services", "-A", "-o", "name", "-l", selector]);
        assert_eq!((run.code, run.out.as_str()), (0, expected), "{selector}");
    }
    assert_eq!(ask(&agent, &["services", "-l", "=x"]).code, 2);
}

#[test]
fn unknown_service_suggests_similar_names() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    for command in ["services", "backends"] {
        let run = ask(&agent, &[command, "shop/wbe"]);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{command}");
        assert!(run.err.contains("did you mean shop/web?"), "{}", run.err);
    }
}

#[test]
fn events_show_the_change_and_the_result_of_each_renderer() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["events"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(
        run.out.contains("snapshot") && run.out.contains("dry-run "),
        "{}",
        run.out
    );
    assert_eq!(
        ask(&agent, &["events", "shop/web", "-o", "name"]).out,
        "1\n"
    );
    for chosen in [
        &["web", "-n", "shop"][..],
        &["-n", "shop"],
        &["-l", "!app"],
        &["-A"],
    ] {
        let run = ask(&agent, &[&["events", "-o", "name"], chosen].concat());
        assert_eq!((run.code, run.out.as_str()), (0, "1\n"), "{chosen:?}");
    }
    for other in [
        &["shop/wbe"][..],
        &["web"],
        &["-n", "other"],
        &["-l", "app"],
    ] {
        let run = ask(&agent, &[&["events"], other].concat());
        assert_eq!((run.code, run.out.as_str()), (0, ""), "{other:?}");
        assert!(run.err.contains("no events found"), "{}", run.err);
        let is_name = !other[0].starts_with('-');
        assert_eq!(
            run.err.contains("did you mean shop/web?"),
            is_name,
            "{}",
            run.err
        );
    }
}

#[test]
fn status_reports_each_problem_and_exit_code_1() {
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
    fs::write(
        folder.path().join("manifests/bad.yaml"),
        web("bad", 8).replace("port: 80,", "port: 99999,"),
    )
    .unwrap();
    agent.wait_for("/quarantine", |answer| answer.contains("shop/bad"));
    let ill = ask(&agent, &["status"]);
    assert_eq!(ill.code, 1);
    assert!(
        ill.out
            .contains("shop/bad: spec.ports[0].port: 99999 is not a number"),
        "{}",
        ill.out
    );
    let json: Value = serde_json::from_str(&ask(&agent, &["status", "-o", "json"]).out).unwrap();
    assert_eq!(
        (&json["status"]["node"], &json["sizes"]["services"]),
        (&"n1".into(), &1.into())
    );
}

#[test]
fn address_conflict_is_shown_by_status_services_and_trace() {
    let folder = folder();
    fs::write(folder.path().join("manifests/twin.yaml"), web("twin", 7)).unwrap();
    let agent = Agent::start(folder.path());
    let status = ask(&agent, &["status"]);
    assert_eq!(status.code, 1, "{}", status.out);
    let expected = "shop/web does not get 10.96.0.7:80/tcp, which shop/twin holds\n";
    assert!(status.out.contains(expected), "{}", status.out);
    let services = ask(&agent, &["services", "-n", "shop"]).out;
    assert!(
        services.lines().next().unwrap().ends_with("LOST"),
        "{services}"
    );
    assert!(
        services.contains("10.96.0.7:80/tcp to shop/twin"),
        "{services}"
    );
    // Neither has a creation time.
    let trace = ask(
        &agent,
        &["trace", "--from", "10.1.0.9", "--to", "10.96.0.7:80/tcp"],
    )
    .out;
    assert!(
        trace.contains("shop/twin holds it") && !trace.contains("is older"),
        "{trace}"
    );

    fs::remove_file(folder.path().join("manifests/twin.yaml")).unwrap();
    let start = std::time::Instant::now();
    while ask(&agent, &["status"]).code != 0 {
        assert!(
            start.elapsed().as_secs() < 60,
            "{}",
            ask(&agent, &["status"]).out
        );
    }
    assert!(!ask(&agent, &["services", "-A"]).out.contains("LOST"));
}

#[test]
fn top_without_counters_says_why() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let run = ask(&agent, &["top", "--once"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(
        run.err.contains("no renderer that counts connections runs"),
        "{}",
        run.err
    );
    assert_eq!(ask(&agent, &["top", "--interval", "1ms"]).code, 2);
}

#[test]
fn watch_shows_later_changes() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let server = format!("http://{}", agent.address);
    let mut command = command(&[
        "services", "-A", "--watch", "-o", "name", "--agent", &server,
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut lines = lines.map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("shop/web"));
    fs::write(folder.path().join("manifests/api.yaml"), web("api", 8)).unwrap();
    assert_eq!(
        lines.next().as_deref(),
        Some("shop/api"),
        "what was shown is not shown again"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn commands_without_agent_fail_and_environment_selects_another() {
    // Nothing listens on it.
    let port = ReservedPort::new().unwrap();
    let address = port.address();
    for arguments in [
        &["services"][..],
        &["backends"],
        &["events"],
        &["status"],
        &["top", "--once"],
    ] {
        let mut command = command(arguments);
        let output = command
            .env("CONTIV_AGENT", format!("http://{address}"))
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(
            error.contains(&address.to_string()) && error.contains("is the agent running?"),
            "{error}"
        );
    }
}

#[test]
fn colours_are_for_terminals() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let plain = ask(&agent, &["status"]);
    assert!(!plain.out.contains('\x1b'), "{}", plain.out);
    // `script` runs it on its own terminal.
    let on_terminal = |settings: &str| {
        let contiv = env!("CARGO_BIN_EXE_contiv");
        let line = format!(
            "{settings} {contiv} status --agent http://{}",
            agent.address
        );
        let mut script = std::process::Command::new("script");
        let output = script
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(on_terminal("").contains("\x1b[32m"), "ready is green");
    assert!(
        !on_terminal("env NO_COLOR=1").contains("\x1b[3"),
        "nobody wants colours"
    );
}

#[test]
fn stopped_agent_is_named_as_stopped() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    agent.signal("STOP");
    let run = ask(&agent, &["status"]);
    agent.signal("CONT");
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("is stopped (state T)") && run.err.contains("kill -CONT"),
        "{run:?}"
    );
    assert!(run.err.trim_end().lines().count() <= 2, "{run:?}");
}

#[test]
fn warnings_are_shown_until_the_object_is_mended() {
    let folder = folder();
    let manifest = folder.path().join("manifests/old.yaml");
    let old = web("old", 9).replace("port: 80,", "port: 80, nodePort: 30080, color: red,");
    fs::write(&manifest, &old).unwrap();
    let agent = Agent::start(folder.path());
    let status = ask(&agent, &["status"]);
    assert_eq!(status.code, 0, "{status:?}");
    for expected in [
        "0 in quarantine, 2 warnings\n",
        "\nWARNINGS\nservice shop/old: spec.ports[0].nodePort\n  it has no effect: only services of type NodePort",
        "\nService shop/old: spec.ports[0].color\n  there is no such field, and it has no effect\n",
    ] {
        assert!(status.out.contains(expected), "{expected}: {}", status.out);
    }
    let more = old.replace("old", "older");
    fs::write(folder.path().join("manifests/more.yaml"), &more).unwrap();
    agent.wait_for("/status", |status| status.contains("\"warnings\":4"));
    let few = ask(&agent, &["status"]).out;
    assert!(
        few.contains("\nand 2 more: `contiv status -o wide`\n"),
        "{few}"
    );
    let all = ask(&agent, &["status", "-o", "wide"]).out;
    assert!(
        all.contains("Service shop/older: spec.ports[0].color\n") && !all.contains(" more"),
        "{all}"
    );
    fs::remove_file(folder.path().join("manifests/more.yaml")).unwrap();
    agent.wait_for("/status", |status| status.contains("\"warnings\":2"));
    let services = ask(&agent, &["services", "shop/old"]);
    assert_eq!(
        (services.code, services.err.lines().count()),
        (0, 2),
        "{services:?}"
    );
    assert!(
        services
            .err
            .starts_with("warning: service shop/old: spec.ports[0].nodePort: it has no effect: ")
    );
    assert_eq!(ask(&agent, &["services", "shop/web"]).err, "");
    let json: Value = serde_json::from_str(&ask(&agent, &["status", "-o", "json"]).out).unwrap();
    assert_eq!(
        (&json["status"]["warnings"], &json["warnings"][0]["field"]),
        (&2.into(), &"spec.ports[0].nodePort".into())
    );
    agent.wait_for("/", |page| {
        page.contains(">Warnings</h2>") && page.contains("spec.ports[0].color")
    });

    fs::write(&manifest, web("old", 9)).unwrap();
    agent.wait_for("/status", |status| status.contains("\"warnings\":0"));
    assert!(!ask(&agent, &["status"]).out.contains("WARNINGS"));
}

#[test]
fn missing_node_needs_attention_and_the_near_name_is_named() {
    let folder = folder();
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}";
    fs::write(folder.path().join("manifests/node.yaml"), node).unwrap();
    let named = |name: &str| {
        let arguments = arguments(folder.path(), "127.0.0.1:0");
        let argument = |argument: String| {
            if argument == "n1" {
                name.to_owned()
            } else {
                argument
            }
        };
        let arguments: Vec<String> = arguments.into_iter().map(argument).collect();
        Agent::start_waiting_for(&arguments, "ready: ")
    };
    let agent = named("n1.example.com");
    let status = ask(&agent, &["status"]);
    assert_eq!(status.code, 1, "{status:?}");
    let expected = "name      the store has no Node object of this name: did you mean n1?";
    assert!(
        status.out.contains(expected) && status.out.contains("ready, but see below"),
        "{status:?}"
    );
    drop(agent);
    let status = ask(&named("n1"), &["status"]);
    assert!(
        status.code == 0 && !status.out.contains("\nname "),
        "{status:?}"
    );
}
