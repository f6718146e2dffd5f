//! Properties of validation that hold for any stored value. Fuzzers search for input that breaks one (`fuzz/`).

pub mod mirror;

use contiv_model::{
    Event, NodeName, Object, Processor, ProcessorConfig, Resync, Snapshot,
    wire::{WireError, decode, object_key, object_kind},
};
use contiv_proto::{Key, Kind};

/// Each line of `input` is a digit for the type, one for the name, and a value.
///
/// # Panics
/// When an object has another identity than its key, an error does not describe the problem, or the order of the objects makes a
/// difference.
pub fn objects(input: &[u8]) {
    snapshot(input);
}

/// The processor's snapshot of all the objects. Same properties as [`objects`].
///
/// # Panics
/// When a property does not hold.
pub fn snapshot(input: &[u8]) -> Snapshot {
    // Of several values of one object the last counts.
    let mut objects = std::collections::BTreeMap::new();
    for (line, revision) in input.split(|byte| *byte == b'\n').zip(1..) {
        if let [kind, name, value @ ..] = line
            && let Some(object) = object(*kind, *name, value, revision)
        {
            objects.insert(object.key(), object);
        }
    }
    let config = ProcessorConfig::new(NodeName::new("n1"));
    let mut whole = Processor::new(config.clone());
    whole.resync(Resync {
        objects: objects.values().cloned().collect(),
        ..Resync::default()
    });
    let mut one_by_one = Processor::new(config);
    for object in objects.into_values().rev() {
        one_by_one.apply([Event::Put(object)]);
    }
    let snapshot = whole.snapshot();
    assert_eq!(one_by_one.snapshot(), snapshot, "the order must not matter");
    let json = serde_json::to_vec(&snapshot).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        serde_json::from_slice(&json).ok().as_ref(),
        Some(&snapshot),
        "as JSON"
    );
    snapshot
}

fn object(kind: u8, name: u8, value: &[u8], revision: i64) -> Option<Object> {
    let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
    let names = match kind {
        Kind::VppNode => ["1", "2", "3", "4"],
        Kind::Node => ["n1", "n2", "n3", "n4"],
        _ => ["web", "web-2", "db", "p"],
    };
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    let name = names[usize::from(name) % names.len()];
    let key = Key::new(kind, namespace, name).unwrap_or_else(|error| panic!("{error}"));
    match decode(&key, value, revision) {
        Ok(object) => {
            assert_eq!(object.as_ref().map(Object::key), object_key(&key));
            assert_eq!(
                object.as_ref().map(contiv_model::Object::kind),
                object_kind(kind)
            );
            object
        }
        Err(WireError::Invalid { object, problems }) => {
            assert!(object == key.to_string() && !problems.is_empty());
            assert!(
                problems
                    .iter()
                    .all(|error| !error.field.is_empty() && !error.problem.is_empty())
            );
            None
        }
        Err(WireError::Undecodable { object, .. }) => {
            assert_eq!(object, key.to_string());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    include!("../../../fuzz/replay.rs");

    #[test]
    fn corpus_of_objects_breaks_no_property() {
        replay("objects", super::objects);
    }
}
