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

/// Where to ask for the health checks that there are.
pub type HealthCheckQuestions = mpsc::Sender<Reply<Vec<HealthCheckView>>>;

/// How many questions may wait for the server of health checks.
const QUESTIONS: usize = 16;

/// How many updates may wait for the server; what comes then is one update, and waits in the loop.
const UPDATES: usize = 64;

/// What the event loop has, to tell of health.
#[derive(Debug)]
pub struct HealthOutputs {
    /// The renderer that the agent's health is about: the one that the node's traffic depends on.
    pub renderer: String,
    /// How the agent is.
    pub proxy: watch::Sender<ProxyHealth>,
    /// What changes for the server of health checks.
    pub updates: mpsc::Sender<HealthUpdate>,
}

/// The loop's ends of the channels, the server at their other ends, where to ask it, and how the agent is. `renderer`
/// is the one that the agent's health is about.
pub fn channels(
    renderer: &str,
) -> (HealthOutputs, HealthCheckServer, HealthCheckQuestions, watch::Receiver<ProxyHealth>) {
    let (proxy, health) = watch::channel(ProxyHealth::starting());
    let (updates, receiver) = mpsc::channel(UPDATES);
    let (questions, asked) = mpsc::channel(QUESTIONS);
    let server = HealthCheckServer::new(receiver, asked, health.clone());
    (HealthOutputs { renderer: renderer.to_owned(), proxy, updates }, server, questions, health)
}
