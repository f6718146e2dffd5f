use std::fs;

use crate::contiv::{Run, command, finish, run_with_input, text, web};

/// A store of its own for each test.
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
fn apply_says_what_became_of_each_object() {
    let store = Store::new();
    let first = store.apply(&web("web", 7));
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    assert_eq!(first.out, "service/web created\nendpointslice/web-1 created\n");
    assert_eq!(store.apply(&web("web", 7)).out, "service/web unchanged\nendpointslice/web-1 unchanged\n");
    let changed = store.apply(&web("web", 7).replace("10.1.0.7", "10.1.0.8"));
    assert_eq!(changed.out, "service/web unchanged\nendpointslice/web-1 configured\n");
}

#[test]
fn apply_names_what_is_broken_and_applies_the_rest() {
    let store = Store::new();
    let run = store.apply(&web("web", 7).replace("[10.1.0.7]", "[10.1.0.777]"));
    assert_eq!((run.code, run.out.as_str()), (1, "service/web created\n"));
    for part in ["EndpointSlice shop/web-1", "endpoints[0].addresses[0]", "10.1.0.777"] {
        assert!(run.err.contains(part), "{part} is not in: {}", run.err);
    }
}

#[test]
fn more_objects_than_one_transaction_holds_are_all_applied() {
    let store = Store::new();
    let manifests: Vec<String> = (0..200).map(|i| web(&format!("s{i:03}"), i)).collect();
    let run = store.apply(&manifests.join("---\n"));
    assert_eq!((run.code, run.err.as_str(), run.out.lines().count()), (0, "", 400));
    assert!(run.out.lines().all(|line| line.ends_with(" created")), "{}", run.out);
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
        ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    );
    let cells: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(cells[..5], ["web", "ClusterIP", "10.96.0.7", "<none>", "80/TCP"]);
    let column = lines[0].find("TYPE").unwrap();
    assert!(lines[1..].iter().all(|line| line[column..].starts_with("ClusterIP")), "{}", run.out);

    let everywhere = store.run(&["get", "services,eps", "-A"]).out;
    assert!(everywhere.starts_with("NAMESPACE   NAME"), "{everywhere}");
    assert!(everywhere.contains("shop        web-1"), "{everywhere}");
}

#[test]
fn what_get_prints_as_yaml_or_json_applies_again() {
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
        assert_eq!(copy.run(&["get", "svc,eps", "-n", "shop", "-o", output]).out, printed.out);
    }
}

#[test]
fn get_of_nothing_says_where_else_to_look() {
    let store = Store::new();
    store.apply(&web("web", 7));
    let nothing = store.run(&["get", "svc"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (0, ""));
    assert_eq!(nothing.err, "no service found in namespace default; -A looks in every one\n");
    let missing = store.run(&["get", "svc", "web"]);
    assert_eq!((missing.code, missing.out.as_str()), (1, ""));
    assert!(missing.err.contains("service default/web is not there"), "{}", missing.err);
}

#[test]
fn delete_takes_objects_out_by_name_and_by_manifest() {
    let store = Store::new();
    let manifests = [web("web", 7), web("db", 8)].join("---\n");
    store.apply(&manifests);
    let by_name = store.run(&["delete", "svc", "web", "-n", "shop"]);
    assert_eq!((by_name.code, by_name.out.as_str()), (0, "service/web deleted\n"));
    let again = store.run(&["delete", "svc", "web", "-n", "shop"]);
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    assert!(again.err.contains("service shop/web is not there"), "{}", again.err);

    let file = store.0.path().with_extension("yaml");
    fs::write(&file, &manifests).unwrap();
    let by_file = store.run(&["delete", "-f", text(&file)]);
    assert_eq!(by_file.code, 1, "one was gone");
    assert_eq!(by_file.out, "endpointslice/web-1 deleted\nservice/db deleted\nendpointslice/db-1 deleted\n");
    let ignored = store.run(&["delete", "--ignore-not-found", "-f", text(&file)]);
    fs::remove_file(file).unwrap();
    assert_eq!((ignored.code, ignored.out.as_str(), ignored.err.as_str()), (0, "", ""));
    assert_eq!(store.run(&["get", "svc,eps", "-A"]).out, "");
}

#[test]
fn a_store_that_is_not_there_is_named() {
    let run = run_with_input(&["apply", "--store", "etcd://127.0.0.1:1", "-f", "-"], &web("web", 7));
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("127.0.0.1:1"), "{}", run.err);
}
