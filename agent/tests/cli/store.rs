use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::Stdio,
};

use contiv_store_testing::ReservedPort;

use crate::{
    agent::{Agent, KillOnDrop, folder},
    contiv::{Run, command, finish, run_with_input, text, web},
};

/// A separate store for each test.
struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("dir:{}", text(self.0.path()))
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let mut command = command(arguments);
        command.env("CONTIV_STORE", self.url());
        finish(command)
    }

    fn apply(&self, manifests: &str) -> Run {
        run_with_input(&["apply", "--store", &self.url(), "-f", "-"], manifests)
    }
}

#[test]
fn apply_prints_the_result_for_each_object() {
    let store = Store::new();
    let first = store.apply(&web("web", 7));
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    assert_eq!(
        first.out,
        "service/web created\nendpointslice/web-1 created\n"
    );
    assert_eq!(
        store.apply(&web("web", 7)).out,
        "service/web unchanged\nendpointslice/web-1 unchanged\n"
    );
    let changed = store.apply(&web("web", 7).replace("10.1.0.7", "10.1.0.8"));
    assert_eq!(
        changed.out,
        "service/web unchanged\nendpointslice/web-1 configured\n"
    );
}

#[test]
fn apply_dry_run_writes_nothing() {
    let store = Store::new();
    let dry_run = |manifests: &str, argument: &str| {
        let arguments = ["apply", "--store", &store.url(), argument, "-f", "-"];
        let run = run_with_input(&arguments, manifests);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{argument}");
        run.out
    };
    for (argument, suffix) in [
        ("--dry-run", "(dry run)"),
        ("--dry-run=client", "(dry run)"),
        ("--dry-run=server", "(server dry run)"),
    ] {
        assert_eq!(
            dry_run(&web("web", 7), argument),
            format!("service/web created {suffix}\nendpointslice/web-1 created {suffix}\n")
        );
    }
    assert!(fs::read_dir(store.0.path()).unwrap().next().is_none());
    store.apply(&web("web", 7));
    let before = store.run(&["get", "svc,eps", "-A", "-o", "yaml"]).out;
    assert_eq!(
        dry_run(&web("web", 7).replace("10.1.0.7", "10.1.0.8"), "--dry-run"),
        "service/web unchanged (dry run)\nendpointslice/web-1 configured (dry run)\n"
    );
    assert_eq!(
        store.run(&["get", "svc,eps", "-A", "-o", "yaml"]).out,
        before
    );
    let invalid = web("web", 9).replace("10.1.0.9", "nowhere");
    let run = run_with_input(
        &["apply", "--store", &store.url(), "--dry-run", "-f", "-"],
        &invalid,
    );
    assert_eq!(
        (run.code, run.out.as_str()),
        (1, "service/web configured (dry run)\n")
    );
    assert!(run.err.contains("EndpointSlice"), "{}", run.err);
}

#[test]
fn jsonpath_and_custom_columns_print_fields_of_stored_objects() {
    let store = Store::new();
    store.apply(&[web("web", 7), web("db", 8)].join("---\n"));
    let get = |arguments: &[&str]| {
        let run = store.run(&[&["get", "-n", "shop"], arguments].concat());
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}");
        run.out
    };
    assert_eq!(
        get(&["svc", "-o", "jsonpath={.items[*].metadata.name}"]),
        "db web"
    );
    assert_eq!(
        get(&["svc", "web", "-o", "jsonpath={.spec.clusterIP}"]),
        "10.96.0.7"
    );
    let lines = r#"jsonpath={range .items[?(@.kind=="Service")]}{.metadata.name}{"\n"}{end}"#;
    assert_eq!(get(&["svc,eps", "-o", lines]), "db\nweb\n");
    assert_eq!(
        get(&[
            "svc",
            "-o",
            "custom-columns=NAME:.metadata.name,PORT:.spec.ports[*].port,X:.x"
        ]),
        "NAME   PORT   X\ndb     80     <none>\nweb    80     <none>\n"
    );
    assert_eq!(
        get(&[
            "svc",
            "-o",
            "custom-columns=NAME:.metadata.name",
            "--no-headers",
            "--sort-by",
            ".spec.clusterIP"
        ]),
        "web\ndb\n"
    );
    for (format, expected) in [
        (
            "jsonpath={.items[0",
            "column 8 of the template: no ] for this [",
        ),
        ("jsonpath", "a similar value exists: 'jsonpath='"),
        ("custom-columns=NAME", "expected TITLE:.FIELD"),
        (
            "jsonn",
            "possible values: table, wide, name, json, yaml, jsonpath=, custom-columns=",
        ),
    ] {
        let wrong = store.run(&["get", "svc", "-o", format]);
        assert!(wrong.code == 2 && wrong.err.contains(expected), "{wrong:?}");
    }
    let beyond = store.run(&["get", "svc", "-n", "shop", "-o", "jsonpath={.items[7]}"]);
    assert!(
        beyond.code == 1 && beyond.err.contains("the index 7 is outside of the list"),
        "{beyond:?}"
    );
}

#[test]
fn apply_without_status_keeps_stored_status() {
    let spec = "
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {name: vm}
spec:
  meshTLS: {identity: a, serverName: a}
  workloadIPs: [{ip: 192.0.2.7}]
";
    let workload = |status: &str| format!("{spec}{status}");
    let load_balancer = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, clusterIP: 10.96.0.7, ports: [{port: 80}]}
";
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p1}, spec: {nodeName: n1}";
    let store = Store::new();
    let get = |what: &str| store.run(&["get", what, "-o", "yaml"]).out;

    // As with linkerd, a new workload without a status is not ready, which is reported.
    let first = store.apply(spec);
    assert_eq!(
        (first.code, first.out.as_str()),
        (0, "externalworkload/vm created\n")
    );
    assert!(
        first
            .err
            .starts_with("note: no traffic for externalworkload/vm before"),
        "{}",
        first.err
    );

    let ready = "status: {conditions: [{type: Ready, status: 'True'}]}\n";
    for (manifest, status, kept) in [
        (spec.to_owned(), ready, "'True'"),
        (
            load_balancer.to_owned(),
            "status: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}\n",
            "203.0.113.9",
        ),
    ] {
        let apply = |status: &str| store.apply(&format!("{manifest}{status}"));
        assert_eq!(apply(status).err, "", "{manifest}");
        for nothing in ["", "status: {}\n", "status: {loadBalancer: {}}\n"] {
            let unchanged = apply(nothing);
            assert!(
                unchanged.out.ends_with(" unchanged\n"),
                "{nothing}: {}",
                unchanged.out
            );
            assert_eq!(unchanged.err, "");
        }
        let relabelled =
            store.apply(&manifest.replacen("metadata: {", "metadata: {labels: {a: b}, ", 1));
        assert!(
            relabelled.out.ends_with(" configured\n"),
            "{}",
            relabelled.out
        );
        let what = if kept == "'True'" {
            "externalworkload/vm"
        } else {
            "svc/web"
        };
        let now = get(what).replace('"', "'");
        assert!(now.contains(kept) && now.contains("a: b"), "{now}");
    }
    for (manifest, status, what) in [
        (
            node,
            "status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}",
            "node/n1",
        ),
        (
            pod,
            "status: {podIP: 192.0.2.1, podIPs: [{ip: 192.0.2.1}]}",
            "pod/p1",
        ),
    ] {
        assert_eq!(store.apply(&format!("{manifest}, {status}}}")).err, "");
        assert!(
            store
                .apply(&format!("{manifest}}}"))
                .out
                .ends_with(" unchanged\n")
        );
        assert!(get(what).contains("192.0.2.1"), "{}", get(what));
    }

    // An explicit status counts, even an empty list.
    store.apply(&workload(
        "status: {conditions: [{type: Ready, status: 'False'}]}\n",
    ));
    assert!(get("externalworkload/vm").contains("False"));
    store.apply(&workload("status: {conditions: []}\n"));
    assert!(!get("externalworkload/vm").contains("conditions"));
    // A service that is no longer a load balancer loses its load-balancer address.
    store.apply(&load_balancer.replace("LoadBalancer", "ClusterIP"));
    assert!(!get("svc/web").contains("203.0.113.9"));
}

#[test]
fn store_is_that_of_the_agents_configuration_by_default() {
    let (store, other) = (Store::new(), Store::new());
    let config = store.0.path().join("agent.toml");
    fs::write(
        &config,
        format!("store = \"dir:{}/objects\"\n", text(store.0.path())),
    )
    .unwrap();
    fs::create_dir(store.0.path().join("objects")).unwrap();
    let with_config = |arguments: &[&str], store: Option<&str>| {
        let mut command = command(arguments);
        command
            .env("CONTIV_CONFIG", &config)
            .envs(store.map(|url| ("CONTIV_STORE", url)));
        finish(command)
    };
    let manifest = other.0.path().join("web.yaml");
    fs::write(&manifest, web("web", 7)).unwrap();
    let applied = with_config(&["apply", "-f", text(&manifest)], None);
    assert_eq!((applied.code, applied.err.as_str()), (0, ""));
    assert_eq!(
        with_config(&["get", "svc", "-A", "-o", "name"], None).out,
        "service/web\n"
    );
    fs::remove_file(&manifest).unwrap();
    assert_eq!(
        with_config(&["get", "svc", "-A", "-o", "name"], Some(&other.url())).out,
        ""
    );
    fs::write(&config, "stroe = \"dir:/\"\n").unwrap();
    let wrong = with_config(&["get", "svc"], None);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong
            .err
            .contains("agent.toml:1: unknown key \"stroe\"; did you mean \"store\"?"),
        "{}",
        wrong.err
    );
}

#[test]
fn get_reads_the_store_of_the_running_agent() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let get = |arguments: &[&str]| {
        let mut command = command(&[&["get", "svc", "-A", "-o", "name"], arguments].concat());
        command.env("CONTIV_AGENT", &agent.address);
        finish(command)
    };
    let found = get(&[]);
    assert_eq!(
        (found.code, found.out.as_str()),
        (0, "service/web\n"),
        "{found:?}"
    );
    let store = format!("dir:{}", text(&folder.path().join("manifests")));
    let note = format!(
        "note: store {store}, that of the agent at http://{}\n",
        agent.address
    );
    assert_eq!(found.err, note);
    // What is given wins, and needs no note.
    let other = Store::new();
    let empty = get(&["--store", &other.url()]);
    assert_eq!(
        (empty.code, empty.out.as_str(), empty.err.as_str()),
        (0, "", ""),
        "{empty:?}"
    );
    let config = other.0.path().join("agent.toml");
    fs::write(&config, format!("store = \"{}\"\n", Store::new().url())).unwrap();
    let configured = get(&["--config", text(&config)]);
    assert!(
        !configured.out.contains("web") && !configured.err.contains("that of the agent at"),
        "{configured:?}"
    );
}

#[test]
fn get_without_agent_reads_the_configured_store_and_says_so() {
    // Nothing listens on it.
    let port = ReservedPort::new().unwrap();
    let address = port.address();
    let mut command = command(&["get", "svc", "-A", "-o", "name"]);
    command.env("CONTIV_AGENT", address.to_string());
    let found = finish(command);
    // Whether the folder exists depends on the machine.
    let note = found.err.lines().next().unwrap_or_default();
    assert!(
        note.starts_with("note: store dir:/etc/contiv/manifests, "),
        "{found:?}"
    );
    assert!(
        note.contains(&format!("no agent at http://{address}")),
        "{found:?}"
    );
}

#[test]
fn delete_with_silent_agent_requires_a_store() {
    // The kernel accepts connections to it, and nobody answers them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = command(&["delete", "svc", "none-such"]);
    command.env("CONTIV_AGENT", silent.local_addr().unwrap().to_string());
    let run = finish(command);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.err.contains("name it with --store") && !run.err.contains("note: store"),
        "{run:?}"
    );
}

#[test]
fn get_sorts_and_omits_the_header() {
    let store = Store::new();
    store.apply(&[web("a", 10), web("b", 9)].join("---\n"));
    for key in ["cluster-ip", ".spec.clusterIP", "{.metadata.name}"] {
        let run = store.run(&["get", "svc", "-n", "shop", "--no-headers", "--sort-by", key]);
        assert_eq!((run.code, run.err.as_str()), (0, ""));
        let names: Vec<&str> = run.out.lines().map(|line| &line[..1]).collect();
        assert_eq!(
            names,
            if key.contains("name") {
                ["a", "b"]
            } else {
                ["b", "a"]
            },
            "{key}"
        );
    }
    let wrong = store.run(&["get", "svc", "-n", "shop", "--sort-by", "size"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("unknown column \"size\""),
        "{wrong:?}"
    );
}

#[test]
fn store_without_configuration_is_the_default_one() {
    let run = finish(command(&["get", "svc", "--config", "/dev/null"]));
    // The folder may exist or not, depending on the machine.
    assert_ne!(run.code, 2, "{}", run.err);
    assert!(
        run.code == 0 || run.err.contains("/etc/contiv/manifests"),
        "{}",
        run.err
    );
    // Nothing listens on it.
    let port = ReservedPort::new().unwrap();
    let address = port.address();
    let mut plain = command(&["get", "svc"]);
    plain.env("CONTIV_AGENT", address.to_string());
    let plain = finish(plain);
    assert_eq!(plain.code, run.code, "{}", plain.err);
    assert!(
        plain
            .err
            .starts_with("note: store dir:/etc/contiv/manifests, "),
        "{}",
        plain.err
    );
}

#[test]
fn apply_names_broken_objects_and_applies_the_rest() {
    let store = Store::new();
    let run = store.apply(&web("web", 7).replace("[10.1.0.7]", "[10.1.0.777]"));
    assert_eq!((run.code, run.out.as_str()), (1, "service/web created\n"));
    for part in [
        "EndpointSlice shop/web-1",
        "endpoints[0].addresses[0]",
        "10.1.0.777",
    ] {
        assert!(run.err.contains(part), "{part} is not in: {}", run.err);
    }
}

#[test]
fn more_objects_than_one_transaction_holds_are_all_applied() {
    let store = Store::new();
    let manifests: Vec<String> = (0..200).map(|i| web(&format!("s{i:03}"), i)).collect();
    let run = store.apply(&manifests.join("---\n"));
    assert_eq!(
        (run.code, run.err.as_str(), run.out.lines().count()),
        (0, "", 400)
    );
    assert!(
        run.out.lines().all(|line| line.ends_with(" created")),
        "{}",
        run.out
    );
    assert_eq!(store.run(&["get", "eps", "-A"]).out.lines().count(), 201);
}

#[test]
fn get_prints_aligned_columns_as_kubectl_does() {
    let store = Store::new();
    store.apply(&[web("web", 7), web("a-long-name", 8)].join("---\n"));
    let run = store.run(&["get", "svc", "-n", "shop"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        [
            "NAME",
            "TYPE",
            "CLUSTER-IP",
            "EXTERNAL-IP",
            "PORT(S)",
            "AGE"
        ]
    );
    let cells: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(
        cells[..5],
        ["web", "ClusterIP", "10.96.0.7", "<none>", "80/TCP"]
    );
    let column = lines[0].find("TYPE").unwrap();
    assert!(
        lines[1..]
            .iter()
            .all(|line| line[column..].starts_with("ClusterIP")),
        "{}",
        run.out
    );

    let everywhere = store.run(&["get", "services,eps", "-A"]).out;
    assert!(everywhere.starts_with("NAMESPACE   NAME"), "{everywhere}");
    assert!(everywhere.contains("shop        web-1"), "{everywhere}");
}

#[test]
fn get_output_as_yaml_or_json_applies_again() {
    let store = Store::new();
    store.apply(&web("web", 7));
    for output in ["yaml", "json"] {
        let printed = store.run(&["get", "svc,eps", "-n", "shop", "-o", output]);
        assert_eq!(printed.code, 0);
        let again = store.apply(&printed.out);
        assert_eq!(
            again.out, "service/web unchanged\nendpointslice/web-1 unchanged\n",
            "{output}: {}",
            again.err
        );
        let copy = Store::new();
        assert_eq!(copy.apply(&printed.out).code, 0);
        assert_eq!(
            copy.run(&["get", "svc,eps", "-n", "shop", "-o", output])
                .out,
            printed.out
        );
    }
}

#[test]
fn get_without_objects_gives_a_hint() {
    let store = Store::new();
    store.apply(&web("web", 7));
    let nothing = store.run(&["get", "svc"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (0, ""));
    assert_eq!(
        nothing.err,
        "no service found in namespace default; -A looks in every one\n"
    );
    let missing = store.run(&["get", "svc", "web"]);
    assert_eq!((missing.code, missing.out.as_str()), (1, ""));
    assert!(
        missing
            .err
            .contains("service default/web is not there; did you mean shop/web?"),
        "{}",
        missing.err
    );
}

/// Two services in the namespace shop, with labels and a selector, and the slices of both.
fn labelled() -> Store {
    let store = Store::new();
    let labelled = |name: &str, last| {
        web(name, last)
            .replacen(
                "namespace: shop}",
                &format!("namespace: shop, labels: {{app: {name}}}}}"),
                1,
            )
            .replace("spec: {", &format!("spec: {{selector: {{pod: {name}}}, "))
    };
    assert_eq!(
        store
            .apply(&[labelled("web", 7), labelled("cart", 8)].join("---\n"))
            .code,
        0
    );
    store
}

#[test]
fn get_chooses_by_labels_and_by_names_with_kind_or_namespace() {
    let store = labelled();
    for (arguments, expected) in [
        (&["svc", "-A", "-l", "app=web"][..], "service/web\n"),
        (
            &["svc", "-n", "shop", "-l", "app in (web, cart)"],
            "service/cart\nservice/web\n",
        ),
        (
            &[
                "svc,eps",
                "-n",
                "shop",
                "-l",
                "!app,kubernetes.io/service-name=web",
            ],
            "endpointslice/web-1\n",
        ),
        (&["svc", "shop/web"], "service/web\n"),
        (
            &["service/web", "endpointslice/web-1", "-n", "shop"],
            "service/web\nendpointslice/web-1\n",
        ),
        (&["svc", "-A", "-l", "app=db"], ""),
    ] {
        let run = store.run(&[&["get", "-o", "name"], arguments].concat());
        assert_eq!(
            (run.code, run.out.as_str(), run.err.as_str()),
            (0, expected, ""),
            "{arguments:?}"
        );
    }
    let none = store.run(&["get", "svc", "-A", "-l", "app=db"]);
    assert_eq!(none.err, "no service with these labels found\n");
}

#[test]
fn get_wide_shows_more_columns() {
    let store = labelled();
    let titles = |arguments: &[&str]| {
        let run = store.run(&[&["get"], arguments].concat());
        let line = run.out.lines().next().unwrap_or_default().to_owned();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        titles(&["svc", "-A", "-o", "wide"]),
        "NAMESPACE NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR"
    );
    assert_eq!(
        titles(&["eps", "-A", "--show-labels"]),
        "NAMESPACE NAME ADDRESSTYPE PORTS ENDPOINTS LABELS"
    );
    let wide = store
        .run(&["get", "svc", "shop/web", "-o", "wide", "--show-labels"])
        .out;
    assert!(
        wide.contains("pod=web") && wide.contains("app=web"),
        "{wide}"
    );
    let json = store.run(&["get", "svc", "shop/web", "-o", "json"]).out;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["kind"],
        "Service"
    );
}

#[test]
fn misspelled_argument_gets_a_suggestion() {
    let store = labelled();
    for (arguments, code, expected) in [
        (&["get", "servcie"][..], 2, "did you mean service?"),
        (
            &["get", "svc", "wbe", "-n", "shop"],
            1,
            "did you mean shop/web?",
        ),
        (&["get", "svc", "web"], 1, "did you mean shop/web?"),
        (&["get", "svc/cart"], 1, "did you mean shop/cart?"),
        (
            &["delete", "svc", "shop/crat"],
            1,
            "did you mean shop/cart?",
        ),
        (&["delete", "svc"], 2, "with -l"),
        (&["delete"], 2, "by -f"),
        (&["get"], 2, "service/web"),
        (
            &["get", "svc", "web", "-l", "app=web"],
            2,
            "either names or labels",
        ),
        (&["get", "svc,eps", "--watch"], 2, "one kind"),
    ] {
        let run = store.run(arguments);
        assert_eq!(
            (run.code, run.out.as_str()),
            (code, ""),
            "{arguments:?}: {}",
            run.err
        );
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
    assert_eq!(
        store.run(&["get", "svc", "-A", "-o", "name"]).out,
        "service/cart\nservice/web\n"
    );
}

#[test]
fn get_watch_prints_added_changed_and_deleted_objects() {
    let store = labelled();
    let watch = |arguments: &[&str]| {
        let mut command = command(&[&["get", "svc", "-n", "shop", "--watch"], arguments].concat());
        command.env("CONTIV_STORE", store.url());
        let mut child = KillOnDrop(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        (child, lines)
    };
    let columns = |line: Option<String>, count: usize| {
        line.unwrap()
            .split_whitespace()
            .take(count)
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let (_table, mut table) = watch(&["--output-watch-events"]);
    let (_name, mut name) = watch(&["-o", "name", "-l", "app in (web, api)"]);
    assert_eq!(columns(table.next(), 3), "EVENT NAME TYPE");
    assert_eq!(columns(table.next(), 3), "ADDED cart ClusterIP");
    assert_eq!(columns(table.next(), 3), "ADDED web ClusterIP");
    assert_eq!(name.next().as_deref(), Some("service/web"));

    store.apply(&web("api", 9).replacen(
        "namespace: shop}",
        "namespace: shop, labels: {app: api}}",
        1,
    ));
    assert_eq!(columns(table.next(), 2), "ADDED api");
    assert_eq!(name.next().as_deref(), Some("service/api"));
    // Without the label it is deleted for watchers that select by it.
    store.apply(&web("api", 10));
    let changed = table.next().unwrap();
    assert!(
        changed.starts_with("MODIFIED") && changed.contains("10.96.0.10"),
        "{changed}"
    );
    assert_eq!(name.next().as_deref(), Some("service/api"));
    store.run(&["delete", "svc", "shop/web"]);
    assert_eq!(columns(table.next(), 2), "DELETED web");
    assert_eq!(name.next().as_deref(), Some("service/web"));
}

#[test]
fn delete_chooses_by_labels_and_by_kind_and_name() {
    let store = labelled();
    let by_label = store.run(&["delete", "svc", "-A", "-l", "app=web"]);
    assert_eq!(
        (by_label.code, by_label.out.as_str()),
        (0, "service/web deleted\n")
    );
    let by_name = store.run(&["delete", "svc/cart", "eps/cart-1", "-n", "shop"]);
    assert_eq!(
        (by_name.code, by_name.out.as_str()),
        (0, "service/cart deleted\nendpointslice/cart-1 deleted\n")
    );
    assert_eq!(
        store.run(&["get", "svc,eps", "-A", "-o", "name"]).out,
        "endpointslice/web-1\n"
    );
}

#[test]
fn delete_removes_objects_by_name_and_by_manifest() {
    let store = Store::new();
    let manifests = [web("web", 7), web("db", 8)].join("---\n");
    store.apply(&manifests);
    let by_name = store.run(&["delete", "svc", "web", "-n", "shop"]);
    assert_eq!(
        (by_name.code, by_name.out.as_str()),
        (0, "service/web deleted\n")
    );
    let again = store.run(&["delete", "svc", "web", "-n", "shop"]);
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    assert!(
        again.err.contains("service shop/web is not there"),
        "{}",
        again.err
    );

    let file = store.0.path().with_extension("yaml");
    fs::write(&file, &manifests).unwrap();
    let by_file = store.run(&["delete", "-f", text(&file)]);
    assert_eq!(by_file.code, 1, "one was gone");
    assert_eq!(
        by_file.out,
        "endpointslice/web-1 deleted\nservice/db deleted\nendpointslice/db-1 deleted\n"
    );
    let ignored = store.run(&["delete", "--ignore-not-found", "-f", text(&file)]);
    fs::remove_file(file).unwrap();
    assert_eq!(
        (ignored.code, ignored.out.as_str(), ignored.err.as_str()),
        (0, "", "")
    );
    assert_eq!(store.run(&["get", "svc,eps", "-A"]).out, "");
}

#[test]
fn unreachable_store_is_named_in_the_error() {
    let run = run_with_input(
        &["apply", "--store", "etcd://127.0.0.1:1", "-f", "-"],
        &web("web", 7),
    );
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("127.0.0.1:1"), "{}", run.err);
}
