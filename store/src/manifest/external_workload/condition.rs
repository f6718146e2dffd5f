//! One of an `ExternalWorkload`'s `status.conditions`.

use contiv_proto::message::externalworkload::external_workload as wire;
use serde::{Deserialize, Serialize};

use super::super::{check::Check, metadata::timestamp};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_probe_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Condition {
    pub(super) fn into_message(self, i: usize, check: &mut Check) -> wire::Condition {
        if self.kind.is_empty() {
            let field = format_args!("status.conditions[{i}].type");
            check.refuse(field, "missing; Ready is the one that contiv uses");
        }
        check.check_word(
            format_args!("status.conditions[{i}].status"),
            &self.status,
            &["True", "False", "Unknown"],
        );
        let field = format_args!("status.conditions[{i}].lastProbeTime");
        let last_probe_time = check.time(field, self.last_probe_time.as_deref());
        let field = format_args!("status.conditions[{i}].lastTransitionTime");
        let last_transition_time = check.time(field, self.last_transition_time.as_deref());
        wire::Condition {
            r#type: self.kind,
            status: self.status,
            last_probe_time,
            last_transition_time,
            reason: self.reason,
            message: self.message,
        }
    }

    pub(super) fn from_message(message: wire::Condition) -> Self {
        Self {
            kind: message.r#type,
            status: message.status,
            last_probe_time: timestamp(message.last_probe_time),
            last_transition_time: timestamp(message.last_transition_time),
            reason: message.reason,
            message: message.message,
        }
    }
}
