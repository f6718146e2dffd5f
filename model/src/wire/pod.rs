//! Pods.

use std::collections::BTreeSet;

use contiv_proto::{check, message::pod as proto};

use super::{
    annotations,
    error::{Problems, Validated},
};
use crate::{PodId, object::Pod};

pub(super) fn validate(message: &proto::Pod) -> Validated<Pod> {
    let mut problems = Problems::default();
    problems.check("metadata.namespace", check::name(&message.namespace));
    problems.check("metadata.name", check::name(&message.name));

    let mut ips = BTreeSet::new();
    if !message.ip_address.is_empty() {
        ips.extend(problems.address("status.podIP", &message.ip_address, check::address));
    }
    for (i, ip) in message.ip_addresses.iter().enumerate() {
        ips.extend(problems.address(format_args!("status.podIPs[{i}].ip"), ip, check::address));
    }
    let host_ip = match message.host_ip_address.as_str() {
        "" => None,
        ip => problems.address("status.hostIP", ip, check::address),
    };
    // Contiv's reflector does not store the flag; the addresses imply it.
    let host_network =
        message.host_network || host_ip.is_some_and(|host_ip| ips.contains(&host_ip));
    if matches!(message.phase.as_str(), "Succeeded" | "Failed") {
        ips.clear();
    }
    let id = PodId::new(message.namespace.as_str(), message.name.as_str());
    let weight = annotations::weight(&message.annotations, &mut problems);
    problems.finish(Pod {
        id,
        ips,
        host_network,
        weight,
    })
}
