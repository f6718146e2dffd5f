//! The text of queries.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// RFC 3986's unreserved characters are not escaped.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes text for a query.
pub(super) fn escape(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, &RESERVED)
}
