//! What load balancers are told: whether this node's dataplane is up to date, and how many endpoints of a service are
//! here (`healthCheckNodePort`). As in kube-proxy's `pkg/proxy/healthcheck`.
//!
//! - [`ProxyHealth`] and [`HealthCheck`] are the pure decisions.
//! - [`HealthCheckServer`] is the task that owns the listeners of all health-check node ports. The event loop tells it
//!   what changes, and waits for nothing.

mod check;
mod proxy;
mod server;

use tokio::sync::{mpsc, watch};

use crate::event_loop::Reply;

pub use check::{HealthCheck, HealthUpdate, LocalEndpoints};
pub use proxy::{ProxyHealth, UNAPPLIED_LIMIT};
pub use server::{HealthCheckServer, HealthCheckView, ListenerView};

/// The channel for requests about the current health checks.
pub type HealthCheckQuestions = mpsc::Sender<Reply<Vec<HealthCheckView>>>;

/// How many requests may be queued.
const QUESTIONS: usize = 16;

/// How many updates may be queued for the server; further ones are merged in the loop.
const UPDATES: usize = 64;

/// The event loop's outputs about health.
#[derive(Debug)]
pub struct HealthOutputs {
    /// The renderer that the agent's health depends on, because the node's traffic does.
    pub renderer: String,
    /// The health of the agent.
    pub proxy: watch::Sender<ProxyHealth>,
    /// Changes for the server of health checks.
    pub updates: mpsc::Sender<HealthUpdate>,
}

/// The loop's ends of the channels, the server, the channel for requests, and the agent's health. `renderer` is the one that
/// the agent's health depends on.
pub fn channels(
    renderer: &str,
) -> (HealthOutputs, HealthCheckServer, HealthCheckQuestions, watch::Receiver<ProxyHealth>) {
    let (proxy, health) = watch::channel(ProxyHealth::starting());
    let (updates, receiver) = mpsc::channel(UPDATES);
    let (questions, asked) = mpsc::channel(QUESTIONS);
    let server = HealthCheckServer::new(receiver, asked, health.clone());
    (HealthOutputs { renderer: renderer.to_owned(), proxy, updates }, server, questions, health)
}
