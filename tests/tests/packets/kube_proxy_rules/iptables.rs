//! kube-proxy's rules in its mode iptables as text for `iptables-restore`, following `pkg/proxy/iptables/proxier.go` and the dumps that
//! `proxier_test.go` expects. With pods detected by the range of this node.

use std::{fmt::Write as _, net::SocketAddr};

use contiv_tests::lab::{Family, Lab, Result, ranges};

use super::{
    nftables::{hash, pieces},
    service::{Port, Service},
};

/// The parts of both tables that do not depend on services, before those that do and after them.
const FILTER: &str = "\
:KUBE-NODEPORTS - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
";

const NAT: &str = "\
:KUBE-NODEPORTS - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE
";

/// The last rule of the services.
const NODE_PORTS: &str = "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this \
     chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";

/// The beginning of the names of the family's programs.
const fn program(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables-nft",
        Family::V6 => "ip6tables-nft",
    }
}

fn restore(lab: &Lab, family: Family, text: &str) -> Result<()> {
    let program = format!("{}-restore", program(family));
    let command = [&*program, "--noflush", "--wait"];
    lab.node.exec_with_input(&command, text).map(drop)
}

/// Loads the rules of both families, each line as `change` makes it.
pub(crate) fn load(
    lab: &Lab,
    services: &[Service],
    change: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    for family in Family::BOTH {
        for piece in rules(services, family) {
            let lines: Vec<String> = piece.lines().filter_map(&change).collect();
            restore(lab, family, &(lines.join("\n") + "\n"))?;
        }
    }
    Ok(())
}

/// Removes them, as `kube-proxy --cleanup` does: the ways to its chains, and these.
pub(crate) fn remove(lab: &Lab) -> Result<()> {
    for family in Family::BOTH {
        for table in ["nat", "filter"] {
            let save = format!("{}-save", program(family));
            let saved = lab.node.exec(&[&save, "-t", table])?;
            let ways = saved
                .lines()
                .filter(|line| !line.starts_with("-A KUBE-") && line.contains("-j KUBE-"))
                .filter_map(|line| Some(format!("-D {}", line.strip_prefix("-A ")?)));
            let chains: Vec<&str> = saved
                .lines()
                .filter_map(|line| line.strip_prefix(':')?.split(' ').next())
                .filter(|chain| chain.starts_with("KUBE-"))
                .collect();
            let flush = chains.iter().map(|chain| format!(":{chain} - [0:0]"));
            let delete = chains.iter().map(|chain| format!("-X {chain}"));
            let lines: Vec<String> = flush.chain(ways).chain(delete).collect();
            restore(
                lab,
                family,
                &format!("*{table}\n{}\nCOMMIT\n", lines.join("\n")),
            )?;
        }
    }
    Ok(())
}

/// Whether any of them is there.
pub(crate) fn is_there(lab: &Lab) -> Result<bool> {
    for family in Family::BOTH {
        let save = format!("{}-save", program(family));
        if lab.node.exec(&[&save])?.contains("KUBE-") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The rules as pieces to be loaded one after the other.
fn rules(services: &[Service], family: Family) -> Vec<String> {
    let mut writer = RuleWriter {
        family,
        filter: String::new(),
        chains: String::new(),
        rules: String::new(),
    };
    let of_family = |service: &&Service| service.families.contains(&family) && !service.headless;
    for service in services.iter().filter(of_family) {
        for port in &service.ports {
            writer.add(service, port);
        }
    }
    let RuleWriter {
        filter,
        chains,
        rules,
        ..
    } = writer;
    let tables = [
        ("*filter\n", FILTER.to_owned(), filter),
        ("*nat\n", NAT.to_owned() + &chains, rules + NODE_PORTS),
    ];
    let of_table = |(table, first, rest): (&str, String, String)| {
        let all = pieces(&first).into_iter().chain(pieces(&rest));
        all.map(|piece| format!("{table}{piece}COMMIT\n"))
            .collect::<Vec<_>>()
    };
    tables.into_iter().flat_map(of_table).collect()
}

struct RuleWriter {
    family: Family,
    filter: String,
    /// Chains are declared before rules that name them.
    chains: String,
    rules: String,
}

/// Where a rule matches.
fn at(protocol: &str, address: Option<std::net::IpAddr>, port: u16) -> String {
    let to = address.map_or_else(String::new, |address| format!(" -d {address}"));
    format!("-m {protocol} -p {protocol}{to} --dport {port}")
}

impl RuleWriter {
    fn chain(&mut self, chain: &str) {
        let _ = writeln!(self.chains, ":{chain} - [0:0]");
    }

    fn rule(&mut self, chain: &str, comment: &str, rule: &str) {
        let _ = writeln!(
            self.rules,
            "-A {chain} -m comment --comment \"{comment}\" {rule}"
        );
    }

    fn filter(&mut self, chain: &str, comment: &str, rule: &str) {
        let _ = writeln!(
            self.filter,
            "-A {chain} -m comment --comment \"{comment}\" {rule}"
        );
    }

    fn add(&mut self, service: &Service, port: &Port) {
        let family = self.family;
        let Port {
            protocol,
            port: number,
            ..
        } = *port;
        let categories = service.categories(port, family);
        let has_endpoints = !categories.cluster.is_empty();
        let name = format!("shop/{}:{}", service.name, port.name);
        let base = hash(&[&service.name, port.name]);
        let [cluster_chain, local_chain, external_chain, firewall_chain] =
            ["SVC", "SVL", "EXT", "FW"].map(|kind| format!("KUBE-{kind}-{base}"));
        let uses_cluster = has_endpoints && (!service.internal_local || service.is_external());
        let uses_local = !categories.local.is_empty();
        let has_internal = has_endpoints && (!service.internal_local || uses_local);
        let has_external = has_endpoints && (!service.external_local || uses_local);
        let (refusal, why) = if has_endpoints {
            ("DROP", "has no local endpoints")
        } else {
            ("REJECT", "has no endpoints")
        };
        let cluster_ip = service.cluster_ip(family);
        let internal_chain = if service.internal_local {
            &local_chain
        } else {
            &cluster_chain
        };
        let to_cluster_ip = at(protocol, Some(cluster_ip), number);
        if has_internal {
            self.rule(
                "KUBE-SERVICES",
                &format!("{name} cluster IP"),
                &format!("{to_cluster_ip} -j {internal_chain}"),
            );
        } else {
            self.filter(
                "KUBE-SERVICES",
                &format!("{name} {why}"),
                &format!("{to_cluster_ip} -j {refusal}"),
            );
        }
        let ranges = service.ranges(family);
        let is_guarded = service.is_balanced && !ranges.is_empty();
        let external = [
            ("external IP", service.external_ip(family)),
            ("loadbalancer IP", service.balancer_ip(family)),
        ];
        for (kind, address) in external {
            let Some(address) = address else { continue };
            let to = at(protocol, Some(address), number);
            let is_guarded = is_guarded && kind == "loadbalancer IP";
            let chain = if is_guarded {
                &firewall_chain
            } else {
                &external_chain
            };
            if has_endpoints {
                self.rule(
                    "KUBE-SERVICES",
                    &format!("{name} {kind}"),
                    &format!("{to} -j {chain}"),
                );
            }
            if is_guarded {
                self.filter(
                    "KUBE-PROXY-FIREWALL",
                    &format!("{name} traffic not accepted by {firewall_chain}"),
                    &format!("{to} -j DROP"),
                );
            }
            if !has_external {
                self.filter(
                    "KUBE-EXTERNAL-SERVICES",
                    &format!("{name} {why}"),
                    &format!("{to} -j {refusal}"),
                );
            }
        }
        if let Some(node_port) = port.node_port {
            let to = at(protocol, None, node_port);
            if has_endpoints {
                self.rule(
                    "KUBE-NODEPORTS",
                    &name,
                    &format!("{to} -j {external_chain}"),
                );
            }
            if !has_external {
                let to = format!("-m addrtype --dst-type LOCAL {to}");
                self.filter(
                    "KUBE-EXTERNAL-SERVICES",
                    &format!("{name} {why}"),
                    &format!("{to} -j {refusal}"),
                );
            }
        }
        if has_endpoints && service.is_external() {
            self.chain(&external_chain);
            let policy_chain = if service.external_local {
                &local_chain
            } else {
                &cluster_chain
            };
            self.add_external(service, &external_chain, &cluster_chain, &name);
            if has_external {
                self.rule(&external_chain, &name, &format!("-j {policy_chain}"));
            }
            if is_guarded {
                self.add_firewall(service, &firewall_chain, &external_chain, &name);
            }
        }
        let pods = ranges::PODS.cidr(family);
        for (chain, endpoints, is_used) in [
            (&cluster_chain, &categories.cluster, uses_cluster),
            (&local_chain, &categories.local, uses_local),
        ] {
            if !is_used {
                continue;
            }
            self.chain(chain);
            if has_internal && chain == internal_chain {
                self.rule(
                    chain,
                    &format!("{name} cluster IP"),
                    &format!("{to_cluster_ip} ! -s {pods} -j KUBE-MARK-MASQ"),
                );
            }
            self.add_choice(service, port, chain, endpoints);
        }
        self.add_endpoints(service, port, &categories.used);
    }

    /// The chain that lets sources through.
    fn add_firewall(&mut self, service: &Service, chain: &str, external_chain: &str, name: &str) {
        self.chain(chain);
        let ranges = service.ranges(self.family);
        let mut sources: Vec<String> = ranges.iter().map(|range| (*range).to_owned()).collect();
        if ranges.contains(&"172.31.0.0/24") {
            // The range with this node.
            let address = service.balancer_ip(self.family);
            sources.extend(address.map(|address| address.to_string()));
        }
        for source in sources {
            self.rule(
                chain,
                &format!("{name} loadbalancer IP"),
                &format!("-s {source} -j {external_chain}"),
            );
        }
    }

    fn add_endpoints(&mut self, service: &Service, port: &Port, endpoints: &[SocketAddr]) {
        let protocol = port.protocol;
        let name = format!("shop/{}:{}", service.name, port.name);
        for endpoint in endpoints {
            let chain = endpoint_chain(service, port, *endpoint);
            self.chain(&chain);
            self.rule(
                &chain,
                &name,
                &format!("-s {} -j KUBE-MARK-MASQ", endpoint.ip()),
            );
            let affinity = if service.affinity.is_some() {
                format!("-m recent --name {chain} --set ")
            } else {
                String::new()
            };
            self.rule(
                &chain,
                &name,
                &format!(
                    "{affinity}-m {protocol} -p {protocol} -j DNAT --to-destination {endpoint}"
                ),
            );
        }
    }

    fn add_external(&mut self, service: &Service, chain: &str, cluster_chain: &str, name: &str) {
        if !service.external_local {
            self.rule(
                chain,
                &format!("masquerade traffic for {name} external destinations"),
                "-j KUBE-MARK-MASQ",
            );
            return;
        }
        let pods = ranges::PODS.cidr(self.family);
        let to = format!("for {name} external destinations");
        self.rule(
            chain,
            &format!("pod traffic {to}"),
            &format!("-s {pods} -j {cluster_chain}"),
        );
        self.rule(
            chain,
            &format!("masquerade LOCAL traffic {to}"),
            "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
        );
        self.rule(
            chain,
            &format!("route LOCAL traffic {to}"),
            &format!("-m addrtype --src-type LOCAL -j {cluster_chain}"),
        );
    }

    fn add_choice(
        &mut self,
        service: &Service,
        port: &Port,
        chain: &str,
        endpoints: &[SocketAddr],
    ) {
        let name = format!("shop/{}:{}", service.name, port.name);
        if let Some(timeout) = service.affinity {
            for endpoint in endpoints {
                let to = endpoint_chain(service, port, *endpoint);
                self.rule(
                    chain,
                    &format!("{name} -> {endpoint}"),
                    &format!("-m recent --name {to} --rcheck --seconds {timeout} --reap -j {to}"),
                );
            }
        }
        // The last one is 1.
        for (endpoint, left) in endpoints
            .iter()
            .rev()
            .zip(1_u32..)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let chance = if left == 1 {
                String::new()
            } else {
                format!(
                    "-m statistic --mode random --probability {:.10} ",
                    1.0 / f64::from(left)
                )
            };
            let to = endpoint_chain(service, port, *endpoint);
            self.rule(
                chain,
                &format!("{name} -> {endpoint}"),
                &format!("{chance}-j {to}"),
            );
        }
    }
}

pub(crate) fn endpoint_chain(service: &Service, port: &Port, endpoint: SocketAddr) -> String {
    let key = hash(&[&service.name, port.name, &endpoint.ip().to_string()]);
    format!("KUBE-SEP-{key}")
}
