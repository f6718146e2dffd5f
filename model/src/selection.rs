//! Which backends of a service port a connection may reach. Source: kube-proxy's `CategorizeEndpoints`, KEP-1669.

use crate::{Backend, BackendState, ServicePort};

impl ServicePort {
    /// Backends for traffic with policy Cluster: the ready ones, or else those terminating but still serving.
    pub fn cluster_backends(&self) -> Vec<&Backend> {
        prefer_ready(self.backends.iter())
    }

    /// Backends for traffic with policy Local: the same choice among those on this node.
    pub fn local_backends(&self) -> Vec<&Backend> {
        prefer_ready(self.backends.iter().filter(|backend| backend.local))
    }
}

fn prefer_ready<'a>(backends: impl Iterator<Item = &'a Backend>) -> Vec<&'a Backend> {
    let (ready, terminating): (Vec<_>, Vec<_>) =
        backends.partition(|backend| backend.state == BackendState::Ready);
    if ready.is_empty() { terminating } else { ready }
}
