//! Converts names of source services to names of stored services.

use thiserror::Error;

/// The maximum length of a service name: that of a DNS label.
const MAX_NAME_LENGTH: usize = 63;

/// Why a text is not the name of a service (RFC 1123).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// It has no character.
    #[error("it is empty; it must have a letter or a digit")]
    Empty,
    /// It has too many characters.
    #[error("{name:?} has {} characters; {MAX_NAME_LENGTH} are allowed", .name.len())]
    Long {
        /// The text.
        name: String,
    },
    /// It has another character.
    #[error("{name:?} holds {character:?}; only a to z, 0 to 9 and - are allowed")]
    Character {
        /// The text.
        name: String,
        /// The character.
        character: char,
    },
    /// It begins or ends with a hyphen.
    #[error("{name:?} begins or ends with -; it must begin and end with a letter or a digit")]
    Hyphen {
        /// The text.
        name: String,
    },
}

/// The stored name of a source service: in lower case (as in flomesh), with `-` in place of other separators.
///
/// # Errors
/// When it contains other characters that a service name may not have (RFC 1123), or is too long.
pub fn to_stored(name: &str) -> Result<String, NameError> {
    let stored: String = name
        .chars()
        .map(|c| match c {
            '_' | '.' | ' ' => '-',
            c => c.to_ascii_lowercase(),
        })
        .collect();
    check(&stored)?;
    Ok(stored)
}

/// Validates the name of a service, a namespace or a registry.
///
/// # Errors
/// See [`NameError`].
pub fn check(name: &str) -> Result<(), NameError> {
    let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let owned = || name.to_owned();
    if name.is_empty() {
        Err(NameError::Empty)
    } else if name.len() > MAX_NAME_LENGTH {
        Err(NameError::Long { name: owned() })
    } else if let Some(character) = name.chars().find(|c| !is_legal(*c)) {
        Err(NameError::Character {
            name: owned(),
            character,
        })
    } else if name.starts_with('-') || name.ends_with('-') {
        Err(NameError::Hyphen { name: owned() })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lowered_and_separators_become_hyphens() {
        for (name, expected) in [
            ("WEB", "web"),
            ("order_Service", "order-service"),
            ("a.b c", "a-b-c"),
            ("9", "9"),
        ] {
            assert_eq!(to_stored(name).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_name_is_refused_with_the_reason() {
        for wrong in [
            "",
            "a/b",
            "é",
            "-a",
            "a-",
            "_",
            "a\n",
            "a:b",
            &"x".repeat(64),
        ] {
            assert!(to_stored(wrong).is_err(), "{wrong:?}");
        }
    }
}
