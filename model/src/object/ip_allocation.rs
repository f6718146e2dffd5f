//! Custom IP allocations: additional interfaces of a pod.

use std::{net::IpAddr, sync::Arc};

use serde::Serialize;

use crate::{InterfaceName, PodId};

/// The custom interfaces of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IpAllocation {
    /// The pod.
    pub pod: PodId,
    /// In the order of the object.
    pub interfaces: Vec<CustomInterface>,
}

impl IpAllocation {
    /// The interface by which services reach the pod instead of its main one. The last one counts, as in Contiv.
    pub fn service_endpoint(&self) -> Option<&CustomInterface> {
        self.interfaces
            .iter()
            .rfind(|interface| interface.service_endpoint)
    }
}

/// An interface that a pod has besides its main one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CustomInterface {
    /// Its name.
    pub name: InterfaceName,
    /// The network it is in; empty and "default" both mean the pod network.
    pub network: Arc<str>,
    /// Its address, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// Services reach the pod through this interface instead of its main one.
    pub service_endpoint: bool,
}

impl CustomInterface {
    /// It is in the pod network, where the services are.
    pub fn in_pod_network(&self) -> bool {
        matches!(&*self.network, "" | "default")
    }
}
