//! The numbers of services and their parts, computed from the state of the node on demand.

use contiv_model::{Frontend, NotServed, ServiceId};
use serde::Serialize;

use crate::Core;

/// The maximum length of each list of services.
const MAX_NAMED: usize = 5;

/// The sizes of the node's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServiceSizes {
    /// Services that are passed to renderers.
    pub services: usize,
    /// Their ports.
    pub service_ports: usize,
    /// Their backends, over all ports.
    pub backends: usize,
    /// Services with a port that has no backends: connections to it are rejected.
    pub services_without_backends: usize,
    /// The first of them by name.
    pub without_backends: Vec<ServiceId>,
    /// Services that claim a frontend that another service holds.
    pub services_with_lost_frontends: usize,
    /// The first of them by name, each with one such frontend.
    pub lost_frontends: Vec<LostFrontend>,
    /// Stored services whose label leaves them to another proxy.
    pub left_to_other_proxies: usize,
    /// Stored services with neither an address nor a node port, so that nothing can be served.
    pub services_without_address: usize,
    /// The first of them by name.
    pub without_address: Vec<ServiceId>,
}

/// A frontend that two services claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostFrontend {
    /// The service that does not get it.
    pub service: ServiceId,
    /// The frontend.
    pub frontend: Frontend,
    /// The service that holds it.
    pub holder: ServiceId,
}

impl ServiceSizes {
    /// The sizes of the state of this node.
    pub fn of(core: &Core) -> Self {
        let mut sizes = Self::default();
        for unserved in core.unserved_services() {
            match unserved.not_served {
                NotServed::OtherProxy(_) => sizes.left_to_other_proxies += 1,
                NotServed::NoAddress => {
                    sizes.services_without_address += 1;
                    if sizes.without_address.len() < MAX_NAMED {
                        sizes.without_address.push(unserved.id);
                    }
                }
                NotServed::ExternalName | NotServed::Headless => (),
            }
        }
        for service in core.processor_services() {
            sizes.services += 1;
            sizes.service_ports += service.ports.len();
            sizes.backends += service
                .ports
                .iter()
                .map(|port| port.backends.len())
                .sum::<usize>();
            if service.ports_without_backends().next().is_some() {
                sizes.services_without_backends += 1;
                if sizes.without_backends.len() < MAX_NAMED {
                    sizes.without_backends.push(service.id.clone());
                }
            }
            if let Some((frontend, holder)) = service.lost.iter().next() {
                sizes.services_with_lost_frontends += 1;
                if sizes.lost_frontends.len() < MAX_NAMED {
                    let (service, frontend, holder) =
                        (service.id.clone(), *frontend, holder.clone());
                    sizes.lost_frontends.push(LostFrontend {
                        service,
                        frontend,
                        holder,
                    });
                }
            }
        }
        sizes
    }
}
