//! The manifests of `examples/kubernetes` are accepted by the API server, allow only what is needed, and contain valid
//! configurations of contiv.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use contiv_tests::agent::binary;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("examples/kubernetes")
}

fn manifests(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(file)).expect("an example");
    serde_saphyr::from_multiple(&text).expect("YAML")
}

fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    manifests.iter().find(|manifest| manifest["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// The group, resource and verb of every permission of a role.
fn rights(role: &Value) -> BTreeSet<String> {
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().expect("a list");
        list.iter().map(|text| text.as_str().expect("text").to_owned()).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights.extend(texts(&rule["verbs"]).iter().map(|verb| format!("{group}/{resource} {verb}")));
            }
        }
    }
    rights
}

fn list_and_watch(resources: &[&str]) -> BTreeSet<String> {
    let both = |resource: &&str| ["list", "watch"].map(|verb| format!("{resource} {verb}"));
    resources.iter().flat_map(both).collect()
}

#[test]
fn agent_role_may_list_and_watch_only_what_it_reads() {
    let all = manifests("agent.yaml");
    let needed =
        ["/nodes", "/services", "discovery.k8s.io/endpointslices", "workload.linkerd.io/externalworkloads"];
    assert_eq!(rights(of_kind(&all, "ClusterRole")), list_and_watch(&needed));
}

#[test]
fn reflector_role_may_list_and_watch_only_what_it_reflects() {
    let all = manifests("reflector.yaml");
    let needed = [
        "/namespaces",
        "/nodes",
        "/pods",
        "/services",
        "/endpoints",
        "discovery.k8s.io/endpointslices",
        "workload.linkerd.io/externalworkloads",
    ];
    assert_eq!(rights(of_kind(&all, "ClusterRole")), list_and_watch(&needed));
}

#[test]
fn names_in_the_manifests_exist() {
    for (file, workload) in [("agent.yaml", "DaemonSet"), ("reflector.yaml", "Deployment")] {
        let all = manifests(file);
        let pod = &of_kind(&all, workload)["spec"]["template"]["spec"];
        let name = |kind| of_kind(&all, kind)["metadata"]["name"].clone();
        assert_eq!(pod["serviceAccountName"], name("ServiceAccount"));
        let binding = of_kind(&all, "ClusterRoleBinding");
        assert_eq!(binding["roleRef"]["name"], name("ClusterRole"));
        assert_eq!(binding["subjects"][0]["name"], name("ServiceAccount"));
        assert_eq!(
            binding["subjects"][0]["namespace"],
            of_kind(&all, "ServiceAccount")["metadata"]["namespace"]
        );
        let volumes = pod["volumes"].as_array().expect("volumes");
        assert!(volumes.iter().any(|volume| volume["configMap"]["name"] == name("ConfigMap")));
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        for mount in mounts {
            assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
        }
    }
}

#[test]
fn contiv_takes_configurations() {
    for (file, command, key) in
        [("agent.yaml", "agent", "agent.toml"), ("reflector.yaml", "controller", "controller.toml")]
    {
        let all = manifests(file);
        let config = of_kind(&all, "ConfigMap")["data"][key].as_str().expect("a configuration").to_owned();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(key);
        fs::write(&path, config).expect("written");
        let output = Command::new(binary().expect("contiv"))
            .env_clear()
            .args([command, "--check-config", "--config"])
            .arg(&path)
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
