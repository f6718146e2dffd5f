//! Does at once what the controller of `DaemonSets`, the scheduler and the kubelets do in a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{cluster::Cluster, resource::Resource};

/// Gives each `DaemonSet` a running pod on every node that its template selects, and its status. Takes away pods that no
/// `DaemonSet` wants. Taints are not looked at.
pub(super) fn reconcile(cluster: &mut Cluster) {
    if !cluster.had(Resource::DAEMON_SETS) {
        return;
    }
    let parsed = |resource| -> Vec<Value> {
        cluster
            .objects(resource)
            .values()
            .filter_map(|json| serde_json::from_str(json).ok())
            .collect()
    };
    let (daemon_sets, pods) = (parsed(Resource::DAEMON_SETS), parsed(Resource::PODS));
    let owned: Vec<&Value> = pods
        .iter()
        .filter(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet")
        .collect();
    let nodes = parsed(Resource::NODES);
    let mut wanted: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut statuses = Vec::new();
    for daemon_set in daemon_sets {
        let selected = nodes
            .iter()
            .filter(|node| is_selected(&daemon_set["spec"]["template"]["spec"], node));
        let wanted_pods: Vec<Value> = selected.map(|node| pod(&daemon_set, node)).collect();
        let count = wanted_pods.len();
        let status = json!({
            "observedGeneration": daemon_set["metadata"]["generation"],
            "desiredNumberScheduled": count, "currentNumberScheduled": count, "updatedNumberScheduled": count,
            "numberReady": count, "numberAvailable": count, "numberMisscheduled": 0,
        });
        wanted.extend(wanted_pods.into_iter().map(|pod| (id(&pod), pod)));
        if daemon_set["status"] != status {
            let mut changed = daemon_set;
            changed["status"] = status;
            statuses.push(changed);
        }
    }
    let is_current = |pod: &Value| {
        wanted.get(&id(pod)).is_some_and(|wanted| {
            ["/spec", "/metadata/labels", "/metadata/ownerReferences"]
                .iter()
                .all(|part| pod.pointer(part) == wanted.pointer(part))
        })
    };
    let current: BTreeSet<(String, String)> = owned
        .iter()
        .filter(|pod| is_current(pod))
        .map(|pod| id(pod))
        .collect();
    let unwanted = owned
        .iter()
        .map(|pod| id(pod))
        .filter(|id| !wanted.contains_key(id))
        .collect::<Vec<_>>();
    for (namespace, name) in unwanted {
        cluster.delete(Resource::PODS, &namespace, &name);
    }
    for (_, pod) in wanted.into_iter().filter(|(id, _)| !current.contains(id)) {
        cluster.put(Resource::PODS, pod);
    }
    for daemon_set in statuses {
        cluster.put(Resource::DAEMON_SETS, daemon_set);
    }
}

fn id(object: &Value) -> (String, String) {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}

fn pod(daemon_set: &Value, node: &Value) -> Value {
    let (owner, template) = (&daemon_set["metadata"], &daemon_set["spec"]["template"]);
    let node_name = node["metadata"]["name"].as_str().unwrap_or_default();
    let mut spec = template["spec"].clone();
    spec["nodeName"] = node_name.into();
    json!({
        "metadata": {
            "name": format!("{}-{node_name}", owner["name"].as_str().unwrap_or_default()),
            "namespace": owner["namespace"], "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner["name"], "uid": owner["uid"], "controller": true },
            ],
        },
        "spec": spec,
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// Whether a pod with this specification may be on this node, by its node selector and its affinity.
fn is_selected(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let has_labels = spec["nodeSelector"].as_object().is_none_or(|selector| {
        selector
            .iter()
            .all(|(name, value)| labels[name.as_str()] == *value)
    });
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let is_of_term = |term: &Value| {
        term["matchExpressions"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| is_met(one, labels)))
    };
    has_labels
        && required["nodeSelectorTerms"]
            .as_array()
            .is_none_or(|terms| terms.iter().any(is_of_term))
}

fn is_met(requirement: &Value, labels: &Value) -> bool {
    let label = &labels[requirement["key"].as_str().unwrap_or_default()];
    let has_value = requirement["values"]
        .as_array()
        .is_some_and(|values| values.contains(label));
    match requirement["operator"].as_str() {
        Some("In") => has_value,
        Some("NotIn") => !has_value,
        Some("Exists") => !label.is_null(),
        Some("DoesNotExist") => label.is_null(),
        _ => false,
    }
}
