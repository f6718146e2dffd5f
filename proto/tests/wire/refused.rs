//! Refused input, with helpful errors.

use contiv_proto::{
    DecodeError,
    message::{
        node::{Node, NodeAddress},
        pod::{
            Pod,
            pod::{Container, container::Port},
        },
        service::{
            Service,
            service::{ServicePort, service_port::IntOrString},
        },
    },
    value::{decode, encode},
};
use prost::Message;

#[test]
fn error_in_field_names_field_and_problem() {
    for (json, message) in [
        (
            r#"{"port":[{"port":80},{"nodePort":"http"}]}"#,
            "field port[1].nodePort: invalid digit found in string",
        ),
        (
            r#"{"port":[{"port":2147483648}]}"#,
            "field port[0].port: not a whole number in the range of this field",
        ),
        (
            r#"{"port":[{"port":80.5}]}"#,
            "field port[0].port: not a whole number in the range of this field",
        ),
        (
            r#"{"session_affinity_timeout":-1}"#,
            "field session_affinity_timeout: not a whole number in the range of this field",
        ),
        (
            r#"{"port":[{"target_port":{"type":"FLOAT"}}]}"#,
            "field port[0].target_port.type: unknown variant `FLOAT`, expected `NUMBER` or `STRING`",
        ),
        (
            r#"{"port":[{"target_port":{"type":7}}]}"#,
            r#"field port[0].target_port.type: invalid value: integer `7`, expected one of ["NUMBER", "STRING"]"#,
        ),
        (
            r#"{"name":7}"#,
            "field name: invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"labels":{"a":true}}"#,
            "field labels.a: invalid type: boolean `true`, expected a string",
        ),
        (
            r#"{"labels":["a"]}"#,
            "field labels: invalid type: sequence, expected a map",
        ),
        (
            r#"{"port":{}}"#,
            "field port: invalid type: map, expected a sequence",
        ),
        (
            r#"{"publish_not_ready_addresses":"true"}"#,
            r#"field publish_not_ready_addresses: invalid type: string "true", expected a boolean"#,
        ),
    ] {
        assert_eq!(
            decode::<Service>(json.as_bytes()).unwrap_err().to_string(),
            message,
            "{json}"
        );
    }
}

#[test]
fn truncated_json_is_refused() {
    for json in [
        "{",
        r#"{"name":"web""#,
        r#"{"name":"web"}}"#,
        r#"{"name":"web"} x"#,
        r#"{"name":"web"}{"name":"web"}"#,
        "{\"name\":\"\u{1}\"}",
        r#"{"name":"\ud800"}"#,
        "\n{\"name\":\"web\"",
    ] {
        let error = decode::<Service>(json.as_bytes()).expect_err(json);
        assert!(
            matches!(error, DecodeError::Json { .. }),
            "{json}: {error:?}"
        );
    }
    assert!(matches!(
        decode::<Service>(b"{\"name\":\"\xff\"}"),
        Err(DecodeError::Json { .. })
    ));
}

#[test]
fn value_of_nothing_is_not_message_of_nothing() {
    assert_eq!(decode::<Service>(b""), Err(DecodeError::Empty));
    assert_eq!(decode::<Service>(b"{}"), Ok(Service::default()));
}

#[test]
fn value_neither_json_nor_protobuf_is_refused() {
    for value in [
        &b"null"[..],
        b"[]",
        b"[{\"name\":\"web\"}]",
        b"\"web\"",
        b"name: web\n",
        b"apiVersion: v1\nkind: Service\n",
        b"\xef\xbb\xbf{}",
        b" ",
        b"\n",
        b"\0",
        b"\x1f\x8b\x08\0\0\0\0\0",
        // Field 1 as a number.
        b"\x08\x01",
        // A string longer than the value.
        b"\x0a\x7f{",
        // Only unknown fields: a protobuf message of no known type.
        b"\xf8\x3f\x01",
    ] {
        let error = decode::<Service>(value).unwrap_err();
        assert!(
            matches!(error, DecodeError::Binary { .. }),
            "{value:?}: {error:?}"
        );
    }
    assert_eq!(
        decode::<Service>(b"\x08\x01").unwrap_err().to_string(),
        "neither a JSON object nor a binary protobuf message: failed to decode Protobuf message: Service.name: \
         invalid wire type: Varint (expected LengthDelimited)"
    );
}

#[test]
fn nesting_without_end_is_refused_and_overflows_no_stack() {
    let deep = 1_000_000;
    for (open, field) in [
        ("[", r#"{"port":"#),
        (r#"{"a":"#, r#"{"labels":"#),
        ("[", r#"{"name":null,"x":"#),
    ] {
        let error =
            decode::<Service>(format!("{field}{}", open.repeat(deep)).as_bytes()).unwrap_err();
        assert!(matches!(error, DecodeError::Json { .. }), "{error}");
    }
    // Groups of an unknown field, each in the last.
    let error = decode::<Service>(&b"\xfb\x3f".repeat(deep)).unwrap_err();
    assert!(matches!(error, DecodeError::Binary { .. }), "{error}");
}

/// Each message that holds an enum, with a number in it that the enum does not have, and the path to it.
fn with_unknown_enums() -> (Pod, Service, Node) {
    let port = Port {
        protocol: 9,
        ..Port::default()
    };
    let container = Container {
        port: vec![Port::default(), port],
        ..Container::default()
    };
    let target_port = Some(IntOrString {
        r#type: 9,
        ..IntOrString::default()
    });
    (
        Pod {
            name: "a".to_owned(),
            namespace: "b".to_owned(),
            container: vec![container],
            ..Pod::default()
        },
        Service {
            name: "a".to_owned(),
            namespace: "b".to_owned(),
            port: vec![ServicePort {
                target_port,
                ..ServicePort::default()
            }],
            ..Service::default()
        },
        Node {
            name: "a".to_owned(),
            addresses: vec![NodeAddress {
                r#type: 9,
                ..NodeAddress::default()
            }],
            ..Node::default()
        },
    )
}

#[test]
fn unknown_enum_number_is_named_when_read_from_protobuf() {
    let (pod, service, node) = with_unknown_enums();
    for (error, field) in [
        (
            decode::<Pod>(&pod.encode_to_vec()).unwrap_err(),
            "container[0].port[1].protocol",
        ),
        (
            decode::<Service>(&service.encode_to_vec()).unwrap_err(),
            "port[0].target_port.type",
        ),
        (
            decode::<Node>(&node.encode_to_vec()).unwrap_err(),
            "addresses[0].type",
        ),
    ] {
        assert_eq!(
            error.to_string(),
            format!("field {field}: the enum has no value with the number 9")
        );
    }
}

#[test]
fn unknown_enum_number_is_named_when_written() {
    let (pod, service, node) = with_unknown_enums();
    for (error, field) in [
        (encode(&pod).unwrap_err(), "container[0].port[1].protocol"),
        (encode(&service).unwrap_err(), "port[0].target_port.type"),
        (encode(&node).unwrap_err(), "addresses[0].type"),
    ] {
        assert_eq!(
            error.to_string(),
            format!("field {field}: the enum has no value with the number 9")
        );
    }
}
