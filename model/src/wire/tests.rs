mod endpoints;
mod left_out;
mod pods_and_nodes;
mod service;

use std::net::IpAddr;

use contiv_proto::{Key, Kind};
use proptest::prelude::*;

use super::*;

fn key_of(kind: Kind) -> Key {
    let (namespace, name) = match kind {
        Kind::VppNode => ("", "2"),
        _ if kind.is_namespaced() => ("default", "web"),
        _ => ("", "web"),
    };
    Key::new(kind, namespace, name).unwrap()
}

fn read(kind: Kind, value: &str) -> Object {
    decode(&key_of(kind), value.as_bytes(), 7).unwrap().unwrap()
}

/// The object, and its invalid fields.
fn read_all(kind: Kind, value: &str) -> (Object, Vec<String>) {
    let Decoded {
        object, findings, ..
    } = decode_all(&key_of(kind), value.as_bytes(), 7).unwrap();
    (
        object.unwrap(),
        findings.invalid.iter().map(FieldError::to_string).collect(),
    )
}

/// The error messages of a value's fields.
fn problems(kind: Kind, value: &str) -> Vec<String> {
    match decode(&key_of(kind), value.as_bytes(), 7) {
        Err(WireError::Invalid { problems, .. }) => {
            problems.iter().map(FieldError::to_string).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn ips<S: FromIterator<IpAddr>>(ips: &[&str]) -> S {
    ips.iter().map(|ip| ip.parse().unwrap()).collect()
}

#[test]
fn value_that_names_another_object_than_its_key_is_refused() {
    let error = decode(&key_of(Kind::Service), br#"{"name":"other"}"#, 1)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("service default/web") && error.contains("other"),
        "{error}"
    );
}

#[test]
fn error_names_object_and_all_fields_in_one_line() {
    let error = decode(
        &key_of(Kind::Node),
        br#"{"pod_CIDR":"x","pod_cidrs":["y"]}"#,
        1,
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("node web: spec.podCIDR: ") && error.contains("; spec.podCIDRs[0]: "),
        "{error}"
    );
    assert!(!error.contains('\n'));
}

#[test]
fn name_that_could_carry_syntax_is_refused() {
    let key = Key::new(Kind::Service, "default", "a\" ; flush").unwrap();
    assert!(matches!(
        decode(&key, b"{}", 1),
        Err(WireError::Invalid { .. })
    ));
}

#[test]
fn namespaces_and_external_workloads_are_read_without_effect() {
    for kind in [Kind::Namespace, Kind::ExternalWorkload] {
        assert_eq!(decode(&key_of(kind), b"{}", 1), Ok(None));
        assert!(decode(&key_of(kind), b"{", 1).is_err());
        assert_eq!((object_key(&key_of(kind)), object_kind(kind)), (None, None));
    }
}

#[test]
fn keys_are_those_of_objects_under_them() {
    for (kind, value) in [
        (Kind::Service, "{}"),
        (Kind::Endpoints, "{}"),
        (Kind::EndpointSlice, r#"{"address_type":"IPv4"}"#),
        (Kind::Pod, "{}"),
        (Kind::Node, "{}"),
        (Kind::VppNode, r#"{"name":"w"}"#),
        (Kind::IpAllocation, "{}"),
    ] {
        let object = read(kind, value);
        assert_eq!(Some(object.key()), object_key(&key_of(kind)));
        assert_eq!(Some(object.kind()), object_kind(kind));
        assert_eq!(
            object.key().to_string(),
            key_of(kind).to_string(),
            "both name the object alike"
        );
    }
}

proptest! {
    #[test]
    fn no_value_makes_decoding_panic(kind in prop::sample::select(Kind::ALL.to_vec()), value in any::<Vec<u8>>()) {
        let _ = decode(&key_of(kind), &value, 1);
    }

    #[test]
    fn no_number_or_text_in_field_makes_decoding_panic(number in any::<i32>(), text in "\\PC*") {
        let text = serde_json::to_string(&text).unwrap();
        let service = format!(
            r#"{{"port":[{{"name":{text},"port":{number},"node_port":{number},"protocol":{text}}}],"cluster_ip":{text},
                "lb_ingress_ips":[{text}],"service_type":{text}}}"#
        );
        let slice = format!(
            r#"{{"address_type":"IPv6","endpoints":[{{"addresses":[{text}]}}],"ports":[{{"name":{text},"port":{number}}}]}}"#
        );
        let node = format!(r#"{{"pod_CIDR":{text},"addresses":[{{"type":"NodeInternalIP","address":{text}}}]}}"#);
        for (kind, value) in [(Kind::Service, service), (Kind::EndpointSlice, slice), (Kind::Node, node)] {
            let _ = decode(&key_of(kind), value.as_bytes(), i64::from(number));
        }
    }
}

#[test]
fn stored_key_is_the_key_that_names_the_object() {
    for kind in Kind::ALL {
        let key = key_of(kind);
        if let Some(object) = object_key(&key) {
            assert_eq!(stored_key(&object), Some(key));
        }
    }
}
