//! Numbers in the JSON form of messages.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, Visitor},
};

/// A number, or text with a number: protobuf's JSON form allows both. It replaces pbjson's own type, which tries text first and
/// builds an error message for each number.
pub(crate) struct Number<T>(pub(crate) T);

impl<'de, T> Deserialize<'de> for Number<T>
where
    T: FromStr<Err: fmt::Display> + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(NumberVisitor(PhantomData))
            .map(Self)
    }
}

struct NumberVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for NumberVisitor<T>
where
    T: FromStr<Err: fmt::Display> + Deserialize<'de>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::deserialize(number.into_deserializer()).map_err(|_: E| wrong_type())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::deserialize(number.into_deserializer()).map_err(|_: E| wrong_type())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::deserialize(number.into_deserializer()).map_err(|_: E| wrong_type())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

const EXPECTED: &str = "a whole number in the range of this field";

fn wrong_type<E: Error>() -> E {
    E::custom(format_args!("not {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: for<'de> Deserialize<'de> + FromStr<Err: fmt::Display>>(
        json: &str,
    ) -> Result<T, String> {
        serde_json::from_str::<Number<T>>(json)
            .map(|number| number.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_are_read_as_such_and_as_text() {
        assert_eq!(read("-7"), Ok(-7_i32));
        assert_eq!(read("\"-7\""), Ok(-7_i32));
        assert_eq!(read("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(
            read("\"\\u0038\""),
            Ok(8_u32),
            "text that is not written as it is"
        );
    }

    #[test]
    fn invalid_number_is_named() {
        for (json, reason) in [
            (
                "4294967296",
                "not a whole number in the range of this field",
            ),
            ("-1", "not a whole number in the range of this field"),
            ("1.5", "not a whole number in the range of this field"),
            ("\"eighty\"", "invalid digit found in string"),
            (
                "true",
                "invalid type: boolean `true`, expected a whole number in the range of this field",
            ),
        ] {
            let error = read::<u32>(json).unwrap_err();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
