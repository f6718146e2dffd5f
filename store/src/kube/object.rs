//! Converts objects of the API server into stored ones.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use contiv_proto::{Key, Kind, Object, annotation::LAST_CHANGE_TRIGGER_TIME, taint::TO_BE_DELETED};
use serde::{Deserialize, de::IgnoredAny};

use crate::{Entry, Problem, manifest};

/// Annotations that contiv, or Contiv, uses. All others are dropped: one of them repeats the whole object.
const ANNOTATIONS: [&str; 3] = ["contiv.io/", "contivpp.io/", LAST_CHANGE_TRIGGER_TIME];
/// Marks Endpoints used for leader election: they change every two seconds and are no endpoints.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Endpoints for the leader election of components too old for the annotation; Contiv's reflector knew them by name.
const ELECTIONS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// An object, or the identity of an unusable one.
#[derive(Debug)]
pub(super) struct ReceivedObject {
    /// Its full key.
    pub(super) key: String,
    /// Its own `resourceVersion`.
    pub(super) version: String,
    pub(super) value: Value,
}

/// The stored form of an object.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Good(Bytes),
    /// It is not usable.
    Bad(Vec<Problem>),
    /// It is not stored.
    None,
}

impl ReceivedObject {
    /// The entry; none if it is not stored. An unusable object has an empty value.
    pub(super) fn into_entry(self) -> (Option<Entry>, Vec<Problem>) {
        let (value, problems) = match self.value {
            Value::Good(value) => (value, Vec::new()),
            Value::Bad(problems) => (Bytes::new(), problems),
            Value::None => return (None, Vec::new()),
        };
        // Kubernetes has no version of an object's creation.
        let mod_revision = self.version.parse().unwrap_or(0);
        (
            Some(Entry {
                key: self.key,
                value,
                create_revision: 0,
                mod_revision,
            }),
            problems,
        )
    }
}

#[derive(Debug, Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::zero_sized_map_values,
    reason = "a map is what is read; its values are of no interest"
)]
struct Metadata<'a> {
    name: String,
    namespace: String,
    resource_version: String,
    #[serde(borrow)]
    annotations: Option<BTreeMap<Cow<'a, str>, IgnoredAny>>,
}

/// The `kind` of an object of a watch; protobuf was checked when it was read.
#[derive(Debug, Deserialize)]
struct Typed<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// The `kind` of an object in JSON.
///
/// # Errors
/// When it has none.
pub(super) fn kind_of(json: &str) -> Result<Cow<'_, str>, String> {
    let Typed { kind } = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok(kind)
}

/// The `resourceVersion` of an object of any type, as in a bookmark.
///
/// # Errors
/// When it cannot be read.
pub(super) fn version_of(json: &str) -> Result<String, String> {
    let head: Head<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok(head.metadata.resource_version)
}

/// Reads one object.
///
/// # Errors
/// When the object cannot be identified.
pub(super) fn receive(kind: Kind, json: &str) -> Result<ReceivedObject, String> {
    let Head { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let namespace = if kind.is_namespaced() {
        metadata.namespace.as_str()
    } else {
        ""
    };
    let key = Key::new(kind, namespace, metadata.name.as_str())
        .map_err(|error| error.to_string())?
        .to_path();
    let value = if is_election(kind, &metadata) {
        Value::None
    } else {
        value(kind, &key, json)
    };
    Ok(ReceivedObject {
        key,
        version: metadata.resource_version,
        value,
    })
}

fn is_election(kind: Kind, metadata: &Metadata<'_>) -> bool {
    kind == Kind::Endpoints
        && (metadata
            .annotations
            .iter()
            .flatten()
            .any(|(name, _)| name == LEADER)
            || metadata.namespace == "kube-system" && ELECTIONS.contains(&metadata.name.as_str()))
}

fn value(kind: Kind, key: &str, json: &str) -> Value {
    let mut object = match manifest::parse_object(key, kind, json) {
        Ok(object) => object,
        Err(problems) => return Value::Bad(problems),
    };
    drop_unused_fields(&mut object);
    match object.encode() {
        // Without the writer's spare capacity.
        Ok(value) => Value::Good(Bytes::from(value.into_boxed_slice())),
        Err(error) => Value::Bad(vec![Problem {
            source: key.to_owned(),
            object: None,
            field: Some(error.field),
            reason: error.problem,
            is_warning: false,
        }]),
    }
}

/// Drops unused fields, so that their changes do not count.
fn drop_unused_fields(object: &mut Object) {
    let keep_known = |annotations: &mut BTreeMap<String, String>| {
        annotations.retain(|name, _| ANNOTATIONS.iter().any(|known| name.starts_with(known)));
    };
    match object {
        Object::Pod(pod) => keep_known(&mut pod.annotations),
        Object::Service(service) => keep_known(&mut service.annotations),
        Object::EndpointSlice(slice) => {
            keep_known(&mut slice.annotations);
            for reference in slice
                .endpoints
                .iter_mut()
                .filter_map(|one| one.target_ref.as_mut())
            {
                reference.resource_version.clear();
            }
        }
        Object::Endpoints(endpoints) => {
            let subsets = endpoints.endpoint_subsets.iter_mut();
            let addresses = subsets
                .flat_map(|one| one.addresses.iter_mut().chain(&mut one.not_ready_addresses));
            for reference in addresses.filter_map(|address| address.target_ref.as_mut()) {
                reference.resource_version.clear();
            }
        }
        // The others say where pods may run.
        Object::Node(node) => node.taints.retain(|taint| taint.key == TO_BE_DELETED),
        Object::ExternalWorkload(workload) => {
            keep_known(&mut workload.annotations);
            // Every probe writes it.
            workload
                .conditions
                .iter_mut()
                .for_each(|condition| condition.last_probe_time = 0);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(name: &str, annotations: &str) -> ReceivedObject {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"kube-system","resourceVersion":"12",
            "annotations":{annotations}}},"subsets":[{{"addresses":[{{"ip":"10.0.0.1",
            "targetRef":{{"kind":"Pod","name":"a","resourceVersion":"11"}}}}],"ports":[{{"port":80}}]}}]}}"#
        );
        receive(Kind::Endpoints, &json).unwrap()
    }

    #[test]
    fn leader_election_endpoints_are_not_stored() {
        assert_eq!(
            endpoints("any", &format!(r#"{{"{LEADER}":"{{}}"}}"#)).value,
            Value::None
        );
        assert_eq!(endpoints("kube-scheduler", "null").value, Value::None);
        assert!(matches!(endpoints("web", "{}").value, Value::Good(_)));
    }

    #[test]
    fn meaningless_changes_are_not_kept() {
        let Value::Good(value) = endpoints("web", "{}").value else {
            panic!("it is good")
        };
        let text = String::from_utf8(value.to_vec()).unwrap();
        assert!(
            text.contains(r#""target_ref":{"kind":"Pod","name":"a"}"#),
            "{text}"
        );

        let json = r#"{"metadata":{"name":"web","namespace":"default","managedFields":[{"manager":"kubectl"}],
            "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","contiv.io/balance":"random",
            "contivpp.io/x":"y"}},"spec":{"clusterIP":"10.96.0.1"}}"#;
        let Value::Good(value) = receive(Kind::Service, json).unwrap().value else {
            panic!("it is good")
        };
        let text = String::from_utf8(value.to_vec()).unwrap();
        assert!(
            text.contains(r#""annotations":{"contiv.io/balance":"random","contivpp.io/x":"y"}"#),
            "{text}"
        );
        assert!(!text.contains("kubectl"), "{text}");

        let json = r#"{"metadata":{"name":"web-1","namespace":"default",
            "annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-02T03:04:05Z","other":"x"}},
            "addressType":"IPv4","endpoints":[]}"#;
        let Value::Good(value) = receive(Kind::EndpointSlice, json).unwrap().value else {
            panic!("it is good")
        };
        let text = String::from_utf8(value.to_vec()).unwrap();
        let kept = r#""annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-02T03:04:05Z"}"#;
        assert!(
            text.contains(kept),
            "it says since when they are to be so: {text}"
        );
    }

    #[test]
    fn node_keeps_only_taint_that_concerns_its_traffic() {
        let json = r#"{"metadata":{"name":"n1","deletionTimestamp":"1970-01-01T00:01:00Z"},"spec":{"taints":[
            {"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"},
            {"key":"ToBeDeletedByClusterAutoscaler","value":"1700000000","effect":"NoSchedule"}]}}"#;
        let Value::Good(value) = receive(Kind::Node, json).unwrap().value else {
            panic!("it is good")
        };
        let text = String::from_utf8(value.to_vec()).unwrap();
        let taints = r#""taints":[{"key":"ToBeDeletedByClusterAutoscaler","value":"1700000000","effect":"NoSchedule"}]"#;
        assert!(
            text.contains(taints) && text.contains(r#""deletion_timestamp":"60""#),
            "{text}"
        );
    }

    #[test]
    fn unusable_object_has_an_empty_value_and_a_named_key() {
        let json = r#"{"metadata":{"name":"web","namespace":"default","resourceVersion":"5"},
            "spec":{"clusterIP":"10.96.0.999"}}"#;
        let (entry, problems) = receive(Kind::Service, json).unwrap().into_entry();
        let entry = entry.unwrap();
        assert_eq!((entry.value.len(), entry.mod_revision), (0, 5));
        assert_eq!(problems[0].source, entry.key);
        assert_eq!(problems[0].field.as_deref(), Some("spec.clusterIP"));
    }

    #[test]
    fn object_without_name_is_refused() {
        assert!(receive(Kind::Service, r#"{"metadata":{"namespace":"default"}}"#).is_err());
        assert!(receive(Kind::Service, "{}").is_err());
    }
}
