//! Splits a list in protobuf into its items while its bytes arrive, so that at most one item is kept.

use prost::{Message, decode_length_delimiter};
use serde::Deserialize;

use super::messages::{MAGIC, TypeMeta};

/// The limit of one item, and of each other field.
const MAX_FIELD_SIZE: usize = 16 << 20;
/// No tag or length is longer.
const MAX_VARINT_SIZE: usize = 10;
/// The wire type of messages and strings: others have no place in a list, nor around it.
const LENGTH_DELIMITED: usize = 2;
/// The fields of the message around the list.
const TYPE: usize = 1;
const RAW: usize = 2;
/// The fields of a list.
const METADATA: usize = 1;
const ITEMS: usize = 2;

const NO_LIST: &str = "it is no list in Kubernetes' protobuf";

/// `metadata` of a list, in JSON too.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct ListMetadata {
    #[prost(string, tag = "2")]
    pub(in super::super) resource_version: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "continue")]
    pub(in super::super) next: String,
}

/// Splits an answer with a list. Any chunks of the same bytes give the same items.
#[derive(Debug, Default)]
pub(in super::super) struct ListSplitter {
    /// The bytes so far of a field that is not complete.
    pending: Vec<u8>,
    has_begun: bool,
    /// How many bytes of the list are still to come; none outside of it.
    rest_of_list: Option<usize>,
    /// What the list says that it is.
    kind: String,
    metadata: Option<ListMetadata>,
}

/// A field at the beginning of some bytes: its number, and the range of its content, which may not have arrived completely.
struct Field {
    number: usize,
    start: usize,
    end: usize,
}

impl ListSplitter {
    /// Adds bytes, and calls `show` with each item that they complete.
    ///
    /// # Errors
    /// When the bytes are no list, or an item is too large; and those of `show`.
    pub(in super::super) fn feed(
        &mut self,
        bytes: &[u8],
        mut show: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut done = 0;
        while let Some(size) = self.parse_next(&pending[done..], &mut show)? {
            done += size;
        }
        pending.drain(..done);
        self.pending = pending;
        Ok(())
    }

    /// Parses the next field, and returns its size; none if it is not complete.
    fn parse_next(
        &mut self,
        bytes: &[u8],
        show: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<Option<usize>, String> {
        if !self.has_begun {
            if bytes.len() < MAGIC.len() {
                return Ok(None);
            }
            self.has_begun = bytes.starts_with(MAGIC);
            return if self.has_begun {
                Ok(Some(MAGIC.len()))
            } else {
                Err(NO_LIST.to_owned())
            };
        }
        let Some(Field { number, start, end }) = field(bytes)? else {
            return Ok(None);
        };
        if self.rest_of_list.is_none() && number == RAW {
            self.rest_of_list = Some(end - start).filter(|rest| *rest > 0);
            return Ok(Some(start));
        }
        if end - start > MAX_FIELD_SIZE {
            return Err(format!("one object is larger than {MAX_FIELD_SIZE} bytes"));
        }
        let Some(content) = bytes.get(start..end) else {
            return Ok(None);
        };
        if let Some(rest) = self.rest_of_list {
            let rest = rest.checked_sub(end).ok_or(NO_LIST)?;
            self.rest_of_list = Some(rest).filter(|rest| *rest > 0);
            match number {
                METADATA => {
                    let metadata =
                        ListMetadata::decode(content).map_err(|error| error.to_string())?;
                    self.metadata = Some(metadata);
                }
                ITEMS => show(content)?,
                _ => {}
            }
        } else if number == TYPE {
            self.kind = TypeMeta::decode(content)
                .map_err(|error| error.to_string())?
                .kind;
        }
        Ok(Some(end))
    }

    /// The `kind` of the list and its metadata, after the last byte.
    ///
    /// # Errors
    /// When the list is not complete.
    pub(in super::super) fn finish(self) -> Result<(String, ListMetadata), String> {
        if !self.pending.is_empty() || self.rest_of_list.is_some() {
            return Err("it ends in the middle".to_owned());
        }
        Ok((self.kind, self.metadata.ok_or_else(|| NO_LIST.to_owned())?))
    }
}

/// The field at the beginning; none if its tag or length is not complete.
fn field(bytes: &[u8]) -> Result<Option<Field>, String> {
    let mut rest = bytes;
    let (Ok(tag), Ok(len)) = (
        decode_length_delimiter(&mut rest),
        decode_length_delimiter(&mut rest),
    ) else {
        return if bytes.len() < 2 * MAX_VARINT_SIZE {
            Ok(None)
        } else {
            Err(NO_LIST.to_owned())
        };
    };
    let start = bytes.len() - rest.len();
    match start.checked_add(len) {
        Some(end) if tag & 7 == LENGTH_DELIMITED => Ok(Some(Field {
            number: tag >> 3,
            start,
            end,
        })),
        _ => Err(NO_LIST.to_owned()),
    }
}
