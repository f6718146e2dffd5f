//! Objects that clients send in protobuf: secrets, in which helm keeps its releases, and the pods of `kubectl debug`, with a few of their
//! fields. The numbers are those of Kubernetes' `generated.proto`.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::protobuf::MAGIC;

/// The object in an envelope; none if it is something else.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    let envelope = Fields::of(body.strip_prefix(MAGIC)?)?;
    let type_meta = Fields::of(envelope.first(1)?)?;
    let fields = Fields::of(envelope.first(2)?)?;
    let kind = type_meta.text(2);
    let mut object = match (type_meta.text(1).as_str(), kind.as_str()) {
        ("v1", "Secret") => {
            json!({ "data": fields.map(2, |value| STANDARD.encode(value).into()), "type": fields.text(3) })
        }
        ("v1", "Pod") => {
            let spec = Fields::of(fields.first(2)?)?;
            let containers = spec.all(2).filter_map(Fields::of).map(|container| {
                json!({
                    "name": container.text(1), "image": container.text(2),
                    "command": container.texts(3), "args": container.texts(4),
                })
            });
            json!({ "spec": { "containers": containers.collect::<Vec<_>>(), "nodeName": spec.text(10) } })
        }
        _ => return None,
    };
    let metadata = Fields::of(fields.first(1)?)?;
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({
        "name": metadata.text(1), "namespace": metadata.text(3),
        "labels": metadata.map(11, |value| String::from_utf8_lossy(value).into()),
        "resourceVersion": Some(metadata.text(6)).filter(|version| !version.is_empty()),
    });
    Some(object)
}

/// The fields of a message that have a length, by number.
struct Fields<'a>(BTreeMap<u64, Vec<&'a [u8]>>);

impl<'a> Fields<'a> {
    /// None if it is no message.
    fn of(mut rest: &'a [u8]) -> Option<Self> {
        let mut fields: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        while !rest.is_empty() {
            let tag = varint(&mut rest)?;
            match tag & 7 {
                0 => drop(varint(&mut rest)?),
                2 => {
                    let size = usize::try_from(varint(&mut rest)?).ok()?;
                    let (value, after) = rest.split_at_checked(size)?;
                    fields.entry(tag >> 3).or_default().push(value);
                    rest = after;
                }
                _ => return None,
            }
        }
        Some(Self(fields))
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &'a [u8]> + use<'a, '_> {
        self.0.get(&number).into_iter().flatten().copied()
    }

    fn first(&self, number: u64) -> Option<&'a [u8]> {
        self.all(number).next()
    }

    fn texts(&self, number: u64) -> Vec<String> {
        self.all(number)
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .collect()
    }

    fn text(&self, number: u64) -> String {
        self.texts(number).into_iter().next().unwrap_or_default()
    }

    /// The entries of a map.
    fn map(&self, number: u64, value: impl Fn(&[u8]) -> Value) -> Map<String, Value> {
        let entries = self.all(number).filter_map(Fields::of);
        entries
            .map(|entry| (entry.text(1), value(entry.first(2).unwrap_or_default())))
            .collect()
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_in_protobuf_is_decoded() {
        let bytes = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x24\x0a\x12\x0a\x01a\x1a\x03b-c\x5a\x08\x0a\x01x\x12\x03y-z\x12\x0b\x0a\x04data\x12\x03abc\x1a\x01t";
        let secret = decode(bytes).unwrap();
        assert_eq!(secret["metadata"]["name"], "a");
        assert_eq!(secret["metadata"]["namespace"], "b-c");
        assert_eq!(secret["metadata"]["labels"], json!({"x": "y-z"}));
        assert_eq!(secret["metadata"]["resourceVersion"], Value::Null);
        assert_eq!(
            (&secret["data"], &secret["type"]),
            (&json!({"data": "YWJj"}), &json!("t"))
        );
        for size in 0..bytes.len() {
            let _ = decode(&bytes[..size]);
        }
        assert_eq!(decode(b"{}"), None);
    }

    #[test]
    fn pod_in_protobuf_is_decoded() {
        let bytes = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x1a\x0a\x03\x0a\x01a\x12\x13\x12\x0d\x0a\x01c\x12\x02im\x1a\x01x\x22\x01y\x52\x02n1";
        let pod = decode(bytes).unwrap();
        let containers = json!([{"name": "c", "image": "im", "command": ["x"], "args": ["y"]}]);
        assert_eq!(
            (&pod["metadata"]["name"], &pod["spec"]["nodeName"]),
            (&json!("a"), &json!("n1"))
        );
        assert_eq!(pod["spec"]["containers"], containers);
    }
}
