//! Values: JSON with proto field names as Contiv writes it, or binary protobuf.
//!
//! Written is what Contiv's etcd serialiser writes (jsonpb with `OrigName`, cn-infra `db/keyval/proto_serializer.go`):
//! proto field names in the order of the `.proto` file, zero values left out, enums as names, 64-bit integers in
//! quotes, map keys sorted, no white space. One difference: a map that is empty is always left out, where Go tells an
//! empty map from none and writes `"annotations":{}` for the former. Nothing depends on it, and both are read.
//!
//! Read is more than that, because values come from any client:
//! - proto names and lowerCamelCase; where both are there the latter counts, and of two equal names the last, as in Go;
//! - unknown fields, which an older or a newer Contiv may have written;
//! - enums by name or by number, integers as numbers or in quotes, `null` for the default of the field;
//! - binary protobuf, as Contiv's other serialisers write it.

mod lenient;

use serde_json::Value;

use crate::{DecodeError, EncodeError, Wire};
use lenient::Lenient;

/// Decodes a value as a message. Never panics, and the returned message can always be encoded again.
pub fn decode<M: Wire>(value: &[u8]) -> Result<M, DecodeError> {
    if value.is_empty() {
        return Err(DecodeError::Empty);
    }
    if is_json(value) {
        decode_json(value)
    } else {
        decode_binary(value)
    }
}

/// Encodes a message as compact JSON with proto field names.
pub fn encode<M: Wire>(message: &M) -> Result<Vec<u8>, EncodeError> {
    serde_json::to_vec(message).map_err(|error| match message.unknown_enum() {
        Some((field, number)) => EncodeError {
            field,
            problem: unknown_number(number),
        },
        None => EncodeError {
            field: ".".to_owned(),
            problem: error.to_string(),
        },
    })
}

/// Encodes a message as binary protobuf. It needs a third of the bytes of JSON.
pub fn encode_binary<M: Wire>(message: &M) -> Result<Vec<u8>, EncodeError> {
    match message.unknown_enum() {
        Some((field, number)) => Err(EncodeError {
            field,
            problem: unknown_number(number),
        }),
        None => Ok(message.encode_to_vec()),
    }
}

/// Tells the two encodings apart.
///
/// No binary value begins with `{`: it would open a group, which proto3 does not have. After white space it can: a line feed is
/// also the tag of field 1, and `{` its length, 123. Then what follows decides, because no name begins with a quotation mark or
/// a closing brace, and every JSON object continues with one of them.
fn is_json(value: &[u8]) -> bool {
    match value.trim_ascii_start().split_first() {
        Some((b'{', rest)) => {
            value[0] == b'{' || matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}'))
        }
        _ => false,
    }
}

fn decode_json<M: Wire>(value: &[u8]) -> Result<M, DecodeError> {
    // The fast path, for JSON as Contiv and we write it. It is several times faster than the path below, and stricter. The text
    // is checked as UTF-8 once rather than string by string.
    if let Some(message) = str::from_utf8(value)
        .ok()
        .and_then(|text| serde_json::from_str(text).ok())
    {
        return Ok(message);
    }
    let tree: Value = serde_json::from_slice(value).map_err(|error| DecodeError::Json {
        problem: error.to_string(),
    })?;
    serde_path_to_error::deserialize(Lenient(tree)).map_err(|error| DecodeError::Field {
        field: error.path().to_string(),
        problem: readable(&error.into_inner().to_string()),
    })
}

fn decode_binary<M: Wire>(value: &[u8]) -> Result<M, DecodeError> {
    let message = M::decode(value).map_err(|error| DecodeError::Binary {
        problem: error.to_string(),
    })?;
    // Protobuf skips unknown fields, so short garbage is often a valid empty message.
    if let Err(error) = message.key() {
        return Err(DecodeError::Binary {
            problem: error.problem,
        });
    }
    match message.unknown_enum() {
        Some((field, number)) => Err(DecodeError::Field {
            field,
            problem: unknown_number(number),
        }),
        None => Ok(message),
    }
}

fn unknown_number(number: i32) -> String {
    format!("the enum has no value with the number {number}")
}

/// Rewrites messages of the generated code for users.
fn readable(problem: &str) -> String {
    problem.replace("expected expected one of: ", "expected one of ")
}
