//! Keys as text.

/// Contiv's keys are ASCII. Other keys are made readable, and are rejected when parsed. Distinct keys stay distinct: each byte
/// that is not UTF-8 becomes a replacement character and the byte.
pub(super) fn key_text(key: Vec<u8>) -> String {
    String::from_utf8(key).unwrap_or_else(|error| {
        let mut text = String::new();
        for chunk in error.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(
                chunk
                    .invalid()
                    .iter()
                    .map(|byte| format!("{}{byte:02x}", char::REPLACEMENT_CHARACTER)),
            );
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_not_in_utf8_become_readable_and_stay_distinct() {
        assert_eq!(
            key_text(b"/a\xffb\xf0\x9f/".to_vec()),
            "/a\u{fffd}ffb\u{fffd}f0\u{fffd}9f/"
        );
        assert_ne!(key_text(b"/a\xff".to_vec()), key_text(b"/a\xfe".to_vec()));
        assert_eq!(key_text("/\u{e9}".as_bytes().to_vec()), "/\u{e9}");
    }
}
