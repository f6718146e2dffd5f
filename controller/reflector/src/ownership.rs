//! Whose an object in the store is.
//!
//! Contiv's own data says nothing of who wrote it, so everything of the reflected types is the reflector's, but what
//! carries the label of somebody else: that is never written and never swept. What carries such a label in Kubernetes is
//! not reflected, or nobody could tell later whose it was.

use contiv_proto::{
    Key, Object,
    label::{ENDPOINT_SLICE_MANAGED_BY, EXTERNAL_WORKLOADS_CONTROLLER},
};

/// The label by which anybody can say that an object is theirs; its value is whose. For what is applied by hand beside a
/// reflector.
pub const MANAGED_BY: &str = "contiv.io/managed-by";
/// The label of what the connector made; its value is the registry.
const REGISTRY: &str = "contiv.io/registry";

/// Whether an object is somebody else's.
pub fn is_foreign(object: &Object) -> bool {
    label(object, MANAGED_BY).is_some()
        || label(object, REGISTRY).is_some()
        || label(object, ENDPOINT_SLICE_MANAGED_BY) == Some(EXTERNAL_WORKLOADS_CONTROLLER)
}

/// Whether a value that this program wrote is somebody else's. Nearly all can be told without decoding.
pub(crate) fn is_foreign_value(key: &Key, value: &[u8]) -> bool {
    let names = [MANAGED_BY, REGISTRY, EXTERNAL_WORKLOADS_CONTROLLER];
    let has_name = |name: &str| value.windows(name.len()).any(|window| window == name.as_bytes());
    names.into_iter().any(has_name) && Object::decode(key, value).is_ok_and(|object| is_foreign(&object))
}

fn label<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    let labels = match object {
        Object::Pod(pod) => &pod.labels,
        Object::Service(service) => &service.labels,
        Object::Endpoints(endpoints) => &endpoints.labels,
        Object::EndpointSlice(slice) => &slice.labels,
        Object::Node(node) => &node.labels,
        Object::Namespace(namespace) => {
            let found = namespace.label.iter().find(|label| label.key == name);
            return found.map(|label| label.value.as_str());
        }
        // Others of the workspace's types are none of those that are reflected.
        _ => return None,
    };
    labels.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use contiv_proto::Kind;

    use super::*;

    fn is_foreign_json(kind: Kind, json: &str) -> bool {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        let key = Key::new(kind, namespace, "a").unwrap();
        let object = Object::decode(&key, json.as_bytes()).unwrap();
        assert_eq!(is_foreign(&object), is_foreign_value(&key, json.as_bytes()), "{json}");
        is_foreign(&object)
    }

    #[test]
    fn value_without_label_belongs_to_the_reflector() {
        assert!(!is_foreign_json(Kind::Service, r#"{"name":"a","cluster_ip":"10.96.0.1"}"#));
        assert!(!is_foreign_json(Kind::Service, r#"{"labels":{"app.kubernetes.io/managed-by":"Helm"}}"#));
        let of_kubernetes =
            r#"{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}"#;
        assert!(!is_foreign_json(Kind::EndpointSlice, of_kubernetes));
        assert!(!is_foreign_json(Kind::Service, r#"{"annotations":{"contiv.io/managed-by":"me"}}"#));
    }

    #[test]
    fn value_with_a_foreign_manager_label_is_foreign() {
        for kind in [Kind::Service, Kind::Endpoints, Kind::Pod, Kind::Node, Kind::EndpointSlice] {
            assert!(is_foreign_json(kind, r#"{"labels":{"contiv.io/managed-by":"me"}}"#), "{kind}");
        }
        let labels = r#"{"label":[{"key":"contiv.io/managed-by","value":"me"}]}"#;
        assert!(is_foreign_json(Kind::Namespace, labels));
        assert!(is_foreign_json(Kind::Service, r#"{"labels":{"contiv.io/registry":"consul"}}"#));
        let of_workloads =
            format!(r#"{{"labels":{{"{ENDPOINT_SLICE_MANAGED_BY}":"{EXTERNAL_WORKLOADS_CONTROLLER}"}}}}"#);
        assert!(is_foreign_json(Kind::EndpointSlice, &of_workloads));
    }
}
