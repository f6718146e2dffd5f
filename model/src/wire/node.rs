//! Nodes.

use std::collections::BTreeSet;

use contiv_proto::{
    check,
    message::node::{self as proto, node_address::Type},
    taint::TO_BE_DELETED,
};

use super::error::{Problems, Validated};
use crate::{NodeName, object::Node};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

pub(super) fn validate(message: &proto::Node) -> Validated<Node> {
    let mut problems = Problems::default();
    problems.check("metadata.name", check::name(&message.name));

    let (mut internal_ips, mut external_ips) = (Vec::new(), Vec::new());
    for (i, address) in message.addresses.iter().enumerate() {
        let ips = match address.r#type() {
            Type::NodeInternalIp => &mut internal_ips,
            Type::NodeExternalIp => &mut external_ips,
            // The other types are host names.
            _ => continue,
        };
        ips.extend(problems.address(
            format_args!("status.addresses[{i}].address"),
            &address.address,
            check::address,
        ));
    }
    let mut pod_cidrs = BTreeSet::new();
    if !message.pod_cidr.is_empty() {
        pod_cidrs.extend(problems.address("spec.podCIDR", &message.pod_cidr, check::range));
    }
    for (i, cidr) in message.pod_cidrs.iter().enumerate() {
        pod_cidrs.extend(problems.address(format_args!("spec.podCIDRs[{i}]"), cidr, check::range));
    }
    let zone = message
        .labels
        .get(ZONE_LABEL)
        .filter(|zone| !zone.is_empty());
    problems.finish(Node {
        name: NodeName::new(message.name.as_str()),
        internal_ips,
        external_ips,
        pod_cidrs,
        zone: zone.map(|zone| zone.as_str().into()),
        is_being_deleted: message.deletion_timestamp != 0
            || message
                .taints
                .iter()
                .any(|taint| taint.key == TO_BE_DELETED),
    })
}
