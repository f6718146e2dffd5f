use std::{fs, process::Command};

use crate::contiv::{finish, run, run_with_input, text, web};

const NODES: &str = "
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}
";

#[test]
fn manifests_on_standard_input_become_ruleset() {
    let run = run_with_input(&["render", "-f", "-"], &web("web", 7));
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(
        run.out.contains("10.96.0.7 . tcp . 80") && run.out.contains("10.1.0.7 . 8080"),
        "{}",
        run.out
    );
}

#[test]
fn result_does_not_depend_on_order_of_input() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.yaml", "b.yaml"].map(|name| folder.path().join(name));
    fs::write(&a, web("a", 1)).unwrap();
    fs::write(&b, web("b", 2)).unwrap();
    for output in ["nft", "json", "table"] {
        let one = run(&["render", "-o", output, "-f", text(&a), text(&b)]);
        let other = run(&["render", "-o", output, "-f", text(&b), "-f", text(&a)]);
        let whole = run(&["render", "-o", output, "-f", text(folder.path())]);
        assert_eq!((one.code, &one.out), (0, &other.out), "{output}");
        assert_eq!(one.out, whole.out, "{output}");
    }
}

/// The units' `RestrictSUIDSGID=` makes it fail with ENOSYS, since seccomp cannot see the mode of a file in its arguments.
#[test]
fn folder_is_read_where_systemd_forbids_openat2() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("shop")).unwrap();
    fs::write(folder.path().join("shop/web.yaml"), web("web", 7)).unwrap();
    let mut strace = Command::new("strace");
    strace.args([
        "--follow-forks",
        "--quiet=all",
        "--output=/dev/null",
        "--trace=openat2",
    ]);
    strace.args([
        "--inject=openat2:error=ENOSYS",
        env!("CARGO_BIN_EXE_contiv"),
        "render",
        "-f",
        text(folder.path()),
    ]);
    let run = finish(strace);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(run.out.contains("10.96.0.7 . tcp . 80"), "{}", run.out);
}

#[test]
fn json_has_the_renderer_input_and_table_is_for_people() {
    let run_as = |output| run_with_input(&["render", "-f", "-", "-o", output], &web("web", 7)).out;
    let json: serde_json::Value = serde_json::from_str(&run_as("json")).unwrap();
    assert_eq!(
        json["desired"]["services"]["shop/web"]["cluster_ips"][0], "10.96.0.7",
        "{json:#}"
    );
    let table = run_as("table");
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("shop/web ") && line.contains("10.1.0.7:8080")),
        "{table}"
    );
}

#[test]
fn broken_object_is_reported_by_file_and_field_rest_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(
        path("bad-port.yaml"),
        web("broken", 8).replace("port: 80,", "port: 99999,"),
    )
    .unwrap();
    fs::write(path("bad-yaml.yaml"), "apiVersion: v1\nkind: [\n").unwrap();
    fs::write(path("good.yaml"), web("web", 7)).unwrap();
    let run = run(&["render", "-f", text(folder.path())]);
    assert_eq!(run.code, 1);
    assert!(
        run.out.contains("10.96.0.7") && !run.out.contains("10.96.0.8"),
        "{}",
        run.out
    );
    let line = |name: &str| {
        run.err
            .lines()
            .find(|line| line.contains(name))
            .unwrap()
            .to_owned()
    };
    let problem = line("bad-port.yaml");
    for part in ["Service shop/broken", "spec.ports[0].port", "99999"] {
        assert!(problem.contains(part), "{part} is not in: {problem}");
    }
    assert!(line("bad-yaml.yaml").contains("line"), "{}", run.err);
    assert_eq!(run.err.lines().count(), 2, "{}", run.err);
}

#[test]
fn nothing_is_printed_when_nothing_can_be_read() {
    for input in [
        "kind: [\n",
        &web("web", 7)
            .replace("port: 80,", "port: 99999,")
            .replace("10.1.0.7", "x"),
    ] {
        for output in ["nft", "json", "table"] {
            let run = run_with_input(&["render", "-f", "-", "-o", output], input);
            assert_eq!((run.code, run.out.as_str()), (1, ""), "{input}");
            assert!(!run.err.is_empty(), "{input}");
        }
    }
    let run = run(&["render", "-f", "/nowhere.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""), "{run:?}");
    let empty = run_with_input(&["render", "-f", "-"], "");
    assert_eq!(empty.code, 0);
    assert!(
        empty.out.contains("table inet"),
        "no objects at all are good input: {}",
        empty.out
    );
}

#[test]
fn kinds_that_are_of_no_use_are_counted_or_named() {
    let input =
        web("web", 7) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    let brief = run_with_input(&["render", "-f", "-"], &input);
    assert_eq!(brief.code, 0);
    assert_eq!(
        brief.err,
        "note: 1 object of kinds that contiv does not use; -v names them\n"
    );
    let verbose = run_with_input(&["render", "-v", "-f", "-"], &input);
    assert!(
        verbose.err.contains("ConfigMap settings"),
        "{}",
        verbose.err
    );
}

#[test]
fn missing_path_is_named_and_rest_is_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    fs::write(&file, web("web", 7)).unwrap();
    let run = run(&["render", "-f", "/nowhere.yaml", text(&file)]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("10.96.0.7"), "{}", run.out);
    assert!(run.err.contains("/nowhere.yaml"), "{}", run.err);
}

#[test]
fn first_of_several_nodes_is_rendered_and_named() {
    let input = web("web", 7) + NODES;
    let first = run_with_input(&["render", "-o", "json", "-f", "-"], &input);
    assert_eq!(first.code, 0);
    assert_eq!(
        first.err,
        "note: rendered for node n1, the first of 2; --node-name chooses another\n"
    );
    assert!(
        first.out.contains("192.168.0.1") && !first.out.contains("192.168.0.2"),
        "{}",
        first.out
    );
    let chosen = run_with_input(
        &["render", "-o", "json", "-f", "-", "--node-name", "n2"],
        &input,
    );
    assert_eq!((chosen.code, chosen.err.as_str()), (0, ""));
    assert!(chosen.out.contains("192.168.0.2"), "{}", chosen.out);
}

#[test]
fn node_missing_in_the_input_is_reported() {
    let input = web("web", 7) + NODES;
    let run = run_with_input(&["render", "-f", "-", "--node-name", "n22"], &input);
    assert_eq!(run.code, 0);
    assert!(
        run.err
            .starts_with("note: the input has no object of this node, n22: "),
        "{}",
        run.err
    );
    assert!(
        run.err.trim_end().ends_with("did you mean n2?"),
        "{}",
        run.err
    );
    let without = run_with_input(&["render", "-f", "-", "--node-name", "n1"], &web("web", 7));
    assert!(
        without
            .err
            .starts_with("note: the input has no object of this node, n1: "),
        "{}",
        without.err
    );
}

#[test]
fn slips_of_fields_and_kinds_are_named_with_suggestion() {
    let input = web("web", 7)
        .replace("protocol:", "protocl:")
        .replace("ports: [{", "ports: [{protocl: UDP, ");
    let render = run_with_input(&["render", "-f", "-"], &input);
    assert_eq!(render.code, 0, "{}", render.err);
    assert!(render.err.starts_with("warning: -"), "{}", render.err);
    assert!(
        render.err.contains(".protocl: there is no such field"),
        "{}",
        render.err
    );
    assert!(
        render.err.contains("did you mean protocol?"),
        "{}",
        render.err
    );
    let folder = tempfile::tempdir().unwrap();
    let store = format!("dir:{}", text(folder.path()));
    let apply = run_with_input(&["apply", "--store", &store, "-f", "-"], &input);
    assert!(
        apply.out.contains("service/web") && apply.err.contains("did you mean protocol?"),
        "{}",
        apply.err
    );

    let input = web("web", 7).replace("kind: Service\n", "kind: Servce\n");
    let render = run_with_input(&["render", "-f", "-"], &input);
    assert_eq!(render.code, 1);
    assert!(
        render
            .err
            .contains("\"v1\" has no kind \"Servce\"; did you mean Service?"),
        "{}",
        render.err
    );
}

/// A service that selects external workloads, and two workloads, of which the second is not selected.
const WORKLOADS: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: billing, namespace: shop}
spec:
  clusterIP: 10.96.0.50
  selector: {app: billing}
  ports: [{port: 80, targetPort: web}]
---
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {name: vm-1, namespace: shop, labels: {app: billing}}
spec:
  meshTLS: {identity: vm-1, serverName: vm-1.example}
  workloadIPs: [{ip: 192.0.2.7}]
  ports: [{name: web, port: 8080}]
status: {conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {name: vm-2, namespace: shop, labels: {app: other}}
spec: {meshTLS: {identity: vm-2, serverName: vm-2.example}, workloadIPs: [{ip: 192.0.2.8}]}
";

#[test]
fn external_workloads_of_manifests_are_backends() {
    let run = run_with_input(&["render", "-f", "-", "-o", "table"], WORKLOADS);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out
            .lines()
            .any(|line| line.starts_with("shop/billing ") && line.contains("192.0.2.7:8080")),
        "{}",
        run.out
    );
    assert!(
        run.err
            .contains("note: ExternalWorkload shop/vm-2 is behind no service")
            && !run.err.contains("vm-1"),
        "{}",
        run.err
    );
    let trace = [
        "trace",
        "--from",
        "10.1.0.9",
        "--to",
        "10.96.0.50:80",
        "-f",
        "-",
    ];
    let traced = run_with_input(&trace, WORKLOADS);
    assert!(
        traced.out.contains("192.0.2.7"),
        "{} {}",
        traced.out,
        traced.err
    );
}
