//! A cluster of many different services, as manifests.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use contiv_tests::lab::{Family, ranges};

use crate::kube_proxy_rules::{Condition, Endpoint, Port, Service, ZONE};

impl Service {
    /// The service and its slices as `kubectl` prints them.
    pub(super) fn manifest(&self) -> String {
        let mut text = format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {}, namespace: shop}}\nspec:\n",
            self.name
        );
        let mut line = |content: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{content}");
        };
        let quoted = |addresses: Vec<IpAddr>| {
            let all: Vec<String> = addresses.iter().map(|it| format!("'{it}'")).collect();
            all.join(", ")
        };
        let of_each = |of: &dyn Fn(Family) -> Option<IpAddr>| -> Vec<IpAddr> {
            self.families
                .iter()
                .filter_map(|family| of(*family))
                .collect()
        };
        let has_node_ports = self.ports.iter().any(|port| port.node_port.is_some());
        let kind = match (self.is_balanced, has_node_ports) {
            (true, _) => "LoadBalancer",
            (false, true) => "NodePort",
            (false, false) => "ClusterIP",
        };
        line(format_args!("  type: {kind}"));
        if self.headless {
            line(format_args!("  clusterIP: None\n  clusterIPs: [None]"));
        } else {
            let ips = of_each(&|family| Some(self.cluster_ip(family)));
            line(format_args!(
                "  clusterIP: '{}'\n  clusterIPs: [{}]",
                ips[0],
                quoted(ips.clone())
            ));
        }
        let families: Vec<&str> = self
            .families
            .iter()
            .map(|family| family_name(*family))
            .collect();
        line(format_args!("  ipFamilies: [{}]", families.join(", ")));
        let external = of_each(&|family| self.external_ip(family));
        line(format_args!("  externalIPs: [{}]", quoted(external)));
        let policy = |is_local| if is_local { "Local" } else { "Cluster" };
        if self.is_external() {
            line(format_args!(
                "  externalTrafficPolicy: {}",
                policy(self.external_local)
            ));
        }
        line(format_args!(
            "  internalTrafficPolicy: {}",
            policy(self.internal_local)
        ));
        if let Some(timeout) = self.affinity {
            line(format_args!(
                "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {timeout}}}}}"
            ));
        }
        if !self.source_ranges.is_empty() {
            let ranges: Vec<String> = self
                .source_ranges
                .iter()
                .map(|it| format!("'{it}'"))
                .collect();
            line(format_args!(
                "  loadBalancerSourceRanges: [{}]",
                ranges.join(", ")
            ));
        }
        line(format_args!("  ports:"));
        for Port {
            name,
            protocol,
            port,
            target,
            node_port,
        } in &self.ports
        {
            let node_port = node_port.map_or_else(String::new, |it| format!(", nodePort: {it}"));
            let protocol = protocol.to_uppercase();
            // The target is a name, as in many clusters: slices have its number.
            line(format_args!(
                "  - {{name: {name}, protocol: {protocol}, port: {port}, targetPort: target-{target}{node_port}}}"
            ));
        }
        let balancers = of_each(&|family| self.balancer_ip(family));
        if !balancers.is_empty() {
            let ips: Vec<String> = balancers
                .iter()
                .map(|it| format!("{{ip: '{it}'}}"))
                .collect();
            line(format_args!(
                "status: {{loadBalancer: {{ingress: [{}]}}}}",
                ips.join(", ")
            ));
        }
        for family in &self.families {
            text.push_str(&self.slice(*family));
        }
        text
    }

    fn slice(&self, family: Family) -> String {
        let mut text = format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{kind}\n  namespace: shop\n  \
             labels: {{kubernetes.io/service-name: {name}}}\naddressType: {kind_of}\nports:\n",
            name = self.name,
            kind = family_name(family).to_lowercase(),
            kind_of = family_name(family),
        );
        for Port {
            name,
            protocol,
            target,
            ..
        } in &self.ports
        {
            let protocol = protocol.to_uppercase();
            let _ = writeln!(
                text,
                "- {{name: {name}, protocol: {protocol}, port: {target}}}"
            );
        }
        text.push_str(if self.endpoints.is_empty() {
            "endpoints: []\n"
        } else {
            "endpoints:\n"
        });
        for endpoint in &self.endpoints {
            let node = if endpoint.is_local { "node" } else { "node2" };
            let conditions = match endpoint.condition {
                Condition::Ready => "ready: true",
                Condition::Terminating => "ready: false, serving: true, terminating: true",
                Condition::Unready => "ready: false, serving: false",
            };
            let hints = endpoint.zone.map_or_else(String::new, |zone| {
                format!(", hints: {{forZones: [{{name: {zone}}}]}}")
            });
            let _ = writeln!(
                text,
                "- {{addresses: ['{}'], nodeName: {node}, conditions: {{{conditions}}}{hints}}}",
                endpoint.address(family)
            );
        }
        text
    }
}

const fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// So many services, in which all features meet.
pub(super) fn services(count: u32) -> Vec<Service> {
    (0..count).map(service).collect()
}

/// The number of the first service without node ports: there are not more.
const FIRST_WITHOUT_NODE_PORT: u32 = 4_900;

fn service(number: u32) -> Service {
    let kind = number % 10;
    let variant = number / 10;
    let families = match variant % 3 {
        0 => vec![Family::V4],
        1 => Family::BOTH.to_vec(),
        _ => vec![Family::V6],
    };
    let protocol = match variant / 3 % 3 {
        0 => "tcp",
        1 => "udp",
        _ => "sctp",
    };
    // Less than 65,536.
    let port = |number: u32| u16::try_from(number).unwrap_or_default();
    let is_balanced = matches!(kind, 2 | 4 | 8);
    let has_node_port = is_balanced || matches!(kind, 1 | 9);
    let node_port = |offset: u32| {
        let has_one = has_node_port && number < FIRST_WITHOUT_NODE_PORT;
        has_one.then(|| port(20_000 + 2 * number + offset))
    };
    let mut ports = vec![Port {
        name: "main",
        protocol,
        port: 80,
        target: port(8080 + number % 5),
        node_port: node_port(0),
    }];
    if matches!(kind, 0 | 2 | 6) {
        ports.push(Port {
            name: "dns",
            protocol: "udp",
            port: 53,
            target: 5353,
            node_port: node_port(1),
        });
    }
    let mut service = Service {
        name: format!("service-{number:03}"),
        families,
        headless: kind == 7,
        ports,
        addresses: addresses(number + 10),
        has_external_ip: matches!(kind, 3 | 8),
        is_balanced,
        source_ranges: Vec::new(),
        external_local: kind == 4 || kind == 9 && variant % 2 == 1,
        internal_local: kind == 5,
        affinity: (kind == 6).then_some(if variant.is_multiple_of(2) {
            10_800
        } else {
            600
        }),
        endpoints: endpoints(number),
    };
    match kind {
        2 => {
            service.source_ranges = vec!["203.0.113.0/24", "172.31.0.0/24", "192.0.2.64/26"];
            if variant % 2 == 1 {
                service.source_ranges.push("2001:db8:7::/48");
            }
        }
        8 => service.endpoints.clear(),
        9 => {
            for endpoint in &mut service.endpoints {
                endpoint.condition = if variant % 4 == 3 && !endpoint.is_local {
                    Condition::Ready
                } else {
                    Condition::Terminating
                };
            }
        }
        0 if variant.is_multiple_of(2) => {
            for endpoint in &mut service.endpoints {
                endpoint.zone = Some(if is_even(endpoint) { ZONE } else { "there" });
            }
        }
        _ => {}
    }
    service
}

fn endpoints(number: u32) -> Vec<Endpoint> {
    let variant = number / 10 + number % 7;
    let count = 1 + number % 6;
    let endpoint = |slot: u32| {
        // Some services have no endpoint on this node, some no other.
        let is_local = match variant % 4 {
            0 => false,
            1 => true,
            _ => slot.is_multiple_of(2),
        };
        // Less than 256.
        let [digits, ..] = (10 + (number * 7 + slot * 13) % 80).to_le_bytes();
        Endpoint {
            addresses: endpoint_addresses(digits, is_local),
            is_local,
            condition: if slot == 5 {
                Condition::Unready
            } else {
                Condition::Ready
            },
            zone: None,
        }
    };
    (0..count).map(endpoint).collect()
}

/// The addresses of an endpoint with this number.
pub(super) const fn endpoint_addresses(number: u8, is_local: bool) -> [IpAddr; 2] {
    let range = if is_local {
        ranges::PODS
    } else {
        ranges::PODS2
    };
    [
        range.address(Family::V4, number),
        range.address(Family::V6, number),
    ]
}

fn is_even(endpoint: &Endpoint) -> bool {
    match endpoint.address(Family::V4) {
        IpAddr::V4(address) => address.to_bits().is_multiple_of(2),
        IpAddr::V6(_) => false,
    }
}

/// The addresses of a service with this number.
fn addresses(number: u32) -> [[IpAddr; 2]; 3] {
    let [_, high, middle, low] = number.to_be_bytes();
    let last = u16::from_be_bytes([middle, low]);
    [
        ([10, 96], [0xfd00, 0x10, 0x96]),
        ([198, 18], [0x2001, 0xdb8, 1]),
        ([198, 19], [0x2001, 0xdb8, 2]),
    ]
    .map(|(v4, v6)| {
        [
            // The next range of the same kind is two further.
            Ipv4Addr::new(v4[0], v4[1] + 2 * high, middle, low).into(),
            Ipv6Addr::new(v6[0], v6[1], v6[2], 0, 0, 0, high.into(), last).into(),
        ]
    })
}
