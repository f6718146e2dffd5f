//! Annotations of services and pods.

use std::collections::BTreeMap;

use contiv_proto::annotation::{self, Switch};

use super::error::Problems;
use crate::{Balance, object::ServiceOptions};

/// What a service asks for.
pub(super) fn options(annotations: &BTreeMap<String, String>, problems: &mut Problems) -> ServiceOptions {
    let routed =
        problems.check(path(annotation::RENDERER.name), annotation::RENDERER.choice(annotations)).flatten();
    let mut is_set =
        |switch: Switch| problems.check(path(switch.name), switch.is_set(annotations)).unwrap_or_default();
    ServiceOptions {
        routed,
        affinity_shared: is_set(annotation::SESSION_AFFINITY_SCOPE),
        balance: if is_set(annotation::BALANCE) { Balance::ClientAddress } else { Balance::Random },
        prefer_local: is_set(annotation::PREFER_LOCAL),
        reset_connections: is_set(annotation::RESET_CONNECTIONS),
    }
}

/// The weight of a pod.
pub(super) fn weight(annotations: &BTreeMap<String, String>, problems: &mut Problems) -> u8 {
    problems.check(path(annotation::WEIGHT), annotation::weight(annotations)).unwrap_or(1)
}

fn path(name: &str) -> String {
    format!("annotations[{name}]")
}
