//! Reads JSON as leniently as Contiv's jsonpb where the generated code is stricter.
//!
//! The generated code refuses `null` for anything but an optional field or a message, and a field present in both spellings.
//! Only the generated code knows which object is a message and which a map with arbitrary keys; it shows by its calls of the
//! deserializer. Therefore this is a deserializer and not a transformation of the JSON tree.

use serde::{
    Deserializer,
    de::{
        IntoDeserializer, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Map, Value};

pub(super) struct Lenient(pub(super) Value);

impl<'de> Deserializer<'de> for Lenient {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Lenient));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(fields) => {
                let mut fields = MapDeserializer::new(
                    fields
                        .into_iter()
                        .map(|(name, value)| (name, Lenient(value))),
                );
                let value = visitor.visit_map(&mut fields)?;
                fields.end()?;
                Ok(value)
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    /// A message. Fields without a value in the generated code are unset.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let message = match self.0 {
            Value::Null => Value::Object(Map::new()),
            Value::Object(mut message) => {
                drop_overridden(&mut message, fields);
                message.retain(|_, value| !value.is_null());
                Value::Object(message)
            }
            other => other,
        };
        Lenient(message).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    /// A string: as a field, in a list or in a map.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() {
            visitor.visit_str("")
        } else {
            self.deserialize_any(visitor)
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Lenient {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// If a field is present in both spellings, the proto name is dropped (jsonpb `consumeField`).
///
/// `fields` lists the proto name directly before the lowerCamelCase one where the two differ.
fn drop_overridden(message: &mut Map<String, Value>, fields: &[&str]) {
    for pair in fields.windows(2) {
        if let [proto_name, camel_case] = pair
            && same_field(proto_name, camel_case)
            && message.contains_key(*camel_case)
        {
            message.remove(*proto_name);
        }
    }
}

fn same_field(proto_name: &str, camel_case: &str) -> bool {
    proto_name.replace('_', "").eq_ignore_ascii_case(camel_case)
}
