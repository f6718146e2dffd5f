//! `metadata`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::check::Check;

/// The parts of `metadata` that are kept.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) creation_timestamp: Option<String>,
    /// Only nodes have a use for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deletion_timestamp: Option<String>,
}

impl Metadata {
    pub(super) fn named(name: &str, namespace: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            ..Self::default()
        }
    }

    /// The same for an object with this creation time in Unix seconds; 0 if unknown.
    pub(super) fn created_at(seconds: i64, name: String, namespace: String) -> Self {
        Self {
            name,
            namespace,
            creation_timestamp: timestamp(seconds),
            ..Self::default()
        }
    }

    /// `creationTimestamp` (RFC 3339) as seconds since 1970; 0 if absent.
    pub(super) fn created(&self, check: &mut Check) -> i64 {
        check.time(
            format_args!("metadata.creationTimestamp"),
            self.creation_timestamp.as_deref(),
        )
    }

    /// `deletionTimestamp` (RFC 3339) as seconds since 1970; 0 if absent.
    pub(super) fn deleted(&self, check: &mut Check) -> i64 {
        check.time(
            format_args!("metadata.deletionTimestamp"),
            self.deletion_timestamp.as_deref(),
        )
    }
}

/// Seconds since 1970 as in `creationTimestamp`. None for 0, which means unknown, and for times beyond the calendar.
pub(super) fn timestamp(seconds: i64) -> Option<String> {
    if seconds == 0 {
        return None;
    }
    Timestamp::from_second(seconds)
        .ok()
        .map(|time| time.to_string())
}
