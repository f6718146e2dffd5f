//! The property of values that are parsed and printed: they round-trip.

use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

/// Checks that a parsed value prints as a text that parses to the same value, and that an error has a message.
pub(crate) fn reads_back<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse().ok(), Some(value), "{text:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
