//! kube-proxy's rules in its mode nftables as text for `nft -f`: that of 1.35, which earlier versions have with small differences, and
//! that from 1.36. With pods detected by the range of this node.
//!
//! Source: `pkg/proxy/nftables/proxier.go`; the rules are those that `proxier_test.go` expects. From 1.36 on services with session
//! affinity keep a chain for each endpoint.

use std::{fmt::Write as _, net::SocketAddr};

use contiv_tests::lab::{self, Family, Lab, Result, ranges};

use super::service::{Categories, Port, Service};

/// The part that does not depend on services. `IP`, `ADDRESS`, `OWN` and so on are placeholders.
const BASE: &str = "\
table IP kube-proxy {
    comment \"rules for kube-proxy\"
    set cluster-ips { type ADDRESS; comment \"Active ClusterIPs\"; }
    set nodeport-ips { type ADDRESS; comment \"IPs that accept NodePort traffic\"; elements = { NODE }; }
    map service-ips { type ADDRESS . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ADDRESS . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map firewall-ips { type ADDRESS . inet_proto . inet_service : verdict; }
OWN_CHAINS
    chain reject-chain { reject; }
    chain firewall-check { IP daddr . meta l4proto . th dport vmap @firewall-ips; }
    chain service-endpoints-check { IP daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nodeport-endpoints-check {
        IP daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain cluster-ips-check {
        IP daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\"
        IP daddr { SERVICES } drop comment \"Drop traffic to unallocated ClusterIPs\"
    }
    chain filter-prerouting-pre-dnat {
        type filter hook prerouting priority -110; ct state new jump firewall-check
    }
    chain filter-output-pre-dnat { type filter hook output priority -110; ct state new jump firewall-check; }
    chain filter-input {
        type filter hook input priority 0
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward {
        type filter hook forward priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output {
        type filter hook output priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
";

const OWN_UP_TO_135: &str = "\
    chain masquerading {
        meta mark & 0x4000 == 0 return
        meta mark set meta mark xor 0x4000
        masquerade fully-random
    }
    chain services {
        IP daddr . meta l4proto . th dport vmap @service-ips
        IP daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }";

const OWN_FROM_136: &str = "\
    set hairpin-connections { type ADDRESS . ADDRESS . inet_proto . inet_service; }
    chain masquerading {
        meta mark & 0x4000 != 0 meta mark set meta mark xor 0x4000 masquerade fully-random
        ct status dnat IP saddr . IP daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
    }
    chain services {
        IP daddr @cluster-ips IP saddr != PODS meta mark set meta mark or 0x4000
        IP daddr . meta l4proto . th dport vmap @service-ips
        IP daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }";

/// A version of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    UpTo135,
    From136,
}

/// So many lines are loaded at once: more do not fit into the send buffer of nft where it may not be enlarged.
const LINES_OF_PIECE: usize = 150;

/// Loads the rules into an empty kernel, each piece as `change` makes it.
pub(crate) fn load(
    lab: &Lab,
    services: &[Service],
    layout: Layout,
    change: impl Fn(String) -> String,
) -> Result<()> {
    for piece in rules(services, layout) {
        lab::load_ruleset(&lab.node, &change(piece))?;
    }
    Ok(())
}

/// Removes them, as `kube-proxy --cleanup` does.
pub(crate) fn remove(lab: &Lab) -> Result<()> {
    for ip in ["ip", "ip6"] {
        lab.node
            .exec(&["nft", "delete", "table", ip, "kube-proxy"])?;
    }
    Ok(())
}

/// Whether any of them is there.
pub(crate) fn is_there(lab: &Lab) -> Result<bool> {
    Ok(lab
        .node
        .exec(&["nft", "list", "tables"])?
        .contains("kube-proxy"))
}

/// The whole text for an empty kernel, as pieces to be loaded one after the other.
fn rules(services: &[Service], layout: Layout) -> Vec<String> {
    let of_family = |family| rules_of(services, layout, family);
    Family::BOTH.into_iter().flat_map(of_family).collect()
}

/// The lines of a text in pieces.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let pieces = lines.chunks(LINES_OF_PIECE);
    pieces.map(|lines| lines.join("\n") + "\n").collect()
}

fn rules_of(services: &[Service], layout: Layout, family: Family) -> Vec<String> {
    let (ip, address) = match family {
        Family::V4 => ("ip", "ipv4_addr"),
        Family::V6 => ("ip6", "ipv6_addr"),
    };
    let own = match layout {
        Layout::UpTo135 => OWN_UP_TO_135,
        Layout::From136 => OWN_FROM_136,
    };
    let mark = "    chain mark-for-masquerade { meta mark set meta mark or 0x4000; }\n";
    let node = ranges::EXTERNAL.address(family, 1).to_string();
    let base = [
        ("OWN_CHAINS", format!("{mark}{own}").as_str()),
        ("SERVICES", &ranges::SERVICES.cidr(family)),
        ("ADDRESS", address),
        ("PODS", &ranges::PODS.cidr(family)),
        ("NODE", &node),
        ("IP ", &format!("{ip} ")),
    ]
    .into_iter()
    .fold(BASE.to_owned(), |text, (word, value)| {
        text.replace(word, value)
    });
    let mut writer = RuleWriter {
        family,
        ip,
        address,
        layout,
        declarations: String::new(),
        rules: String::new(),
    };
    for service in services
        .iter()
        .filter(|it| it.families.contains(&family) && !it.headless)
    {
        for port in &service.ports {
            writer.add(service, port);
        }
    }
    let mut all = vec![base];
    all.extend(pieces(&writer.declarations));
    all.extend(pieces(&writer.rules));
    all
}

/// Chains and sets are declared before rules that name them.
struct RuleWriter {
    family: Family,
    ip: &'static str,
    address: &'static str,
    layout: Layout,
    declarations: String,
    rules: String,
}

impl RuleWriter {
    fn chain(&mut self, chain: &str) {
        let _ = writeln!(
            self.declarations,
            "add chain {} kube-proxy {chain}",
            self.ip
        );
    }

    fn rule(&mut self, chain: &str, rule: &str) {
        let _ = writeln!(self.rules, "add rule {} kube-proxy {chain} {rule}", self.ip);
    }

    fn element(&mut self, set: &str, element: &str) {
        let _ = writeln!(
            self.rules,
            "add element {} kube-proxy {set} {{ {element} }}",
            self.ip
        );
    }

    fn add(&mut self, service: &Service, port: &Port) {
        let (ip, family) = (self.ip, self.family);
        let Port {
            protocol,
            port: number,
            ..
        } = *port;
        let categories = service.categories(port, family);
        let has_endpoints = !service.categories(port, family).cluster.is_empty();
        let comment = format!("comment \"shop/{}:{}\"", service.name, port.name);
        let [cluster_chain, local_chain, external_chain, firewall_chain] =
            ["service", "local", "external", "firewall"].map(|kind| chain(kind, service, port));
        let uses_cluster =
            !categories.cluster.is_empty() && (!service.internal_local || service.is_external());
        let uses_local = !categories.local.is_empty();
        let has_internal = has_endpoints && (!service.internal_local || uses_local);
        let has_external = has_endpoints && (!service.external_local || uses_local);
        for (chain, is_used) in [(&cluster_chain, uses_cluster), (&local_chain, uses_local)] {
            if is_used {
                self.chain(chain);
            }
        }
        let verdict = |is_served: bool| match (has_endpoints, is_served) {
            (false, _) => Some("goto reject-chain"),
            (true, false) => Some("drop"),
            (true, true) => None,
        };
        let cluster_ip = service.cluster_ip(family);
        let internal_chain = if service.internal_local {
            &local_chain
        } else {
            &cluster_chain
        };
        self.element("cluster-ips", &cluster_ip.to_string());
        match verdict(has_internal) {
            None => self.element(
                "service-ips",
                &format!("{cluster_ip} . {protocol} . {number} : goto {internal_chain}"),
            ),
            Some(verdict) => {
                self.element(
                    "no-endpoint-services",
                    &format!("{cluster_ip} . {protocol} . {number} {comment} : {verdict}"),
                );
            }
        }
        let ranges = service.ranges(family);
        let is_guarded = service.is_balanced && !ranges.is_empty();
        if is_guarded {
            self.chain(&firewall_chain);
            let mut sources: Vec<String> = ranges.iter().map(|range| (*range).to_owned()).collect();
            if sources.iter().any(|range| range == "172.31.0.0/24") {
                // The range with this node.
                sources.extend(
                    service
                        .balancer_ip(family)
                        .map(|address| address.to_string()),
                );
            }
            self.rule(
                &firewall_chain,
                &format!("{ip} saddr != {{ {} }} drop", sources.join(", ")),
            );
        }
        let addresses = [service.external_ip(family), service.balancer_ip(family)];
        for address in addresses.into_iter().flatten() {
            let key = format!("{address} . {protocol} . {number}");
            if has_endpoints {
                self.element("service-ips", &format!("{key} : goto {external_chain}"));
            }
            if is_guarded && service.balancer_ip(family) == Some(address) {
                self.element(
                    "firewall-ips",
                    &format!("{key} {comment} : goto {firewall_chain}"),
                );
            }
            if let Some(verdict) = verdict(has_external) {
                self.element(
                    "no-endpoint-services",
                    &format!("{key} {comment} : {verdict}"),
                );
            }
        }
        if let Some(node_port) = port.node_port {
            if has_endpoints {
                self.element(
                    "service-nodeports",
                    &format!("{protocol} . {node_port} : goto {external_chain}"),
                );
            }
            if let Some(verdict) = verdict(has_external) {
                self.element(
                    "no-endpoint-nodeports",
                    &format!("{protocol} . {node_port} {comment} : {verdict}"),
                );
            }
        }
        if has_internal && self.layout == Layout::UpTo135 {
            let pods = ranges::PODS.cidr(family);
            self.rule(
                internal_chain,
                &format!("{ip} daddr {cluster_ip} {ip} saddr != {pods} jump mark-for-masquerade"),
            );
        }
        if has_endpoints && service.is_external() {
            self.chain(&external_chain);
            self.add_external(service, &external_chain, &cluster_chain);
            if has_external {
                let chain = if service.external_local {
                    &local_chain
                } else {
                    &cluster_chain
                };
                self.rule(&external_chain, &format!("goto {chain}"));
            }
        }
        for (chain, endpoints, is_used) in [
            (&cluster_chain, &categories.cluster, uses_cluster),
            (&local_chain, &categories.local, uses_local),
        ] {
            if is_used {
                self.add_choice(service, port, chain, endpoints);
            }
        }
        self.add_endpoints(service, port, &categories);
    }

    fn add_external(&mut self, service: &Service, chain: &str, cluster_chain: &str) {
        if !service.external_local {
            self.rule(chain, "jump mark-for-masquerade");
            return;
        }
        let (ip, pods) = (self.ip, ranges::PODS.cidr(self.family));
        self.rule(
            chain,
            &format!(
                "{ip} saddr {pods} goto {cluster_chain} comment \"short-circuit pod traffic\""
            ),
        );
        self.rule(
            chain,
            "fib saddr type local jump mark-for-masquerade comment \"masquerade local traffic\"",
        );
        self.rule(
            chain,
            &format!(
                "fib saddr type local goto {cluster_chain} comment \"short-circuit local traffic\""
            ),
        );
    }

    /// Affinity, then the choice of an endpoint.
    fn add_choice(
        &mut self,
        service: &Service,
        port: &Port,
        chain: &str,
        endpoints: &[SocketAddr],
    ) {
        let (ip, protocol) = (self.ip, port.protocol);
        let has_chains = self.has_chains(service);
        if service.affinity.is_some() {
            for endpoint in endpoints {
                let name = endpoint_name(service, port, *endpoint);
                self.rule(
                    chain,
                    &format!("{ip} saddr @affinity-{name} goto endpoint-{name}"),
                );
            }
        }
        let slot = |(slot, endpoint): (usize, &SocketAddr)| {
            if has_chains {
                format!("{slot} : goto {}", endpoint_chain(service, port, *endpoint))
            } else {
                format!("{slot} : {} . {}", endpoint.ip(), endpoint.port())
            }
        };
        let slots: Vec<String> = endpoints.iter().enumerate().map(slot).collect();
        let (count, slots) = (endpoints.len(), slots.join(", "));
        let rule = if has_chains {
            format!("numgen random mod {count} vmap {{ {slots} }}")
        } else {
            format!(
                "meta l4proto {protocol} dnat {ip} to numgen random mod {count} map {{ {slots} }}"
            )
        };
        self.rule(chain, &rule);
    }

    fn has_chains(&self, service: &Service) -> bool {
        self.layout == Layout::UpTo135 || service.affinity.is_some()
    }

    fn add_endpoints(&mut self, service: &Service, port: &Port, categories: &Categories) {
        let (ip, protocol) = (self.ip, port.protocol);
        if !self.has_chains(service) {
            for endpoint in &categories.on_node {
                let (address, port) = (endpoint.ip(), endpoint.port());
                self.element(
                    "hairpin-connections",
                    &format!("{address} . {address} . {protocol} . {port}"),
                );
            }
            return;
        }
        for endpoint in &categories.used {
            let name = endpoint_name(service, port, *endpoint);
            let chain = format!("endpoint-{name}");
            self.chain(&chain);
            self.rule(
                &chain,
                &format!("{ip} saddr {} jump mark-for-masquerade", endpoint.ip()),
            );
            if let Some(timeout) = service.affinity {
                let address = self.address;
                let _ = writeln!(
                    self.declarations,
                    "add set {ip} kube-proxy affinity-{name} {{ type {address}; flags dynamic,timeout; timeout {timeout}s; }}"
                );
                self.rule(&chain, &format!("update @affinity-{name} {{ {ip} saddr }}"));
            }
            self.rule(
                &chain,
                &format!("meta l4proto {protocol} dnat to {endpoint}"),
            );
        }
    }
}

/// Eight letters that differ between names, as those of kube-proxy's hash do.
pub(crate) fn hash(names: &[&str]) -> String {
    let mut value = 0_u32;
    for byte in names.iter().flat_map(|name| name.bytes()) {
        value = value.wrapping_mul(31).wrapping_add(u32::from(byte));
    }
    format!("{value:08X}")
}

/// The name of a chain of a kind: "service", "local", "external", "firewall".
pub(crate) fn chain(kind: &str, service: &Service, port: &Port) -> String {
    let (name, protocol, port) = (&service.name, port.protocol, port.name);
    format!(
        "{kind}-{}-shop/{name}/{protocol}/{port}",
        hash(&[name, port])
    )
}

/// The name of the chain of an endpoint.
pub(crate) fn endpoint_chain(service: &Service, port: &Port, endpoint: SocketAddr) -> String {
    format!("endpoint-{}", endpoint_name(service, port, endpoint))
}

fn endpoint_name(service: &Service, port: &Port, endpoint: SocketAddr) -> String {
    let address = endpoint.ip().to_string();
    format!(
        "{}-shop/{}/{}/{}__{}/{}",
        hash(&[&service.name, port.name, &address]),
        service.name,
        port.protocol,
        port.name,
        address.replace(':', "."),
        endpoint.port()
    )
}
