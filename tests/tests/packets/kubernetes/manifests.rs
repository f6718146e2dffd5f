//! The manifests of `packaging/kubernetes/kustomization`: what their pods may do, and that contiv takes the documented configurations.
//! That they fit the schemas of Kubernetes is tested by `packaging/manifests --check`.
#![expect(clippy::expect_used, reason = "what is not as expected fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use contiv_tests::agent::binary;
use serde_json::{Value, json};

/// The kustomizations, with the kind of their workload and the command that it runs.
const KUSTOMIZATIONS: [(&str, &str, &str); 2] = [
    ("agent", "DaemonSet", "agent"),
    ("reflector", "Deployment", "controller"),
];

fn folder(kustomization: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    workspace
        .join("packaging/kubernetes/kustomization")
        .join(kustomization)
}

fn manifests(kustomization: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder(kustomization).join("manifests.yaml")).expect("manifests");
    serde_saphyr::from_multiple(&text).expect("YAML")
}

/// The generator of the `ConfigMap`.
fn generator(kustomization: &str) -> Value {
    let text = fs::read_to_string(folder(kustomization).join("kustomization.yaml"))
        .expect("a kustomization");
    let file: Value = serde_saphyr::from_str(&text).expect("YAML");
    file["configMapGenerator"][0].clone()
}

fn pod(kustomization: &str, workload: &str) -> Value {
    of_kind(&manifests(kustomization), workload)["spec"]["template"]["spec"].clone()
}

fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    manifests
        .iter()
        .find(|manifest| manifest["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind}"))
}

/// The group, resource and verb of every permission of a role.
fn rights(role: &Value) -> BTreeSet<String> {
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().expect("a list");
        list.iter()
            .map(|text| text.as_str().expect("text").to_owned())
            .collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights.extend(
                    texts(&rule["verbs"])
                        .iter()
                        .map(|verb| format!("{group}/{resource} {verb}")),
                );
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
    let all = manifests("agent");
    let needed = [
        "/nodes",
        "/services",
        "discovery.k8s.io/endpointslices",
        "workload.linkerd.io/externalworkloads",
    ];
    assert_eq!(
        rights(of_kind(&all, "ClusterRole")),
        list_and_watch(&needed)
    );
}

#[test]
fn reflector_role_may_list_and_watch_only_what_it_reflects() {
    let all = manifests("reflector");
    let needed = [
        "/namespaces",
        "/nodes",
        "/pods",
        "/services",
        "/endpoints",
        "discovery.k8s.io/endpointslices",
        "workload.linkerd.io/externalworkloads",
    ];
    assert_eq!(
        rights(of_kind(&all, "ClusterRole")),
        list_and_watch(&needed)
    );
}

#[test]
fn pods_may_do_only_what_they_need() {
    for (kustomization, workload, _) in KUSTOMIZATIONS {
        let pod = pod(kustomization, workload);
        let containers = pod["containers"].as_array().expect("containers");
        assert_eq!(
            (containers.len(), pod.get("initContainers")),
            (1, None),
            "{kustomization}"
        );
        assert_eq!(
            pod["securityContext"]["runAsNonRoot"], true,
            "{kustomization}"
        );
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
            "{kustomization}"
        );
        let security = &containers[0]["securityContext"];
        let capabilities = match kustomization {
            "agent" => json!({ "drop": ["ALL"], "add": ["NET_ADMIN"] }),
            _ => json!({ "drop": ["ALL"] }),
        };
        let needed = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": capabilities,
        });
        assert_eq!(*security, needed, "{kustomization}");
    }
}

#[test]
fn names_in_the_manifests_exist() {
    for (kustomization, workload, _) in KUSTOMIZATIONS {
        let all = manifests(kustomization);
        let pod = pod(kustomization, workload);
        let name = |kind| of_kind(&all, kind)["metadata"]["name"].clone();
        assert_eq!(pod["serviceAccountName"], name("ServiceAccount"));
        let binding = of_kind(&all, "ClusterRoleBinding");
        assert_eq!(binding["roleRef"]["name"], name("ClusterRole"));
        assert_eq!(binding["subjects"][0]["name"], name("ServiceAccount"));
        for object in [
            &binding["subjects"][0],
            &of_kind(&all, "ServiceAccount")["metadata"],
        ] {
            assert_eq!(object["namespace"], name("Namespace"));
        }
        let generator = generator(kustomization);
        let volumes = pod["volumes"].as_array().expect("volumes");
        assert!(
            volumes
                .iter()
                .any(|volume| volume["configMap"]["name"] == generator["name"])
        );
        let container = &pod["containers"][0];
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        for mount in mounts {
            assert!(
                volumes.iter().any(|volume| volume["name"] == mount["name"]),
                "{mount}"
            );
        }
        let keys: BTreeSet<&str> = generator["literals"]
            .as_array()
            .expect("literals")
            .iter()
            .map(key)
            .filter(|key| Path::new(key).extension().is_none())
            .collect();
        let references = container["env"].as_array().expect("variables").iter();
        let expected: BTreeSet<&str> = references
            .filter_map(|variable| variable["valueFrom"]["configMapKeyRef"]["key"].as_str())
            .collect();
        assert_eq!(keys, expected, "{kustomization}");
    }
}

/// The key of `key=value`.
fn key(literal: &Value) -> &str {
    literal
        .as_str()
        .expect("text")
        .split('=')
        .next()
        .unwrap_or_default()
}

/// The configuration in the overlay of docs/users/install.md for a kustomization.
fn documented_configuration(kustomization: &str, command: &str) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let page = fs::read_to_string(workspace.join("docs/users/install.md")).expect("the page");
    let (_, rest) = page
        .split_once(&format!(
            "packaging/kubernetes/kustomization/{kustomization}]"
        ))
        .expect("an overlay");
    let (_, rest) = rest.split_once("# cluster.yaml\n").expect("its values");
    let values: Value =
        serde_saphyr::from_str(rest.split("```").next().unwrap_or_default()).expect("YAML");
    values["data"][format!("{command}.toml")]
        .as_str()
        .expect("a configuration")
        .to_owned()
}

#[test]
fn contiv_takes_documented_configurations() {
    let folder = tempfile::tempdir().expect("a folder");
    for (kustomization, _, command) in KUSTOMIZATIONS {
        let path = folder.path().join(format!("{command}.toml"));
        fs::write(&path, documented_configuration(kustomization, command)).expect("written");
        let output = Command::new(binary().expect("contiv"))
            .env_clear()
            .args([command, "--check-config", "--config"])
            .arg(&path)
            .output()
            .expect("it starts");
        assert!(
            output.status.success(),
            "{kustomization}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
