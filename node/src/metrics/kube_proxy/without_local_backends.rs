//! Counts the ports of services that a traffic policy Local leaves without backends, as kube-proxy does.

use contiv_model::{ContivService, ServicePort, TrafficPolicy};

/// Ports of services with backends, of which a policy Local leaves none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WithoutLocalBackends {
    /// By the policy for cluster IPs.
    pub(super) internal: PortsByFamily,
    /// By the policy for external addresses and node ports.
    pub(super) external: PortsByFamily,
}

/// Numbers of ports by the family of the service's cluster IPs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PortsByFamily {
    /// IPv4.
    pub(super) ipv4: usize,
    /// IPv6.
    pub(super) ipv6: usize,
}

impl WithoutLocalBackends {
    /// Counts the ports of these services.
    pub(super) fn of<'a>(services: impl Iterator<Item = &'a ContivService>) -> Self {
        let mut counts = Self::default();
        for service in services {
            let is_local = |policy| policy == TrafficPolicy::Local;
            let (internal, external) = (
                is_local(service.internal_policy),
                is_local(service.external_policy),
            );
            if !internal && !external {
                continue;
            }
            for port in &service.ports {
                for ipv4 in [true, false] {
                    let is_of_family = service
                        .cluster_ips
                        .iter()
                        .any(|address| address.is_ipv4() == ipv4);
                    let missing = usize::from(is_of_family && lacks_local(port, ipv4));
                    for counts in [
                        internal.then_some(&mut counts.internal),
                        external.then_some(&mut counts.external),
                    ]
                    .into_iter()
                    .flatten()
                    {
                        *(if ipv4 {
                            &mut counts.ipv4
                        } else {
                            &mut counts.ipv6
                        }) += missing;
                    }
                }
            }
        }
        counts
    }
}

/// Whether a port has backends of this family, and none on this node.
fn lacks_local(port: &ServicePort, ipv4: bool) -> bool {
    let mut of_family = port
        .backends
        .iter()
        .filter(|backend| backend.address.is_ipv4() == ipv4)
        .peekable();
    of_family.peek().is_some()
        && !port
            .local_backends()
            .iter()
            .any(|backend| backend.address.is_ipv4() == ipv4)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use contiv_model::{Backend, Protocol, ServiceId};

    use super::*;

    fn service(
        policies: [TrafficPolicy; 2],
        cluster_ips: &[&str],
        backends: &[(&str, bool)],
    ) -> ContivService {
        let backend = |(address, local): &(&str, bool)| Backend {
            local: *local,
            ..Backend::new((address.parse::<IpAddr>().unwrap(), 8080).into())
        };
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: backends.iter().map(backend).collect(),
        };
        ContivService {
            internal_policy: policies[0],
            external_policy: policies[1],
            cluster_ips: cluster_ips
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", "web"))
        }
    }

    #[test]
    fn port_whose_policy_leaves_no_backend_counts_once_a_family() {
        use TrafficPolicy::{Cluster, Local};
        let both = ["10.96.0.1", "fd00::1"];
        let remote = [("10.1.0.1", false), ("fd01::1", false)];
        for (service, expected) in [
            (service([Cluster, Cluster], &both, &remote), [0, 0, 0, 0]),
            (service([Local, Cluster], &both, &remote), [1, 1, 0, 0]),
            (
                service(
                    [Cluster, Local],
                    &both,
                    &[("10.1.0.1", true), ("fd01::1", false)],
                ),
                [0, 0, 0, 1],
            ),
            (service([Local, Local], &both[..1], &remote), [1, 0, 1, 0]),
            (service([Local, Local], &both, &[]), [0, 0, 0, 0]),
        ] {
            let WithoutLocalBackends { internal, external } =
                WithoutLocalBackends::of([&service].into_iter());
            assert_eq!(
                [internal.ipv4, internal.ipv6, external.ipv4, external.ipv6],
                expected,
                "{service:?}"
            );
        }
    }
}
