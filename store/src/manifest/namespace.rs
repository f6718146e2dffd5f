//! `v1` Namespace.

use contiv_proto::message::namespace as wire;
use serde::{Deserialize, Serialize};

use super::{check::Check, conversion::Manifest, metadata::Metadata};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Namespace {
    metadata: Metadata,
}

impl Manifest for Namespace {
    type Message = wire::Namespace;

    fn metadata(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    fn into_message(self, _check: &mut Check) -> wire::Namespace {
        let label = |(key, value)| wire::namespace::Label { key, value };
        wire::Namespace {
            name: self.metadata.name,
            label: self.metadata.labels.into_iter().map(label).collect(),
        }
    }

    fn from_message(message: &wire::Namespace) -> Self {
        let labels = message
            .label
            .iter()
            .map(|label| (label.key.clone(), label.value.clone()))
            .collect();
        Self {
            metadata: Metadata {
                labels,
                ..Metadata::named(&message.name, "")
            },
        }
    }
}
