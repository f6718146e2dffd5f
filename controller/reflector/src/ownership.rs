//! The owner of a stored object.
//!
//! Contiv's own data has no owner, so all objects of the reflected types belong to the reflector, except those with another
//! owner's label: they are never written and never swept. Objects with such a label in Kubernetes are not reflected, since
//! their owner could not be determined later.
//!
//! External workloads are the opposite: people apply them to the store of a cluster that has none itself. So those that the
//! reflector writes carry an annotation, and all others belong to another owner.

use bytes::Bytes;
use contiv_proto::{
    Key, Kind, Object,
    label::{ENDPOINT_SLICE_MANAGED_BY, EXTERNAL_WORKLOADS_CONTROLLER},
};

/// The label with the owner of an object, for objects that people apply to a store into which a reflector writes.
pub const MANAGED_BY: &str = "contiv.io/managed-by";
/// The annotation of external workloads that were reflected.
pub const REFLECTED: &str = "contiv.io/reflected";
/// The label of the connector's objects; the value is the registry.
const REGISTRY: &str = "contiv.io/registry";

/// True if an object has another owner.
pub fn is_foreign(object: &Object) -> bool {
    let is_reflected = match object {
        Object::ExternalWorkload(workload) => workload.annotations.contains_key(REFLECTED),
        _ => true,
    };
    !is_reflected
        || label(object, MANAGED_BY).is_some()
        || label(object, REGISTRY).is_some()
        || label(object, ENDPOINT_SLICE_MANAGED_BY) == Some(EXTERNAL_WORKLOADS_CONTROLLER)
}

/// The value to store for one of Kubernetes; none if it has another owner.
pub(crate) fn reflected(key: &Key, value: Bytes) -> Option<Bytes> {
    if key.kind() == Kind::ExternalWorkload {
        let Ok(Object::ExternalWorkload(mut workload)) = Object::decode(key, &value) else {
            return None;
        };
        workload
            .annotations
            .insert(REFLECTED.to_owned(), "kubernetes".to_owned());
        let object = Object::from(workload);
        return if is_foreign(&object) {
            None
        } else {
            object.encode().ok().map(Bytes::from)
        };
    }
    (!is_foreign_value(key, &value)).then_some(value)
}

/// True if a value written by this program has another owner. Usually decided without decoding.
fn is_foreign_value(key: &Key, value: &[u8]) -> bool {
    let names = [MANAGED_BY, REGISTRY, EXTERNAL_WORKLOADS_CONTROLLER];
    let has_name = |name: &str| {
        value
            .windows(name.len())
            .any(|window| window == name.as_bytes())
    };
    names.into_iter().any(has_name)
        && Object::decode(key, value).is_ok_and(|object| is_foreign(&object))
}

fn label<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    let labels = match object {
        Object::Pod(pod) => &pod.labels,
        Object::Service(service) => &service.labels,
        Object::Endpoints(endpoints) => &endpoints.labels,
        Object::EndpointSlice(slice) => &slice.labels,
        Object::Node(node) => &node.labels,
        Object::ExternalWorkload(workload) => &workload.labels,
        Object::Namespace(namespace) => {
            let found = namespace.label.iter().find(|label| label.key == name);
            return found.map(|label| label.value.as_str());
        }
        // The workspace's other types are not reflected.
        _ => return None,
    };
    labels.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_foreign_json(kind: Kind, json: &str) -> bool {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        let key = Key::new(kind, namespace, "a").unwrap();
        let object = Object::decode(&key, json.as_bytes()).unwrap();
        assert_eq!(
            is_foreign(&object),
            is_foreign_value(&key, json.as_bytes()),
            "{json}"
        );
        is_foreign(&object)
    }

    #[test]
    fn value_without_label_belongs_to_the_reflector() {
        assert!(!is_foreign_json(
            Kind::Service,
            r#"{"name":"a","cluster_ip":"10.96.0.1"}"#
        ));
        assert!(!is_foreign_json(
            Kind::Service,
            r#"{"labels":{"app.kubernetes.io/managed-by":"Helm"}}"#
        ));
        let of_kubernetes = r#"{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}"#;
        assert!(!is_foreign_json(Kind::EndpointSlice, of_kubernetes));
        assert!(!is_foreign_json(
            Kind::Service,
            r#"{"annotations":{"contiv.io/managed-by":"me"}}"#
        ));
    }

    #[test]
    fn external_workload_is_foreign_unless_it_was_reflected() {
        let key = Key::new(Kind::ExternalWorkload, "default", "a").unwrap();
        let reflect = |json: &'static str| reflected(&key, Bytes::from_static(json.as_bytes()));
        let is_foreign = |json: &[u8]| is_foreign(&Object::decode(&key, json).unwrap());
        assert!(is_foreign(br#"{"name":"a"}"#));
        assert!(!is_foreign(&reflect(r#"{"name":"a"}"#).unwrap()));
        assert_eq!(reflect(r#"{"labels":{"contiv.io/managed-by":"me"}}"#), None);
        assert_eq!(reflect(""), None);
    }

    #[test]
    fn value_with_a_foreign_manager_label_is_foreign() {
        for kind in [
            Kind::Service,
            Kind::Endpoints,
            Kind::Pod,
            Kind::Node,
            Kind::EndpointSlice,
        ] {
            assert!(
                is_foreign_json(kind, r#"{"labels":{"contiv.io/managed-by":"me"}}"#),
                "{kind}"
            );
        }
        let labels = r#"{"label":[{"key":"contiv.io/managed-by","value":"me"}]}"#;
        assert!(is_foreign_json(Kind::Namespace, labels));
        assert!(is_foreign_json(
            Kind::Service,
            r#"{"labels":{"contiv.io/registry":"consul"}}"#
        ));
        let of_workloads = format!(
            r#"{{"labels":{{"{ENDPOINT_SLICE_MANAGED_BY}":"{EXTERNAL_WORKLOADS_CONTROLLER}"}}}}"#
        );
        assert!(is_foreign_json(Kind::EndpointSlice, &of_workloads));
    }
}
