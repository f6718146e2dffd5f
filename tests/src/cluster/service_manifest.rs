//! A service and its endpoint slices as `kubectl` prints them, with optional fields.

use std::fmt::Write;

use super::{
    NAMESPACE, PORT, Service, TARGET_PORT,
    service::{address_type, slice_name},
};
use crate::lab::{Family, Host, ranges};

/// A service with all fields of a manifest. Fields that are not set have the defaults of Kubernetes.
#[derive(Debug, Clone)]
pub struct ServiceManifest {
    /// Its name, its addresses and its ready backends.
    pub service: Service,
    /// Backends that are terminating and still serving.
    pub terminating: Vec<&'static Host>,
    /// The port on which the backends listen.
    pub target_port: u16,
    /// Backends that are pods of this weight.
    pub weights: Vec<(&'static Host, u8)>,
    /// Topology hints of some backends.
    pub hints: Vec<Hint>,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// `sessionAffinity: ClientIP` with this timeout in seconds.
    pub affinity: Option<u32>,
    /// The load balancer's addresses have `ipMode: Proxy`.
    pub proxied: bool,
    /// `loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// Annotations: name and value.
    pub annotations: Vec<(&'static str, &'static str)>,
    /// The value of the label `service.kubernetes.io/service-proxy-name`.
    pub proxy_name: Option<&'static str>,
}

const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// The topology hints of a backend.
#[derive(Debug, Clone, Copy)]
pub struct Hint {
    /// Name of the backend's host.
    pub backend: &'static str,
    /// Names of nodes: `forNodes`.
    pub nodes: &'static [&'static str],
    /// Names of zones: `forZones`.
    pub zones: &'static [&'static str],
}

impl ServiceManifest {
    /// With defaults.
    pub const fn new(service: Service) -> Self {
        Self {
            service,
            terminating: Vec::new(),
            target_port: TARGET_PORT,
            weights: Vec::new(),
            hints: Vec::new(),
            external_local: false,
            internal_local: false,
            affinity: None,
            proxied: false,
            source_ranges: Vec::new(),
            annotations: Vec::new(),
            proxy_name: None,
        }
    }

    /// The service and its slices.
    pub fn text(&self) -> String {
        let pods = self
            .weights
            .iter()
            .map(|(host, weight)| pod_text(host, *weight));
        format!(
            "{}---\n{}{}",
            self.service_text(),
            self.slices_text(),
            pods.collect::<String>()
        )
    }

    /// Only the slices, one of each family.
    pub(super) fn slices_text(&self) -> String {
        Family::BOTH
            .map(|family| self.slice_text(family))
            .join("---\n")
    }

    fn service_text(&self) -> String {
        let service = &self.service;
        let [cluster4, cluster6] = service.addresses(&ranges::SERVICES);
        let [external4, external6] = service.addresses(&ranges::EXTERNAL_IPS);
        let [balancer4, balancer6] = service.addresses(&ranges::LOAD_BALANCERS);
        let node_port = service.node_port();
        let policy = |local| if local { "Local" } else { "Cluster" };
        format!(
            "apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: {NAMESPACE}
  annotations: {{{annotations}}}
  labels: {{{labels}}}
spec:
  type: LoadBalancer
  clusterIP: {cluster4}
  clusterIPs: [{cluster4}, '{cluster6}']
  ipFamilies: [IPv4, IPv6]
  externalIPs: [{external4}, '{external6}']
  externalTrafficPolicy: {external_policy}
  internalTrafficPolicy: {internal_policy}
  ports:
  - {{name: web, protocol: TCP, port: {PORT}, targetPort: {target_port}, nodePort: {node_port}}}
  - {{name: web-udp, protocol: UDP, port: {PORT}, targetPort: {target_port}, nodePort: {node_port}}}
  - {{name: web-sctp, protocol: SCTP, port: {PORT}, targetPort: {target_port}, nodePort: {node_port}}}
{options}status:
  loadBalancer:
    ingress: [{{ip: {balancer4}, ipMode: {ip_mode}}}, {{ip: '{balancer6}', ipMode: {ip_mode}}}]
",
            name = service.name,
            target_port = self.target_port,
            annotations = joined(self.annotations.iter().map(|(name, value)| format!("{name}: '{value}'"))),
            labels = joined(self.proxy_name.iter().map(|name| format!("{PROXY_NAME}: {name}"))),
            external_policy = policy(self.external_local),
            internal_policy = policy(self.internal_local),
            options = self.options(),
            ip_mode = if self.proxied { "Proxy" } else { "VIP" },
        )
    }

    /// The optional fields of the specification.
    fn options(&self) -> String {
        let mut options = String::new();
        // Writing to a string cannot fail.
        if let Some(timeout) = self.affinity {
            let _ = writeln!(
                options,
                "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {timeout}}}}}"
            );
        }
        if !self.source_ranges.is_empty() {
            let ranges = joined(self.source_ranges.iter().map(|range| format!("'{range}'")));
            let _ = writeln!(options, "  loadBalancerSourceRanges: [{ranges}]");
        }
        options
    }

    /// The hints of one backend, if it has any.
    fn hints_text(&self, host: &Host) -> String {
        let of_host = self.hints.iter().filter(|hint| hint.backend == host.name);
        let lists = of_host.flat_map(|hint| [("forNodes", hint.nodes), ("forZones", hint.zones)]);
        joined(
            lists
                .filter(|(_, names)| !names.is_empty())
                .map(|(list, names)| {
                    let names = names.iter().map(|name| format!("{{name: {name}}}"));
                    format!("{list}: [{}]", joined(names))
                }),
        )
    }

    fn slice_text(&self, family: Family) -> String {
        let endpoint = |host: &Host, conditions: &str| {
            let is_pod = self.weights.iter().any(|(pod, _)| *pod == host);
            let reference = if is_pod {
                format!(
                    ", targetRef: {{kind: Pod, namespace: {NAMESPACE}, name: {}}}",
                    host.name
                )
            } else {
                String::new()
            };
            format!(
                "\n- {{addresses: ['{}'], nodeName: {}, conditions: {{{conditions}}}, hints: {{{}}}{reference}}}",
                host.address(family),
                host.node,
                self.hints_text(host),
            )
        };
        let ready = self
            .service
            .backends
            .iter()
            .map(|host| endpoint(host, "ready: true"));
        let terminating = self
            .terminating
            .iter()
            .map(|host| endpoint(host, "ready: false, serving: true, terminating: true"));
        let endpoints: String = ready.chain(terminating).collect();
        format!(
            "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {slice}
  namespace: {NAMESPACE}
  labels: {{kubernetes.io/service-name: {name}}}
addressType: {address_type}
ports:
- {{name: web, protocol: TCP, port: {target_port}}}
- {{name: web-udp, protocol: UDP, port: {target_port}}}
- {{name: web-sctp, protocol: SCTP, port: {target_port}}}
endpoints:{endpoints}
",
            slice = slice_name(&self.service, family),
            target_port = self.target_port,
            name = self.service.name,
            address_type = address_type(family),
            endpoints = if endpoints.is_empty() {
                " []"
            } else {
                &endpoints
            },
        )
    }
}

fn pod_text(host: &Host, weight: u8) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {NAMESPACE}, annotations: {{contiv.io/weight: '{weight}'}}}}
spec: {{nodeName: {node}}}
status: {{podIP: {address}}}
",
        name = host.name,
        node = host.node,
        address = host.v4,
    )
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}
