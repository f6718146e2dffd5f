//! Properties of keys and values that hold for any input. Fuzzers search for input that violates one (`fuzz/`).

use prost::Message;

use crate::{DecodeError, Key, Kind, Object};

/// `input` is a key, or a type, a namespace and a name, a line each.
///
/// # Panics
/// When a key reads back as another one, or an error does not name the key.
pub fn key(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    match Key::parse(text) {
        Ok(Some(key)) => {
            assert_eq!(key.to_path(), text, "a key has one spelling");
            assert!(
                text.starts_with(&Key::prefix(key.kind())),
                "{text:?} is listed with its type"
            );
        }
        Ok(None) => assert!(
            Kind::ALL
                .iter()
                .all(|kind| !text.starts_with(&Key::prefix(*kind))),
            "{text:?}"
        ),
        Err(error) => assert!(error.key == text && !error.problem.is_empty(), "{error}"),
    }
    if let [kind, namespace, name] = text.splitn(3, '\n').collect::<Vec<_>>()[..]
        && let Ok(kind) = kind.parse()
        && let Ok(key) = Key::new(kind, namespace, name)
    {
        assert_eq!(Key::parse(&key.to_path()), Ok(Some(key)));
    }
}

/// The first byte of `input` chooses the type, the rest is a value of it.
///
/// # Panics
/// When a value that was read does not read back as it is written, as JSON and as protobuf, or an error names no field.
pub fn value(input: &[u8]) {
    let Some((kind, value)) = input.split_first() else {
        return;
    };
    let key = key_of(Kind::ALL[usize::from(*kind) % Kind::ALL.len()]);
    match Object::decode(&key, value) {
        Ok(object) => {
            assert_eq!(object.key(), Ok(key.clone()));
            let json = object
                .encode()
                .unwrap_or_else(|error| panic!("{object:?} cannot be written: {error}"));
            assert_eq!(Object::decode(&key, &json), Ok(object.clone()), "as JSON");
            assert_eq!(
                Object::decode(&key, &protobuf(&object)),
                Ok(object),
                "as protobuf"
            );
        }
        Err(DecodeError::Field { field, problem }) => {
            assert!(!field.is_empty() && !problem.is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The key of the object whose values these are.
fn key_of(kind: Kind) -> Key {
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    let name = if kind == Kind::VppNode { "7" } else { "web" };
    Key::new(kind, namespace, name).unwrap_or_else(|error| panic!("{error}"))
}

fn protobuf(object: &Object) -> Vec<u8> {
    match object {
        Object::Pod(message) => message.encode_to_vec(),
        Object::Service(message) => message.encode_to_vec(),
        Object::Endpoints(message) => message.encode_to_vec(),
        Object::EndpointSlice(message) => message.encode_to_vec(),
        Object::Node(message) => message.encode_to_vec(),
        Object::Namespace(message) => message.encode_to_vec(),
        Object::VppNode(message) => message.encode_to_vec(),
        Object::IpAllocation(message) => message.encode_to_vec(),
        Object::ExternalWorkload(message) => message.encode_to_vec(),
    }
}

#[cfg(test)]
mod tests {
    include!("../../fuzz/replay.rs");

    #[test]
    fn corpus_of_keys_breaks_no_property() {
        replay("keys", super::key);
    }

    #[test]
    fn corpus_of_values_breaks_no_property() {
        replay("values", super::value);
    }
}
