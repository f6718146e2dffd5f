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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn backend(last: u8, local: bool, state: BackendState) -> Backend {
        Backend { address: [10, 0, 0, last].into(), port: 80, local, host_network: false, weight: 1, state }
    }

    fn chosen(backends: &[Backend]) -> (Vec<String>, Vec<String>) {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: backends.to_vec(),
        };
        let names = |backends: Vec<&Backend>| backends.iter().map(|b| b.address.to_string()).collect();
        (names(port.cluster_backends()), names(port.local_backends()))
    }

    #[test]
    fn terminating_backends_are_chosen_only_where_no_ready_one_is_left() {
        use BackendState::{Ready, Terminating};
        let remote_ready = backend(1, false, Ready);
        let local_ready = backend(2, true, Ready);
        let local_terminating = backend(3, true, Terminating);

        assert_eq!(
            chosen(&[remote_ready.clone(), local_ready, local_terminating.clone()]),
            (vec!["10.0.0.1".into(), "10.0.0.2".into()], vec!["10.0.0.2".into()])
        );
        // Each choice falls back for itself.
        assert_eq!(
            chosen(&[remote_ready.clone(), local_terminating.clone()]),
            (vec!["10.0.0.1".into()], vec!["10.0.0.3".into()])
        );
        assert_eq!(chosen(&[local_terminating]), (vec!["10.0.0.3".into()], vec!["10.0.0.3".into()]));
        assert_eq!(chosen(&[remote_ready]), (vec!["10.0.0.1".into()], vec![]));
    }
}
