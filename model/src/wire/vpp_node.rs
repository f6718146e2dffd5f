//! Contiv's records of allocated node ids.

use std::collections::BTreeSet;

use contiv_proto::message::vppnode as proto;

use super::{
    error::{FieldError, Problems},
    field,
};
use crate::{NodeName, object::VppNode};

pub(super) fn validate(message: &proto::VppNode) -> Result<VppNode, Vec<FieldError>> {
    let mut problems = Problems::default();
    problems.check("name", field::name(&message.name));

    let mut ips = BTreeSet::new();
    for (i, ip) in message.ip_addresses.iter().enumerate() {
        ips.extend(problems.check(format_args!("ip_addresses[{i}]"), field::ip_of_interface(ip)));
    }
    // Obsolete, and counted as one more, as Contiv does.
    if !message.ip_address.is_empty() {
        ips.extend(problems.check("ip_address", field::ip_of_interface(&message.ip_address)));
    }
    problems.finish(VppNode { id: message.id, name: NodeName::new(message.name.as_str()), ips })
}
