//! Converts names of source services to names of stored services.

/// The maximum length of a service name: that of a DNS label.
const MAX_NAME_LENGTH: usize = 63;

/// The stored name of a source service: in lower case (as in flomesh), with `-` in place of other separators.
///
/// # Errors
/// When it contains other characters that a service name may not have (RFC 1123), or is too long.
pub fn to_stored(name: &str) -> Result<String, String> {
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
/// The reason why it is invalid.
pub fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("it is empty; it must have a letter or a digit".to_owned());
    }
    if name.len() > MAX_NAME_LENGTH {
        return Err(format!(
            "{name:?} has {} characters; {MAX_NAME_LENGTH} are allowed",
            name.len()
        ));
    }
    let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if let Some(c) = name.chars().find(|c| !is_legal(*c)) {
        return Err(format!(
            "{name:?} holds {c:?}; only a to z, 0 to 9 and - are allowed"
        ));
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err(format!(
            "{name:?} begins or ends with -; it must begin and end with a letter or a digit"
        ));
    }
    Ok(())
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
            assert_eq!(to_stored(name).as_deref(), Ok(expected));
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
