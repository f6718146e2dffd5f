//! Custom IP allocations.

use contiv_proto::{check, message::ipalloc as proto};

use super::error::{Problems, Validated};
use crate::{
    InterfaceName, PodId,
    object::{CustomInterface, IpAllocation},
};

pub(super) fn validate(message: &proto::CustomIpAllocation) -> Validated<IpAllocation> {
    let mut problems = Problems::default();
    problems.check("spec.pod_namespace", check::name(&message.pod_namespace));
    problems.check("spec.pod_name", check::name(&message.pod_name));

    let mut interfaces = Vec::with_capacity(message.custom_interfaces.len());
    for (i, interface) in message.custom_interfaces.iter().enumerate() {
        let path = format_args!("spec.custom_interfaces[{i}]");
        problems.check(format_args!("{path}.name"), check::name(&interface.name));
        let field = format_args!("{path}.ip_address");
        let read = problems.decimal(field, &interface.ip_address, check::interface_address);
        let ip = match (interface.ip_address.as_str(), interface.service_endpoint) {
            ("", true) => {
                problems.add(
                    field,
                    "it is empty; services need the address to reach the pod through this interface",
                );
                None
            }
            ("", false) => None,
            // Without it services would reach the pod through its main interface, which its owner did not want.
            (_, true) => problems.check(field, read),
            // Nothing depends on it.
            (_, false) => problems.known(field, read),
        };
        interfaces.push(CustomInterface {
            name: InterfaceName::new(interface.name.as_str()),
            network: interface.network.as_str().into(),
            ip,
            service_endpoint: interface.service_endpoint,
        });
    }
    let pod = PodId::new(message.pod_namespace.as_str(), message.pod_name.as_str());
    problems.finish(IpAllocation { pod, interfaces })
}
