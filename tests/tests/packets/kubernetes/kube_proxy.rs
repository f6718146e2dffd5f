//! The rules that kube-proxy 1.35 writes for a service in its mode nftables, as text for `nft -f`, following its source
//! (`pkg/proxy/nftables/proxier.go`), with pods detected by `clusterCIDR`.

use std::fmt::Write;

use contiv_tests::{
    cluster::{Frontend, PORT, Service, TARGET_PORT},
    lab::{Family, Lab, Result, ranges},
};

/// The part that does not depend on services. `IP`, `ADDRESS` and `LOOPBACK` are placeholders for each family.
const BASE: &str = "\
table IP kube-proxy {
    set cluster-ips { type ADDRESS; }
    set nodeport-ips { type ADDRESS; }
    map service-ips { type ADDRESS . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ADDRESS . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map firewall-ips { type ADDRESS . inet_proto . inet_service : verdict; }
    chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
    chain masquerading {
        meta mark & 0x4000 == 0 return
        meta mark set meta mark xor 0x4000
        masquerade fully-random
    }
    chain services {
        IP daddr . meta l4proto . th dport vmap @service-ips
        IP daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }
    chain firewall-check { IP daddr . meta l4proto . th dport vmap @firewall-ips; }
    chain service-endpoints-check { IP daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nodeport-endpoints-check {
        IP daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain cluster-ips-check { IP daddr @cluster-ips reject; }
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
    chain filter-output { type filter hook output priority 0; ct state new jump service-endpoints-check; }
    chain filter-output-post-dnat {
        type filter hook output priority -90; ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
";

/// All rules for one service, in both families.
pub(crate) fn rules(lab: &Lab, service: &Service) -> String {
    Family::BOTH
        .map(|family| rules_of(lab, service, family))
        .concat()
}

/// Loads the rules, as kube-proxy does when it starts.
pub(crate) fn load(lab: &Lab, service: &Service) -> Result<()> {
    lab.node
        .exec_with_input(&["nft", "-f", "-"], &rules(lab, service))
        .map(drop)
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

fn rules_of(lab: &Lab, service: &Service, family: Family) -> String {
    let (ip, address_type) = match family {
        Family::V4 => ("ip", "ipv4_addr"),
        Family::V6 => ("ip6", "ipv6_addr"),
    };
    let mut text = BASE.replace("IP", ip).replace("ADDRESS", address_type);
    let mut line = |content: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{content}");
    };
    let name = service.name;
    let endpoint = |number: usize| format!("endpoint-{number:08X}-default/{name}/tcp/web");
    for (number, host) in service.backends.iter().enumerate() {
        let (chain, address) = (endpoint(number), host.address(family));
        line(format_args!("add chain {ip} kube-proxy {chain}"));
        line(format_args!(
            "add rule {ip} kube-proxy {chain} {ip} saddr {address} jump mark-for-masquerade"
        ));
        let to = host.socket(family, TARGET_PORT);
        line(format_args!(
            "add rule {ip} kube-proxy {chain} meta l4proto tcp dnat to {to}"
        ));
    }
    let cluster_ip = service.address(lab, Frontend::ClusterIp, family).ip();
    let pods = ranges::PODS.cidr(family);
    let inner = format!("service-00000001-default/{name}/tcp/web");
    line(format_args!("add chain {ip} kube-proxy {inner}"));
    line(format_args!(
        "add rule {ip} kube-proxy {inner} {ip} daddr {cluster_ip} tcp dport {PORT} {ip} saddr != {pods} \
         jump mark-for-masquerade"
    ));
    let count = service.backends.len();
    let slots: Vec<String> = (0..count)
        .map(|slot| format!("{slot} : goto {}", endpoint(slot)))
        .collect();
    line(format_args!(
        "add rule {ip} kube-proxy {inner} numgen random mod {count} vmap {{ {} }}",
        slots.join(", ")
    ));
    let outer = format!("external-00000001-default/{name}/tcp/web");
    line(format_args!("add chain {ip} kube-proxy {outer}"));
    line(format_args!(
        "add rule {ip} kube-proxy {outer} jump mark-for-masquerade"
    ));
    line(format_args!(
        "add rule {ip} kube-proxy {outer} goto {inner}"
    ));
    line(format_args!(
        "add element {ip} kube-proxy cluster-ips {{ {cluster_ip} }}"
    ));
    line(format_args!(
        "add element {ip} kube-proxy nodeport-ips {{ {} }}",
        service.address(lab, Frontend::NodePort, family).ip()
    ));
    for (frontend, chain) in [
        (Frontend::ClusterIp, &inner),
        (Frontend::ExternalIp, &outer),
        (Frontend::LoadBalancer, &outer),
    ] {
        let address = service.address(lab, frontend, family).ip();
        line(format_args!(
            "add element {ip} kube-proxy service-ips {{ {address} . tcp . {PORT} : goto {chain} }}"
        ));
    }
    let node_port = service.node_port();
    line(format_args!(
        "add element {ip} kube-proxy service-nodeports {{ tcp . {node_port} : goto {outer} }}"
    ));
    text
}
