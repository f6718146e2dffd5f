//! One service with a health check: its port, what it says, and its listeners.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_model::ServiceId;
use serde::Serialize;
use tokio::sync::watch;

use super::listener::Listener;
use crate::health::{HealthCheck, LocalEndpoints};

/// A service whose health check is served.
#[derive(Debug)]
pub(super) struct ServedHealthCheck {
    port: u16,
    local_endpoints: watch::Sender<LocalEndpoints>,
    /// A listener, or why there is none.
    listeners: BTreeMap<IpAddr, Result<Listener, String>>,
}

/// A health check as it is shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheckView {
    /// Whose.
    pub service: ServiceId,
    /// Where it answers.
    pub port: u16,
    /// What it says.
    pub local_endpoints: LocalEndpoints,
    /// On which addresses of the node. None where no address is known on which node ports answer.
    pub listeners: Vec<ListenerView>,
}

/// One address of a health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerView {
    /// The address.
    pub address: IpAddr,
    /// Why it does not answer there. It is tried again every 10 s, and when something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ServedHealthCheck {
    pub(super) fn new(check: HealthCheck) -> Self {
        let (local_endpoints, _) = watch::channel(check.local_endpoints);
        Self { port: check.port, local_endpoints, listeners: BTreeMap::new() }
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// What listeners follow.
    pub(super) fn local_endpoints(&self) -> watch::Receiver<LocalEndpoints> {
        self.local_endpoints.subscribe()
    }

    /// Changes the answer of all listeners.
    pub(super) fn say(&self, local_endpoints: LocalEndpoints) {
        self.local_endpoints.send_replace(local_endpoints);
    }

    pub(super) fn is_listening(&self, address: IpAddr) -> bool {
        matches!(self.listeners.get(&address), Some(Ok(_)))
    }

    /// Why it does not listen on this address.
    pub(super) fn failure(&self, address: IpAddr) -> Option<&String> {
        self.listeners.get(&address)?.as_ref().err()
    }

    pub(super) fn note(&mut self, address: IpAddr, result: Result<Listener, String>) {
        self.listeners.insert(address, result);
    }

    /// The listener of an address that is gone.
    pub(super) fn close(&mut self, address: IpAddr) -> Option<Listener> {
        self.listeners.remove(&address)?.ok()
    }

    pub(super) fn into_listeners(self) -> Vec<Listener> {
        self.listeners.into_values().filter_map(Result::ok).collect()
    }

    pub(super) fn view(&self, service: &ServiceId) -> HealthCheckView {
        let listener = |(address, result): (&IpAddr, &Result<Listener, String>)| ListenerView {
            address: *address,
            error: result.as_ref().err().cloned(),
        };
        HealthCheckView {
            service: service.clone(),
            port: self.port,
            local_endpoints: *self.local_endpoints.borrow(),
            listeners: self.listeners.iter().map(listener).collect(),
        }
    }
}
