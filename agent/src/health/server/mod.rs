//! The task that owns the listeners of all health-check node ports.
//!
//! A health check listens where the node ports of its service answer: on each of those addresses, as kube-proxy does with
//! configured addresses. Each listener reports the number of endpoints of its family.

mod answer;
mod listener;
mod served;

#[cfg(test)]
mod tests;

use contiv_node::health::{HealthCheck, HealthUpdate, ProxyHealth};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use contiv_model::ServiceId;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use crate::connections::Connections;
use listener::{Listener, SharedListeners};
use served::ServedHealthCheck;

pub use served::{HealthCheckView, ListenerView};

/// When to try a failed listener again, unless something changes before.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The number of queued updates above which they are merged.
const MERGE_THRESHOLD: usize = 64;
/// The maximum number of connections to all health checks: load balancers connect every few seconds, and disconnect.
const MAX_CONNECTIONS: usize = 200;

/// The health checks of all services, and the inputs of their task.
#[derive(Debug)]
pub struct HealthCheckServer {
    updates: mpsc::UnboundedReceiver<HealthUpdate>,
    questions: mpsc::Receiver<oneshot::Sender<Vec<HealthCheckView>>>,
    proxy: watch::Receiver<ProxyHealth>,
    node_ips: BTreeSet<IpAddr>,
    services: BTreeMap<ServiceId, ServedHealthCheck>,
    /// Listeners that failed.
    failed: BTreeSet<(ServiceId, IpAddr)>,
    shared: SharedListeners,
}

impl HealthCheckServer {
    pub(super) fn new(
        updates: mpsc::UnboundedReceiver<HealthUpdate>,
        questions: mpsc::Receiver<oneshot::Sender<Vec<HealthCheckView>>>,
        proxy: watch::Receiver<ProxyHealth>,
    ) -> Self {
        Self {
            updates,
            questions,
            proxy,
            node_ips: BTreeSet::new(),
            services: BTreeMap::new(),
            failed: BTreeSet::new(),
            shared: SharedListeners::of_this_process(Connections::of_this_process(MAX_CONNECTIONS)),
        }
    }

    /// Serves until all senders of updates are gone.
    pub async fn run(mut self) {
        let mut retry_at = Instant::now();
        loop {
            // Updates come before requests.
            tokio::select! {
                biased;
                update = self.updates.recv() => match update {
                    Some(mut update) => {
                        // Of services that change faster than listeners open and close, only the last state counts.
                        while self.updates.len() > MERGE_THRESHOLD && let Ok(later) = self.updates.try_recv() {
                            update.merge(later);
                        }
                        self.apply_update(update).await;
                    }
                    None => return,
                },
                Some(reply) = self.questions.recv() => {
                    // The requester may be gone.
                    let _ = reply.send(self.services.iter().map(|(id, served)| served.view(id)).collect());
                    continue;
                }
                () = sleep_until(retry_at), if !self.failed.is_empty() => self.retry().await,
            }
            retry_at = Instant::now() + RETRY_AFTER;
        }
    }

    async fn apply_update(&mut self, update: HealthUpdate) {
        let mut to_open: Vec<(ServiceId, IpAddr)> = Vec::new();
        // Removals first: a freed port may belong to another service now.
        let mut removed: Vec<Listener> = Vec::new();
        for (id, check) in &update.services {
            removed.extend(self.withdraw(id, check.as_ref()));
        }
        let node_ips = update
            .node_ips
            .filter(|node_ips| *node_ips != self.node_ips);
        if let Some(node_ips) = node_ips {
            for address in self.node_ips.difference(&node_ips) {
                removed.extend(
                    self.services
                        .values_mut()
                        .filter_map(|served| served.close(*address)),
                );
                self.failed.retain(|(_, failed)| failed != address);
            }
            let new: Vec<IpAddr> = node_ips.difference(&self.node_ips).copied().collect();
            to_open.extend(
                self.services
                    .keys()
                    .flat_map(|id| new.iter().map(|address| (id.clone(), *address))),
            );
            self.node_ips = node_ips;
        }
        for listener in removed {
            listener.close().await;
        }
        for (id, check) in update.services {
            let Some(check) = check else { continue };
            if let Some(served) = self.services.get(&id) {
                served.set_local_endpoints(check.local_endpoints);
            } else {
                self.services
                    .insert(id.clone(), ServedHealthCheck::new(check));
                to_open.extend(self.node_ips.iter().map(|address| (id.clone(), *address)));
            }
        }
        // A removed listener may have freed a slot.
        self.retry().await;
        self.listen(to_open).await;
    }

    /// Removes a service, unless only its endpoints changed.
    fn withdraw(&mut self, id: &ServiceId, check: Option<&HealthCheck>) -> Vec<Listener> {
        let stays =
            |served: &ServedHealthCheck| check.is_some_and(|check| check.port == served.port());
        if self.services.get(id).is_none_or(stays) {
            return Vec::new();
        }
        for address in &self.node_ips {
            self.failed.remove(&(id.clone(), *address));
        }
        self.services
            .remove(id)
            .map(ServedHealthCheck::into_listeners)
            .unwrap_or_default()
    }

    async fn retry(&mut self) {
        let failed: Vec<_> = self.failed.iter().cloned().collect();
        self.listen(failed).await;
    }

    async fn listen(&mut self, to_open: Vec<(ServiceId, IpAddr)>) {
        for (id, address) in to_open {
            let Some(served) = self
                .services
                .get(&id)
                .filter(|served| !served.is_listening(address))
            else {
                continue;
            };
            let endpoint = SocketAddr::new(address, served.port());
            let (proxy, shared) = (self.proxy.clone(), self.shared.clone());
            let result =
                Listener::open(endpoint, &id, served.local_endpoints(), proxy, shared).await;
            let result = result.map_err(|error| self.explain(&error, endpoint));
            let failure = served.failure(address);
            match &result {
                Err(reason) if failure != Some(reason) => {
                    warn!(service = %id, %endpoint, reason, "a health check cannot be served; the others go on");
                }
                Ok(_) if failure.is_some() => {
                    info!(service = %id, %endpoint, "the health check is served now");
                }
                _ => {}
            }
            let key = (id, address);
            if result.is_ok() {
                self.failed.remove(&key);
            } else {
                self.failed.insert(key.clone());
            }
            if let Some(served) = self.services.get_mut(&key.0) {
                served.set_listener(address, result);
            }
        }
    }

    /// The reason for a failed listen: another service with the same health-check node port, or the system's error.
    fn explain(&self, error: &std::io::Error, endpoint: SocketAddr) -> String {
        let has_endpoint = |served: &ServedHealthCheck| {
            served.port() == endpoint.port() && served.is_listening(endpoint.ip())
        };
        match self
            .services
            .iter()
            .find(|(_, served)| has_endpoint(served))
        {
            Some((other, _)) => {
                format!("service {other} has the same health-check node port; give each its own")
            }
            None => format!("failed to listen on {endpoint}: {error}"),
        }
    }
}
