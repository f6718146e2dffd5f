//! Contiv's records of allocated node ids.

use std::collections::BTreeSet;

use contiv_proto::{check, message::vppnode as proto};

use super::error::{Problems, Validated};
use crate::{NodeName, object::VppNode};

pub(super) fn validate(message: &proto::VppNode) -> Validated<VppNode> {
    let mut problems = Problems::default();
    problems.check("metadata.name", check::name(&message.name));

    let mut ips = BTreeSet::new();
    for (i, ip) in message.ip_addresses.iter().enumerate() {
        ips.extend(problems.address(
            format_args!("spec.ip_addresses[{i}]"),
            ip,
            check::interface_address,
        ));
    }
    // Obsolete; read as an additional address, as in Contiv.
    if !message.ip_address.is_empty() {
        ips.extend(problems.address(
            "spec.ip_address",
            &message.ip_address,
            check::interface_address,
        ));
    }
    problems.finish(VppNode {
        id: message.id,
        name: NodeName::new(message.name.as_str()),
        ips,
    })
}
