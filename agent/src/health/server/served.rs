//! One service with a health check: its port, its content, and its listeners.

use contiv_node::health::{HealthCheck, LocalEndpoints};
use std::{collections::BTreeMap, net::IpAddr};

use contiv_model::ServiceId;
use serde::Serialize;
use tokio::sync::watch;

use super::listener::Listener;

/// A service whose health check is served.
#[derive(Debug)]
pub(super) struct ServedHealthCheck {
    port: u16,
    local_endpoints: watch::Sender<LocalEndpoints>,
    /// The listener on each address, or the reason why it could not be opened.
    listeners: BTreeMap<IpAddr, Result<Listener, String>>,
}

/// A health check as the debug HTTP shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheckView {
    /// The service.
    pub service: ServiceId,
    /// Its port.
    pub port: u16,
    /// Its content.
    pub local_endpoints: LocalEndpoints,
    /// Its listeners. Empty if no address for node ports is known.
    pub listeners: Vec<ListenerView>,
}

/// One address of a health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerView {
    /// The address.
    pub address: IpAddr,
    /// The reason why nothing listens there. Listening is retried every 10 s, and when something changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ServedHealthCheck {
    pub(super) fn new(check: HealthCheck) -> Self {
        let (local_endpoints, _) = watch::channel(check.local_endpoints);
        Self {
            port: check.port,
            local_endpoints,
            listeners: BTreeMap::new(),
        }
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// The value that the listeners report.
    pub(super) fn local_endpoints(&self) -> watch::Receiver<LocalEndpoints> {
        self.local_endpoints.subscribe()
    }

    /// Changes the answer of all listeners.
    pub(super) fn set_local_endpoints(&self, local_endpoints: LocalEndpoints) {
        self.local_endpoints.send_replace(local_endpoints);
    }

    pub(super) fn is_listening(&self, address: IpAddr) -> bool {
        matches!(self.listeners.get(&address), Some(Ok(_)))
    }

    /// The reason why it does not listen on this address.
    pub(super) fn failure(&self, address: IpAddr) -> Option<&String> {
        self.listeners.get(&address)?.as_ref().err()
    }

    pub(super) fn set_listener(&mut self, address: IpAddr, result: Result<Listener, String>) {
        self.listeners.insert(address, result);
    }

    /// Takes the listener of a removed address.
    pub(super) fn close(&mut self, address: IpAddr) -> Option<Listener> {
        self.listeners.remove(&address)?.ok()
    }

    pub(super) fn into_listeners(self) -> Vec<Listener> {
        self.listeners
            .into_values()
            .filter_map(Result::ok)
            .collect()
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
