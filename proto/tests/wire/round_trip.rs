//! Properties that hold for every message.

use std::fmt::Debug;

use contiv_proto::{
    Key, Object, Wire,
    message::{
        endpoints::Endpoints, endpointslice::EndpointSlice, externalworkload::ExternalWorkload,
        ipalloc::CustomIpAllocation, namespace::Namespace, node::Node, pod::Pod, service::Service,
        vppnode::VppNode,
    },
    value::{decode, encode},
};
use proptest::{prelude::*, sample::Index};
use prost::Message;
use serde_json::Value;

use crate::strategies;

fn reads_back<M: Wire + PartialEq + Clone + Debug>(message: &M) -> Result<(), TestCaseError>
where
    Object: From<M>,
{
    let json = encode(message).unwrap();
    prop_assert_eq!(&decode::<M>(&json).unwrap(), message, "from JSON");
    prop_assert_eq!(
        &decode::<M>(&message.encode_to_vec()).unwrap(),
        message,
        "from protobuf"
    );

    let camel = camel_case(serde_json::from_slice(&json).unwrap()).to_string();
    prop_assert_eq!(
        &decode::<M>(camel.as_bytes()).unwrap(),
        message,
        "from camel case"
    );

    // The first field belongs to the identity, so it is never left out. Duplicated, it cannot take the fast path.
    let json = String::from_utf8(json).unwrap();
    let (first, _) = json.split_once(':').unwrap();
    let twice = format!("{first}:null,{}", &json[1..]);
    prop_assert_eq!(
        &decode::<M>(twice.as_bytes()).unwrap(),
        message,
        "the lenient way"
    );

    let key = message.key().unwrap();
    let object = Object::decode(&key, json.as_bytes()).unwrap();
    prop_assert_eq!(&object, &Object::from(message.clone()));
    prop_assert_eq!(object.encode().unwrap(), json.as_bytes());
    prop_assert_eq!(object.encode_binary().unwrap(), message.encode_to_vec());
    prop_assert_eq!(Key::parse(&key.to_path()), Ok(Some(key)));
    Ok(())
}

/// Spells field names as protoc does in JSON; the keys of maps stay.
fn camel_case(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(camel_case).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let is_map = ["labels", "annotations", "selector"].contains(&name.as_str());
                let mut camel = String::new();
                for (i, part) in name.split('_').enumerate() {
                    let (first, rest) = part.split_at(part.len().min(1));
                    camel += &if i == 0 {
                        part.to_owned()
                    } else {
                        first.to_uppercase() + rest
                    };
                }
                (camel, if is_map { value } else { camel_case(value) })
            })
            .collect(),
        scalar => scalar,
    }
}

/// Decoding never panics; decoded messages can be encoded and are equal when decoded again.
fn survives<M: Wire + PartialEq + Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(message) = decode::<M>(bytes) {
        prop_assert_eq!(&decode::<M>(&encode(&message).unwrap()).unwrap(), &message);
    }
    Ok(())
}

/// A value with some of its bytes replaced, and cut off at the end.
fn damaged(mut value: Vec<u8>, changes: &[(Index, u8)], end: Index) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at.index(value.len());
        value[at] = *byte;
    }
    value.truncate(end.index(value.len() * 2 + 1));
    value
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    prop::collection::vec((any::<Index>(), any::<u8>()), 0..4)
}

macro_rules! properties {
    ($($name:ident: $message:ty = $strategy:ident,)+) => {$(
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn every_message_reads_back_as_itself(message in strategies::$strategy()) {
                    reads_back(&message)?;
                }

                #[test]
                fn damaged_value_is_refused_or_round_trips(
                    message in strategies::$strategy(), changes in changes(), end in any::<Index>(),
                ) {
                    survives::<$message>(&damaged(encode(&message).unwrap(), &changes, end))?;
                    survives::<$message>(&damaged(message.encode_to_vec(), &changes, end))?;
                }

                #[test]
                fn random_bytes_are_refused_or_round_trip(bytes: Vec<u8>, json in "[ \n]{0,2}\\{[\\PC\n]*") {
                    survives::<$message>(&bytes)?;
                    survives::<$message>(json.as_bytes())?;
                }
            }
        }
    )+};
}

properties! {
    pod: Pod = pods,
    service: Service = services,
    endpoints: Endpoints = endpoints,
    endpoint_slice: EndpointSlice = endpoint_slices,
    external_workload: ExternalWorkload = external_workloads,
    node: Node = nodes,
    namespace: Namespace = namespaces,
    vpp_node: VppNode = vpp_nodes,
    ip_allocation: CustomIpAllocation = ip_allocations,
}

/// A line feed is the tag of field 1, and `{` the length of such a name.
#[test]
fn binary_value_with_a_name_of_123_bytes_is_not_json() {
    let node = Node {
        name: "n".repeat(123),
        ..Node::default()
    };
    let value = node.encode_to_vec();
    assert_eq!(&value[..2], b"\n{");
    assert_eq!(decode(&value), Ok(node));
}
