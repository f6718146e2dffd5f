//! The query of a request.

use percent_encoding::percent_decode_str;

use super::selector::Selector;

/// The supported parts of a query.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) selector: Selector,
    pub(super) limit: usize,
    pub(super) next: Option<String>,
    pub(super) version: String,
    pub(super) bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
    /// Whether exactly this version is requested.
    pub(super) is_exact: bool,
    pub(super) namespace: Option<String>,
    pub(super) is_watch: bool,
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            let number = || value.parse::<u64>().map_err(|error| format!("{name}: {error}"));
            match name {
                "watch" => query.is_watch = value == "true",
                "allowWatchBookmarks" => query.bookmarks = value == "true",
                "limit" => query.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
                "continue" => query.next = Some(value),
                "resourceVersion" => query.version = value,
                "resourceVersionMatch" => query.is_exact = value == "Exact",
                "timeoutSeconds" => query.timeout_seconds = Some(number()?),
                "fieldSelector" => query.selector = Selector::parse(&value)?,
                _ => return Err(format!("this server does not know {name}")),
            }
        }
        Ok(query)
    }
}
