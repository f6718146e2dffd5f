//! Annotations of services and pods.

use std::{collections::BTreeMap, fmt};

use contiv_proto::annotation::{self, Switch};

use super::error::Problems;
use crate::{Balance, object::ServiceOptions};

/// The options of a service.
pub(super) fn options(
    annotations: &BTreeMap<String, String>,
    problems: &mut Problems,
) -> ServiceOptions {
    let routed = problems
        .check(
            Path(annotation::RENDERER.name),
            annotation::RENDERER.choice(annotations),
        )
        .flatten();
    let failover = problems
        .check(
            Path(annotation::FAILOVER.name),
            annotation::FAILOVER.value(annotations),
        )
        .flatten();
    let mut is_set = |switch: Switch| {
        problems
            .check(Path(switch.name), switch.is_set(annotations))
            .unwrap_or_default()
    };
    ServiceOptions {
        routed,
        failover: failover.and_then(|name| name.parse().ok()),
        affinity_shared: is_set(annotation::SESSION_AFFINITY_SCOPE),
        balance: if is_set(annotation::BALANCE) {
            Balance::ClientAddress
        } else {
            Balance::Random
        },
        prefer_local: is_set(annotation::PREFER_LOCAL),
        reset_connections: is_set(annotation::RESET_CONNECTIONS),
    }
}

/// The weight of a pod.
pub(super) fn weight(annotations: &BTreeMap<String, String>, problems: &mut Problems) -> u8 {
    problems
        .check(Path(annotation::WEIGHT), annotation::weight(annotations))
        .unwrap_or(1)
}

/// The path of an annotation, formatted only if there is a problem.
struct Path(&'static str);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metadata.annotations[{}]", self.0)
    }
}
