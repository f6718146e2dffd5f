//! Health checks for load balancers: whether this node's dataplane is up to date (`healthz`), and the number of a service's
//! endpoints on this node (`healthCheckNodePort`). As in kube-proxy's `pkg/proxy/healthcheck`.

mod check;
mod proxy;

pub use check::{HealthCheck, HealthUpdate, LocalEndpoints};
pub use proxy::{ProxyHealth, UNAPPLIED_LIMIT};
