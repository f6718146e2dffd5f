//! Health checks for load balancers: whether this node's dataplane is up to date (`healthz`), and the number of a service's
//! endpoints on this node (`healthCheckNodePort`). As in kube-proxy's `pkg/proxy/healthcheck`.
//!
//! - [`HealthFacts`] decides what in an agent needs attention.
//! - [`HealthCheckServer`] is the task that owns the listeners of all health-check node ports. The node core sends it what
//!   changes, and waits for nothing.

mod agent_health;
mod server;

use std::time::Instant;

use contiv_node::health::{HealthUpdate, ProxyHealth};
use tokio::sync::{mpsc, oneshot, watch};

pub use agent_health::{AgentHealth, HealthFacts, Problem, ProblemKind, RendererFacts, ago};
pub use server::{HealthCheckServer, HealthCheckView, ListenerView};

/// Requests to the server for the current health checks.
pub type HealthCheckQuestions = mpsc::Sender<oneshot::Sender<Vec<HealthCheckView>>>;

/// How many requests may be queued.
const QUEUE_CAPACITY: usize = 16;

/// The channel by which the node core publishes its health.
#[derive(Debug)]
pub struct HealthOutputs {
    /// How the agent is.
    pub proxy: watch::Sender<ProxyHealth>,
    /// Changes for the server of health checks.
    pub updates: mpsc::UnboundedSender<HealthUpdate>,
}

/// The node's ends of the channels, the server at their other ends, where to ask it, and the node's health.
pub fn channels() -> (
    HealthOutputs,
    HealthCheckServer,
    HealthCheckQuestions,
    watch::Receiver<ProxyHealth>,
) {
    let (proxy, health) = watch::channel(ProxyHealth::starting(Instant::now()));
    let (updates, receiver) = mpsc::unbounded_channel();
    let (questions, asked) = mpsc::channel(QUEUE_CAPACITY);
    let server = HealthCheckServer::new(receiver, asked, health.clone());
    (HealthOutputs { proxy, updates }, server, questions, health)
}
