//! The rules that kube-proxy 1.36 writes for a service in its mode iptables, as text for `iptables-restore`, following its source
//! (`pkg/proxy/iptables/proxier.go`), with pods detected by `clusterCIDR`. By iptables-nft, which is what kube-proxy's image chooses
//! where nothing else speaks for the legacy one.

use std::fmt::Write;

use contiv_tests::{
    cluster::{Frontend, PORT, Service, TARGET_PORT},
    lab::{Family, Lab, Result, ranges},
};

/// The part of the table `nat` that does not depend on services.
const NAT: &str = "\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
";

/// The table `filter`.
const FILTER: &str = "\
*filter
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
";

/// The rules that lead to kube-proxy's chains, and these. They are removed in this order, as `kube-proxy --cleanup` does.
const JUMPS: [(&str, &str, &str, &str); 4] = [
    (
        "nat",
        "PREROUTING",
        "kubernetes service portals",
        "KUBE-SERVICES",
    ),
    (
        "nat",
        "OUTPUT",
        "kubernetes service portals",
        "KUBE-SERVICES",
    ),
    (
        "nat",
        "POSTROUTING",
        "kubernetes postrouting rules",
        "KUBE-POSTROUTING",
    ),
    (
        "filter",
        "FORWARD",
        "kubernetes forwarding rules",
        "KUBE-FORWARD",
    ),
];

/// The prefix of the family's programs.
const fn program(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables-nft",
        Family::V6 => "ip6tables-nft",
    }
}

/// Loads the rules, as kube-proxy does when it starts.
pub(crate) fn load(lab: &Lab, service: &Service) -> Result<()> {
    for family in Family::BOTH {
        let restore = format!("{}-restore", program(family));
        let text = nat(lab, service, family) + FILTER;
        lab.node
            .exec_with_input(&[&restore, "--noflush", "--wait"], &text)?;
    }
    Ok(())
}

/// Removes them, as `kube-proxy --cleanup` does: first the ways to its chains, then these at once.
pub(crate) fn remove(lab: &Lab) -> Result<()> {
    for family in Family::BOTH {
        let program = program(family);
        for (table, from, comment, to) in JUMPS {
            let jump = ["-m", "comment", "--comment", comment, "-j", to];
            lab.node
                .exec(&[&[program, "-w", "-t", table, "-D", from][..], &jump].concat())?;
        }
        for table in ["nat", "filter"] {
            let saved = lab.node.exec(&[&format!("{program}-save"), "-t", table])?;
            let chains: Vec<&str> = saved
                .lines()
                .filter_map(|line| line.strip_prefix(':')?.split(' ').next())
                .filter(|chain| chain.starts_with("KUBE-"))
                .collect();
            let flush = chains.iter().map(|chain| format!(":{chain} - [0:0]"));
            let delete = chains.iter().map(|chain| format!("-X {chain}"));
            let lines: Vec<String> = flush.chain(delete).collect();
            let text = format!("*{table}\n{}\nCOMMIT\n", lines.join("\n"));
            lab.node.exec_with_input(
                &[&format!("{program}-restore"), "--noflush", "--wait"],
                &text,
            )?;
        }
    }
    Ok(())
}

/// Whether any of them is there.
pub(crate) fn is_there(lab: &Lab) -> Result<bool> {
    for family in Family::BOTH {
        if lab
            .node
            .exec(&[&format!("{}-save", program(family))])?
            .contains("KUBE-")
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The table `nat` with one service.
fn nat(lab: &Lab, service: &Service, family: Family) -> String {
    let name = format!("default/{}:web", service.name);
    let address = |frontend| service.address(lab, frontend, family).ip();
    let pods = ranges::PODS.cidr(family);
    let (inner, outer) = ("KUBE-SVC-0000000000000001", "KUBE-EXT-0000000000000001");
    let endpoint = |number: usize| format!("KUBE-SEP-{number:016}");
    let mut text = NAT.to_owned();
    let mut line = |content: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{content}");
    };
    line(format_args!(":{inner} - [0:0]\n:{outer} - [0:0]"));
    for number in 0..service.backends.len() {
        line(format_args!(":{} - [0:0]", endpoint(number)));
    }
    for (frontend, chain) in [
        (Frontend::ClusterIp, inner),
        (Frontend::ExternalIp, outer),
        (Frontend::LoadBalancer, outer),
    ] {
        let ip = address(frontend);
        line(format_args!(
            "-A KUBE-SERVICES -m comment --comment \"{name}\" -m tcp -p tcp -d {ip} --dport {PORT} -j {chain}"
        ));
    }
    line(format_args!(
        "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"
    ));
    let node_port = service.node_port();
    line(format_args!(
        "-A KUBE-NODEPORTS -m comment --comment {name} -m tcp -p tcp --dport {node_port} -j {outer}"
    ));
    line(format_args!(
        "-A {outer} -m comment --comment \"masquerade traffic for {name}\" -j KUBE-MARK-MASQ"
    ));
    line(format_args!("-A {outer} -j {inner}"));
    let cluster_ip = address(Frontend::ClusterIp);
    line(format_args!(
        "-A {inner} -m comment --comment \"{name} cluster IP\" -m tcp -p tcp -d {cluster_ip} --dport {PORT} \
         ! -s {pods} -j KUBE-MARK-MASQ"
    ));
    for (number, host) in service.backends.iter().enumerate() {
        let (chain, left) = (endpoint(number), service.backends.len() - number);
        let share = match left {
            1 => String::new(),
            left => {
                format!(
                    "-m statistic --mode random --probability 0.{:010} ",
                    10_000_000_000 / left as u64
                )
            }
        };
        line(format_args!(
            "-A {inner} -m comment --comment {name} {share}-j {chain}"
        ));
        line(format_args!(
            "-A {chain} -m comment --comment {name} -s {} -j KUBE-MARK-MASQ",
            host.address(family)
        ));
        let to = host.socket(family, TARGET_PORT);
        line(format_args!(
            "-A {chain} -m comment --comment {name} -m tcp -p tcp -j DNAT --to-destination {to}"
        ));
    }
    text + "COMMIT\n"
}
