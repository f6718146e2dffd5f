//! Selects the backends of a service port that a connection may reach. Source: kube-proxy's `CategorizeEndpoints`, KEP-1669.

use crate::{Backend, BackendState, ServicePort};

impl ServicePort {
    /// Backends for traffic with policy Cluster: the ready ones that topology leaves to this node, or without any ready one,
    /// those terminating but still serving, or without these, those that are failing. Each family separately.
    pub fn cluster_backends(&self) -> Vec<&Backend> {
        self.choose(|backend| backend.in_topology, |_| true)
    }

    /// Backends for traffic with policy Local: the ready ones on this node, or else those terminating but still serving, or
    /// else those failing. Topology does not matter. Each family separately.
    pub fn local_backends(&self) -> Vec<&Backend> {
        self.choose(|backend| backend.local, |backend| backend.local)
    }

    /// For each family the ready backends that match, or else of the other states the first with matching ones.
    fn choose(
        &self,
        ready: fn(&Backend) -> bool,
        in_other_state: fn(&Backend) -> bool,
    ) -> Vec<&Backend> {
        // Traffic never crosses families: a backend of one does not help the other.
        let of_family = |ipv4: bool| {
            let all = move || {
                self.backends
                    .iter()
                    .filter(move |backend| backend.address.is_ipv4() == ipv4)
            };
            let in_state = move |state, is_wanted: fn(&Backend) -> bool| {
                all()
                    .filter(move |backend| backend.state == state && is_wanted(backend))
                    .peekable()
            };
            let mut chosen = in_state(BackendState::Ready, ready);
            for state in [BackendState::Terminating, BackendState::Failing] {
                if chosen.peek().is_none() {
                    chosen = in_state(state, in_other_state);
                }
            }
            chosen
        };
        of_family(true).chain(of_family(false)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn backend(last: u8, local: bool, state: BackendState) -> Backend {
        Backend {
            local,
            state,
            ..Backend::new(([10, 0, 0, last], 80).into())
        }
    }

    fn chosen(backends: &[Backend]) -> (Vec<String>, Vec<String>) {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: backends.to_vec(),
        };
        let names =
            |backends: Vec<&Backend>| backends.iter().map(|b| b.address.to_string()).collect();
        (names(port.cluster_backends()), names(port.local_backends()))
    }

    #[test]
    fn terminating_backends_are_chosen_only_without_ready_ones() {
        use BackendState::{Ready, Terminating};
        let remote_ready = backend(1, false, Ready);
        let local_ready = backend(2, true, Ready);
        let local_terminating = backend(3, true, Terminating);

        assert_eq!(
            chosen(&[remote_ready.clone(), local_ready, local_terminating.clone()]),
            (
                vec!["10.0.0.1".into(), "10.0.0.2".into()],
                vec!["10.0.0.2".into()]
            )
        );
        // Each choice falls back separately.
        assert_eq!(
            chosen(&[remote_ready.clone(), local_terminating.clone()]),
            (vec!["10.0.0.1".into()], vec!["10.0.0.3".into()])
        );
        assert_eq!(
            chosen(&[local_terminating]),
            (vec!["10.0.0.3".into()], vec!["10.0.0.3".into()])
        );
        assert_eq!(chosen(&[remote_ready]), (vec!["10.0.0.1".into()], vec![]));
    }

    #[test]
    fn failing_backends_are_chosen_only_without_any_other() {
        use BackendState::{Failing, Ready, Terminating};
        let local_failing = backend(1, true, Failing);
        let remote_ready = backend(2, false, Ready);
        let local_terminating = backend(3, true, Terminating);
        let one = |last: u8| vec![format!("10.0.0.{last}")];

        assert_eq!(
            chosen(&[local_failing.clone(), remote_ready]),
            (one(2), one(1)),
            "each choice falls back separately"
        );
        assert_eq!(
            chosen(&[local_failing.clone(), local_terminating]),
            (one(3), one(3))
        );
        let remote_failing = backend(4, false, Failing);
        assert_eq!(
            chosen(&[local_failing, remote_failing]),
            (vec!["10.0.0.1".into(), "10.0.0.4".into()], one(1))
        );
    }

    #[test]
    fn backends_outside_topology_are_for_policy_local_only() {
        use BackendState::{Ready, Terminating};
        let elsewhere = Backend {
            in_topology: false,
            ..backend(1, true, Ready)
        };
        let here = backend(2, false, Ready);
        assert_eq!(
            chosen(&[elsewhere.clone(), here]),
            (vec!["10.0.0.2".into()], vec!["10.0.0.1".into()])
        );
        // With a ready one the terminating ones are unused.
        let (cluster, _) = chosen(&[backend(2, false, Ready), backend(3, false, Terminating)]);
        assert_eq!(cluster, ["10.0.0.2"]);
    }

    #[test]
    fn ready_backend_of_one_family_does_not_count_for_the_other() {
        let v6 = |state| Backend {
            local: true,
            state,
            ..Backend::new((std::net::Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]), 80).into())
        };
        let v4 = backend(1, true, BackendState::Ready);
        let both = vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()];
        assert_eq!(
            chosen(&[v4, v6(BackendState::Terminating)]),
            (both.clone(), both)
        );
    }
}
