//! The query of a request.

use percent_encoding::percent_decode_str;

use super::selector::{LabelSelector, Selector};

/// The parameter `resourceVersionMatch` of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum VersionMatch {
    #[default]
    Unset,
    Exact,
    NotOlder,
}

/// The supported parts of a query.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) fields: Selector,
    pub(super) labels: LabelSelector,
    pub(super) limit: usize,
    pub(super) continue_token: Option<String>,
    pub(super) version: String,
    pub(super) bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) version_match: VersionMatch,
    pub(super) namespace: Option<String>,
    pub(super) is_watch: bool,
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|error| format!("{name}: {error}"))
            };
            match name {
                "watch" => query.is_watch = value == "true",
                "allowWatchBookmarks" => query.bookmarks = value == "true",
                "limit" => query.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
                "continue" => query.continue_token = Some(value),
                "resourceVersion" => query.version = value,
                "resourceVersionMatch" => {
                    query.version_match = match &*value {
                        "Exact" => VersionMatch::Exact,
                        "NotOlderThan" => VersionMatch::NotOlder,
                        _ => return Err(format!("this server does not know {value}")),
                    };
                }
                "timeoutSeconds" => query.timeout_seconds = Some(number()?),
                "fieldSelector" => query.fields = Selector::parse(&value)?,
                "labelSelector" => query.labels = LabelSelector::parse(&value),
                _ => return Err(format!("this server does not know {name}")),
            }
        }
        Ok(query)
    }

    /// Whether an object is selected.
    pub(super) fn selects(&self, json: &str) -> bool {
        if self.fields.is_empty() && self.labels.is_empty() {
            return true;
        }
        let object = serde_json::from_str(json).unwrap_or_default();
        self.fields.matches(&object) && self.labels.matches(&object)
    }
}
