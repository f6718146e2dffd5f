//! Splits a list in JSON into its items while its bytes arrive, so that at most one item is kept as text.

use std::ops::Range;

/// The limit of one item.
const MAX_ITEM_BYTES: usize = 16 << 20;
/// The limit of everything around the items.
const MAX_ENVELOPE_BYTES: usize = 1 << 20;
/// The depth of brackets at which the fields of the list are.
const FIELDS: usize = 1;
/// The depth at which the items are.
const ITEMS: usize = 2;
const NO_OBJECT: &str = "its items are not objects";

/// Splits `{"metadata":{…},"items":[{…},{…}]}`. Any chunks of the same bytes give the same items.
#[derive(Debug, Default)]
pub(super) struct ItemSplitter {
    /// Everything but the items.
    envelope: Vec<u8>,
    /// The beginning of an item whose end has not arrived.
    item: Vec<u8>,
    /// Within the array of items.
    is_in_items: bool,
    /// How many brackets are open.
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// Where the last string of the list's own fields begins in the envelope: before an array it is the name of the field.
    name: usize,
}

impl ItemSplitter {
    /// Adds bytes, and calls `show` with each item that they complete.
    ///
    /// # Errors
    /// When the bytes are no list, or an item is too large; and those of `show`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut show: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        // The first byte that is not copied yet.
        let mut start = 0;
        for (i, &byte) in bytes.iter().enumerate() {
            if self.is_in_string {
                self.is_in_string = self.is_escaped || byte != b'"';
                self.is_escaped = !self.is_escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'"' => {
                    if self.is_in_items && self.depth == ITEMS {
                        return Err(NO_OBJECT.to_owned());
                    }
                    if self.depth == FIELDS {
                        self.copy(bytes, start..i)?;
                        start = i;
                        self.name = self.envelope.len();
                    }
                    self.is_in_string = true;
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    if !self.is_in_items && self.depth == ITEMS && byte == b'[' {
                        self.copy(bytes, start..i + 1)?;
                        start = i + 1;
                        self.is_in_items = self.is_of_items();
                    } else if self.is_in_items && self.depth == ITEMS + 1 {
                        start = i;
                    }
                }
                b'}' | b']' => {
                    self.depth = self
                        .depth
                        .checked_sub(1)
                        .ok_or("a bracket is closed that was not opened")?;
                    if self.is_in_items && self.depth == ITEMS {
                        self.complete(bytes, start..i + 1, &mut show)?;
                        start = i + 1;
                    } else if self.is_in_items && self.depth < ITEMS {
                        self.is_in_items = false;
                        start = i;
                    }
                }
                _ if self.is_in_items && self.depth == ITEMS => {
                    if byte != b',' && !byte.is_ascii_whitespace() {
                        return Err(NO_OBJECT.to_owned());
                    }
                    start = i + 1;
                }
                _ => {}
            }
        }
        self.copy(bytes, start..bytes.len())
    }

    /// The list without its items, after the last byte.
    ///
    /// # Errors
    /// When the list is not complete.
    pub(super) fn finish(self) -> Result<Vec<u8>, String> {
        if self.depth > 0 || self.is_in_string {
            return Err("it ends in the middle".to_owned());
        }
        Ok(self.envelope)
    }

    /// Whether the array that has just begun is the one with the items.
    fn is_of_items(&self) -> bool {
        let field = self.envelope.get(self.name..).unwrap_or_default();
        let rest = field.strip_prefix(br#""items""#);
        rest.is_some_and(|rest| {
            rest.iter()
                .all(|byte| matches!(byte, b':' | b'[') || byte.is_ascii_whitespace())
        })
    }

    fn complete(
        &mut self,
        bytes: &[u8],
        range: Range<usize>,
        show: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.item.is_empty() {
            return show(&bytes[range]);
        }
        self.copy_item(&bytes[range])?;
        let shown = show(&self.item);
        self.item.clear();
        shown
    }

    fn copy(&mut self, bytes: &[u8], range: Range<usize>) -> Result<(), String> {
        let bytes = &bytes[range];
        if self.is_in_items {
            return self.copy_item(bytes);
        }
        if self.envelope.len() + bytes.len() > MAX_ENVELOPE_BYTES {
            return Err(format!(
                "it has more than {MAX_ENVELOPE_BYTES} bytes beside its items"
            ));
        }
        self.envelope.extend_from_slice(bytes);
        Ok(())
    }

    fn copy_item(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.item.len() + bytes.len() > MAX_ITEM_BYTES {
            return Err(format!("one object is larger than {MAX_ITEM_BYTES} bytes"));
        }
        self.item.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn split<'a>(
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(Vec<String>, Value), String> {
        let (mut splitter, mut items) = (ItemSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.feed(chunk, |item| {
                items.push(String::from_utf8_lossy(item).into_owned());
                Ok(())
            })?;
        }
        let envelope = splitter.finish()?;
        Ok((
            items,
            serde_json::from_slice(&envelope).map_err(|error| error.to_string())?,
        ))
    }

    #[test]
    fn items_are_separated_from_the_text_around_them() {
        let list = br#"{"kind":"ServiceList", "other":[{"items":[1]}],"items" : [ {"a":"]}\"["},
            {"items":[{"b":{}}]} ],"metadata":{"resourceVersion":"7"}}"#;
        let (items, envelope) = split([&list[..]]).unwrap();
        assert_eq!(items, [r#"{"a":"]}\"["}"#, r#"{"items":[{"b":{}}]}"#]);
        let rest = json!({ "kind": "ServiceList", "other": [{ "items": [1] }], "items": [],
            "metadata": { "resourceVersion": "7" } });
        assert_eq!(envelope, rest);
    }

    #[test]
    fn list_without_items_is_empty() {
        for list in [
            &br#"{"items":null,"metadata":{}}"#[..],
            br#"{"metadata":{},"items":[]}"#,
            br#"{"metadata":{}}"#,
        ] {
            assert_eq!(split([list]).unwrap().0, [""; 0]);
        }
    }

    #[test]
    fn list_that_is_cut_off_or_no_list_is_an_error() {
        for text in [
            r#"{"items":[{"a":1}"#,
            r#"{"items":[{"a":"#,
            r#"{"items":[1]}"#,
            r#"{"items":["a"]}"#,
            "}",
            "",
            r#"{"a":"b"#,
        ] {
            assert!(split([text.as_bytes()]).is_err(), "{text}");
        }
    }

    #[test]
    fn item_that_is_too_large_is_refused() {
        let mut splitter = ItemSplitter::default();
        splitter.feed(br#"{"items":[{"a":""#, |_| Ok(())).unwrap();
        let (mut chunks, chunk) = (0, vec![b'a'; 1 << 16]);
        let error = loop {
            if let Err(error) = splitter.feed(&chunk, |_| Ok(())) {
                break error;
            }
            chunks += 1;
        };
        assert!(
            error.contains("one object") && chunks + 1 == MAX_ITEM_BYTES >> 16,
            "{error} {chunks}"
        );
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(
            texts in prop::collection::vec(r#"[a"\\{}\[\],: é]{0,12}"#, 0..6),
            cuts in prop::collection::vec(0_usize..400, 0..8),
        ) {
            let items: Vec<Value> = texts.iter().map(|text| json!({ "a": [text], text.as_str(): { "b": 1 } })).collect();
            let list = json!({ "metadata": { "continue": texts.first() }, "items": items }).to_string();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(list.len())).collect();
            cuts.extend([0, list.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &list.as_bytes()[cut[0]..cut[1]]).collect();
            let (found, envelope) = split(chunks).unwrap();
            let found: Vec<Value> = found.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
            prop_assert_eq!(found, items);
            prop_assert_eq!(&envelope["metadata"]["continue"], &json!(texts.first()));
        }
    }
}
