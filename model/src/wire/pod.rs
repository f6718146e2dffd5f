//! Pods.

use std::collections::BTreeSet;

use contiv_proto::message::pod as proto;

use super::{
    annotations,
    error::{FieldError, Problems},
    field,
};
use crate::{PodId, object::Pod};

pub(super) fn validate(message: &proto::Pod) -> Result<Pod, Vec<FieldError>> {
    let mut problems = Problems::default();
    problems.check("namespace", field::name(&message.namespace));
    problems.check("name", field::name(&message.name));

    let mut ips = BTreeSet::new();
    if !message.ip_address.is_empty() {
        ips.extend(problems.check("ip_address", field::ip(&message.ip_address)));
    }
    for (i, ip) in message.ip_addresses.iter().enumerate() {
        ips.extend(problems.check(format_args!("ip_addresses[{i}]"), field::ip(ip)));
    }
    let host_ip = match message.host_ip_address.as_str() {
        "" => None,
        ip => problems.check("host_ip_address", field::ip(ip)),
    };
    // Contiv's reflector does not say it; the addresses do.
    let host_network = message.host_network || host_ip.is_some_and(|host_ip| ips.contains(&host_ip));
    if matches!(message.phase.as_str(), "Succeeded" | "Failed") {
        ips.clear();
    }
    let id = PodId::new(message.namespace.as_str(), message.name.as_str());
    let weight = annotations::weight(&message.annotations, &mut problems);
    problems.finish(Pod { id, ips, host_network, weight })
}
