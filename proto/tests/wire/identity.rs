//! The identity of a stored object is in its key and in its value.

use contiv_proto::{DecodeError, Key, Kind, Object, message::vppnode::VppNode};
use prost::Message;

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key::new(kind, namespace, name).unwrap()
}

fn keys() -> [Key; 9] {
    Kind::ALL.map(|kind| {
        let namespace = if kind.is_namespaced() { "default" } else { "" };
        key(
            kind,
            namespace,
            if kind == Kind::VppNode { "7" } else { "web" },
        )
    })
}

#[test]
fn missing_identity_is_taken_from_the_key() {
    for key in keys() {
        let object = Object::decode(&key, b"{}").unwrap();
        assert_eq!(object.kind(), key.kind());
        assert_eq!(object.key(), Ok(key.clone()));
        assert_eq!(Object::decode(&key, &object.encode().unwrap()), Ok(object));
    }
}

#[test]
fn value_that_names_another_object_than_its_key_is_refused() {
    for key in keys() {
        let other = match key.kind() {
            Kind::VppNode => r#"{"id":8}"#,
            Kind::IpAllocation => r#"{"pod_name":"other"}"#,
            _ => r#"{"name":"other"}"#,
        };
        let error = Object::decode(&key, other.as_bytes()).unwrap_err();
        assert!(
            matches!(&error, DecodeError::Identity { key: named, .. } if *named == key),
            "{error}"
        );
    }
    assert_eq!(
        Object::decode(
            &key(Kind::Service, "default", "web"),
            br#"{"name":"web","namespace":"prod"}"#
        )
        .unwrap_err()
        .to_string(),
        r#"field namespace is "prod", but the key is that of service default/web; correct one of them"#
    );
}

#[test]
fn binary_value_has_to_name_its_object() {
    let key = key(Kind::VppNode, "", "7");
    let node = VppNode {
        id: 7,
        name: "n7".to_owned(),
        ..VppNode::default()
    };
    assert_eq!(
        Object::decode(&key, &node.encode_to_vec()),
        Ok(Object::from(node.clone()))
    );

    let nameless = VppNode { id: 0, ..node };
    let error = Object::decode(&key, &nameless.encode_to_vec()).unwrap_err();
    assert!(matches!(error, DecodeError::Binary { .. }), "{error}");
}
