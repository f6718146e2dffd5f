//! Pods and nodes as the API server lists them, with the state of a pod in kubectl's words.

use std::collections::BTreeMap;

use serde::Deserialize;

const RUNNING: &str = "Running";

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node, also the one that a pod of a `DaemonSet` waits for; none if it may be any.
    pub node: Option<String>,
    /// `Running`, or why it does not run, in kubectl's words: `Pending`, `CrashLoopBackOff`, `Terminating`.
    pub state: String,
    /// More about the state, as far as Kubernetes tells: why it cannot be scheduled, how its container ended.
    pub reason: Option<String>,
    /// The ports of its containers, by name.
    pub ports: BTreeMap<String, u16>,
}

impl Pod {
    /// True if a container of it runs, whether or not the pod is ready.
    pub fn is_running(&self) -> bool {
        self.state == RUNNING
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its operating system, as in `linux`; none if its labels do not tell.
    pub system: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NodeObject {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, rename = "deletionTimestamp")]
    deleted: Option<String>,
}

impl From<NodeObject> for Node {
    fn from(NodeObject { metadata }: NodeObject) -> Self {
        Self {
            system: metadata.labels.get("kubernetes.io/os").cloned(),
            name: metadata.name,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct PodObject {
    metadata: Metadata,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    affinity: serde_json::Value,
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    ports: Vec<ContainerPort>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: String,
    container_port: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    status: String,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Stopped>,
    terminated: Option<Stopped>,
}

/// Why a container does not run.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Stopped {
    reason: Option<String>,
    message: Option<String>,
    exit_code: Option<i32>,
}

impl From<PodObject> for Pod {
    fn from(object: PodObject) -> Self {
        let PodObject {
            metadata,
            spec,
            status,
        } = object;
        let (state, reason) = match metadata.deleted {
            Some(_) => ("Terminating".to_owned(), None),
            None => status.state(),
        };
        let ports = spec
            .containers
            .iter()
            .flat_map(|container| &container.ports);
        Self {
            state,
            reason,
            ports: ports
                .map(|port| (port.name.clone(), port.container_port))
                .collect(),
            node: spec.node(),
            namespace: metadata.namespace,
            name: metadata.name,
        }
    }
}

impl PodSpec {
    /// The node of a pod that is not scheduled yet is in the affinity that the controller of a `DaemonSet` writes.
    fn node(&self) -> Option<String> {
        let scheduled = self.node_name.clone().filter(|name| !name.is_empty());
        scheduled.or_else(|| {
            let required =
                "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
            let field = self.affinity.pointer(required)?.pointer("/matchFields/0")?;
            let is_name = field["key"] == "metadata.name" && field["operator"] == "In";
            is_name
                .then(|| field["values"][0].as_str().map(str::to_owned))
                .flatten()
        })
    }
}

impl PodStatus {
    /// The state, and the reason if there is one: that of a container before that of the pod, as kubectl prints it.
    fn state(&self) -> (String, Option<String>) {
        for container in self
            .init_container_statuses
            .iter()
            .chain(&self.container_statuses)
        {
            let ContainerState {
                waiting,
                terminated,
            } = &container.state;
            let is_done = terminated
                .as_ref()
                .is_some_and(|ended| ended.exit_code == Some(0));
            let stopped = waiting
                .as_ref()
                .or(terminated.as_ref().filter(|_| !is_done));
            if let Some(Stopped {
                reason: Some(state),
                message,
                ..
            }) = stopped
            {
                let reason = message.clone().or_else(|| container.last_state.exit());
                return (state.clone(), reason);
            }
        }
        if self.phase == RUNNING {
            return (RUNNING.to_owned(), None);
        }
        let mut unmet = self
            .conditions
            .iter()
            .filter(|condition| condition.status != "True");
        let reason = self
            .message
            .clone()
            .or_else(|| unmet.find_map(|it| it.message.clone()));
        let phase = if self.phase.is_empty() {
            "Unknown"
        } else {
            &self.phase
        };
        (
            self.reason.clone().unwrap_or_else(|| phase.to_owned()),
            reason,
        )
    }
}

impl ContainerState {
    /// How it ended the last time.
    fn exit(&self) -> Option<String> {
        let Stopped {
            reason,
            message,
            exit_code,
        } = self.terminated.as_ref()?;
        let code = exit_code.map(|code| format!("exit code {code}"));
        let parts = [
            reason.clone(),
            code,
            message.clone().map(|text| text.trim().to_owned()),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value, status: &Value) -> Pod {
        let object = json!({"metadata": {"name": "a", "namespace": "contiv"}, "spec": spec, "status": status});
        serde_json::from_value::<PodObject>(object).unwrap().into()
    }

    #[test]
    fn pod_that_runs_has_node_and_named_ports() {
        let containers =
            json!([{"ports": [{"name": "debug", "containerPort": 9999}, {"containerPort": 1}]}]);
        let it = pod(
            &json!({"nodeName": "n1", "containers": containers}),
            &json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}),
        );
        assert!(it.is_running());
        assert_eq!((it.node.as_deref(), it.ports["debug"]), (Some("n1"), 9999));
    }

    #[test]
    fn pod_that_does_not_run_says_why() {
        let waiting = json!({"containerStatuses": [{
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": 2, "message": "store: bad\n"}},
        }], "phase": "Running"});
        let unschedulable = json!({"phase": "Pending", "conditions": [
            {"status": "False", "message": "0/3 nodes are available"},
        ]});
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
        let initialised = json!({"phase": "Running", "initContainerStatuses": [
            {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
        ]});
        for (status, state, reason) in [
            (
                waiting,
                "CrashLoopBackOff",
                Some("Error, exit code 2, store: bad"),
            ),
            (unschedulable, "Pending", Some("0/3 nodes are available")),
            (evicted, "Evicted", Some("low on memory")),
            (initialised, "Running", None),
            (json!({}), "Unknown", None),
        ] {
            let it = pod(&json!({}), &status);
            assert_eq!((it.state.as_str(), it.reason.as_deref()), (state, reason));
            assert_eq!(it.is_running(), state == "Running");
        }
    }

    #[test]
    fn pod_of_daemon_set_names_the_node_it_waits_for() {
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n2"]});
        let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        let waiting = pod(&json!({"affinity": affinity}), &json!({"phase": "Pending"}));
        assert_eq!(waiting.node.as_deref(), Some("n2"));
        assert_eq!(pod(&json!({}), &json!({})).node, None);
    }
}
