//! Connections that succeed: nothing may be blamed, whatever else is on the node.

use contiv_tests::lab::{LabError, Result, isolated};

use super::{
    attempt::wait_until_answered,
    fault::{Failure, Machine, Step, fault},
    scene::Scene,
};

/// Clients, with the places where they can connect to services.
const CLIENTS: [Machine; 4] = [Machine::Pod2, Machine::Pod1, Machine::Node, Machine::Client];

/// The destinations of a service with this number.
fn destinations(number: u8) -> Vec<String> {
    let node_port = 30_000 + u16::from(number);
    let addresses = [
        format!("192.0.2.{number}:80"),
        format!("198.51.100.{number}:80"),
        format!("172.31.0.1:{node_port}"),
        format!("10.96.0.{number}:80"),
        format!("[2001:db8:1::{number}]:80"),
        format!("[2001:db8:2::{number}]:80"),
        format!("[fd00:172:31::1]:{node_port}"),
        format!("[fd00:10:96::{number}]:80"),
    ];
    let protocols = ["tcp", "udp"];
    let with = |address: &String| protocols.map(|protocol| format!("{address}/{protocol}"));
    addresses.iter().flat_map(with).collect()
}

/// Asks about 256 connections that succeed.
fn run_healthy(name: &str, innocents: &[(Machine, &str)]) -> Result<()> {
    isolated(name, |lab| {
        let mut scene = Scene::start(lab, &[])?;
        for (machine, script) in innocents {
            Step::Shell(*machine, (*script).to_owned()).run(&mut scene)?;
        }
        let flows = CLIENTS.into_iter().flat_map(|from| {
            let destinations = [80, 81, 82, 83].into_iter().flat_map(destinations);
            destinations.map(move |to| (from, to, Failure::All))
        });
        let flows: Vec<_> = flows.collect();
        if flows.len() != 256 {
            return Err(LabError::Unexpected(format!("{} connections", flows.len())));
        }
        blame_nothing(&scene, flows)
    })
}

/// Nothing may be blamed for these connections, on which that passes which would fail.
fn blame_nothing(
    scene: &Scene<'_>,
    flows: impl IntoIterator<Item = (Machine, String, Failure)>,
) -> Result<()> {
    let mut blamed = Vec::new();
    for (from, to, failure) in flows {
        let healthy = fault("nothing", from, to.clone(), &[], "").failing(failure);
        wait_until_answered(scene, &healthy)?;
        let (answer, code) = scene.explain(from, &to, false)?;
        if !answer["cause"].is_null() || code != Some(0) {
            blamed.push(format!("{from:?} to {to}: {code:?} {answer}"));
        }
    }
    if blamed.is_empty() {
        return Ok(());
    }
    Err(LabError::Unexpected(format!(
        "{} connections that succeed have a cause to fail:\n{}",
        blamed.len(),
        blamed.join("\n")
    )))
}

#[test]
fn nothing_is_blamed_on_a_plain_node() -> Result<()> {
    run_healthy("why::healthy::nothing_is_blamed_on_a_plain_node", &[])
}

/// A firewall that accepts, logs, counts, marks, and drops other things.
const FIREWALL: &str = "nft -f - <<'END'
table inet firewall {
    set banned { type ipv4_addr; flags interval; elements = { 203.0.113.0/24, 198.18.0.0/15 }; };
    set open { type inet_service; elements = { 22, 80, 443, 8080 }; };
    map ports { type inet_service : verdict; elements = { 25 : drop, 110 : drop, 8080 : accept }; };
    chain early { type filter hook prerouting priority raw; ip saddr @banned drop; tcp flags & (fin | syn) == (fin | syn) drop; meta mark set meta mark | 0x100; };
    chain invalid { type filter hook prerouting priority mangle; ct state invalid counter drop; udp dport 53 notrack; };
    chain input { type filter hook input priority filter; policy drop; ct state established,related accept; iifname lo accept
        meta l4proto { icmp, icmpv6 } accept; tcp dport @open accept; udp dport 8080 accept; tcp dport 30000-32767 accept; limit rate 5/second log prefix \"in \"; };
    chain forward { type filter hook forward priority filter; policy drop; ct state vmap { established : accept, related : accept, invalid : drop }
        ip daddr @banned reject; ct status dnat accept; iifname \"pod*\" accept; tcp dport vmap @ports; jump extra; };
    chain extra { meta l4proto icmp accept; counter; return; };
    chain output { type filter hook output priority filter; ip daddr 203.0.113.7 tcp dport 8080 reject; oifname eth9 drop; counter; };
    chain after { type filter hook postrouting priority mangle; tcp flags syn tcp option maxseg size set rt mtu; };
    chain other { type nat hook prerouting priority dstnat - 5; ip daddr 203.0.113.5 tcp dport 80 dnat ip to 10.244.1.10:8080; };
    chain leaving { type nat hook postrouting priority srcnat - 5; ip saddr 192.168.7.0/24 masquerade; };
};
table netdev edge { chain in { type filter hook ingress device eth0 priority 0; ip saddr 203.0.113.0/24 drop; ip protocol sctp drop; }; };
table bridge guard { chain b { type filter hook forward priority 0; ether type arp accept; }; };
END";

#[test]
fn nothing_is_blamed_with_a_firewall() -> Result<()> {
    run_healthy(
        "why::healthy::nothing_is_blamed_with_a_firewall",
        &[(Machine::Node, FIREWALL)],
    )
}

/// What Docker, fail2ban and a firewall leave in iptables.
const IPTABLES: &str = "
iptables-nft -N DOCKER; iptables-nft -N DOCKER-USER; iptables-nft -N f2b-sshd; iptables-nft -N LIMITS
iptables-nft -P FORWARD DROP
iptables-nft -A FORWARD -j DOCKER-USER
iptables-nft -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables-nft -A FORWARD -o docker0 -j DOCKER
iptables-nft -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables-nft -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables-nft -A FORWARD -p tcp -m multiport --dports 8080,8443 -j ACCEPT
iptables-nft -A FORWARD -p udp -m udp --dport 8080 -j ACCEPT
iptables-nft -A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
iptables-nft -A DOCKER-USER -s 203.0.113.0/24 -j DROP
iptables-nft -A DOCKER-USER -j RETURN
iptables-nft -A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
iptables-nft -A f2b-sshd -s 203.0.113.9/32 -j REJECT --reject-with icmp-port-unreachable
iptables-nft -A f2b-sshd -j RETURN
iptables-nft -A INPUT -m conntrack --ctstate INVALID -j DROP
iptables-nft -A INPUT -m mark --mark 0x7/0xf -j DROP
iptables-nft -A INPUT -m addrtype --dst-type BROADCAST -j DROP
iptables-nft -A INPUT -m iprange --src-range 203.0.113.1-203.0.113.50 -j DROP
iptables-nft -A OUTPUT -d 203.0.113.0/24 -j REJECT
iptables-nft -t nat -N DOCKER
iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
iptables-nft -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
iptables-nft -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables-nft -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8000 -j DNAT --to-destination 172.17.0.2:80
iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
iptables-nft -t mangle -A PREROUTING -p tcp -m tcp --dport 9999 -j MARK --set-xmark 0x1/0x1
iptables-nft -t raw -A PREROUTING -d 203.0.113.0/24 -j CT --notrack
ip6tables-nft -A FORWARD -s 2001:db8:dead::/48 -j DROP
ip6tables-nft -A INPUT -p tcp -m tcp --dport 25 -j REJECT
ip6tables-nft -A INPUT -m conntrack --ctstate INVALID -j DROP";

#[test]
fn nothing_is_blamed_with_iptables() -> Result<()> {
    run_healthy(
        "why::healthy::nothing_is_blamed_with_iptables",
        &[(Machine::Node, IPTABLES)],
    )
}

/// Routes, rules, addresses, filters and settings that concern other packets.
const NETWORK: &str = "
ip route add blackhole 203.0.113.0/24; ip route add unreachable 198.18.0.0/15; ip -6 route add blackhole 2001:db8:dead::/48
ip rule add fwmark 0x77 blackhole; ip rule add from 198.18.0.0/15 prohibit; ip rule add iif eth9 lookup 99; ip route add unreachable default table 99
ip addr add 10.96.0.80/32 dev lo; ip addr add 192.0.2.80/32 dev lo; ip -6 addr add fd00:10:96::80/128 dev lo
ip addr add 172.31.0.61/24 dev eth0; ip route add 10.244.2.128/25 via 172.31.0.2
ip link add unused type bridge; ip link add dn0 type veth peer name dn1
ip neigh replace 172.31.0.201 lladdr 02:00:00:00:00:99 nud permanent dev eth0
echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/pod2/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter
echo 0 >/proc/sys/net/ipv4/conf/unused/forwarding; echo 1 >/proc/sys/net/ipv6/conf/unused/disable_ipv6
echo 30000-32767 >/proc/sys/net/ipv4/ip_local_reserved_ports
conntrack -I -p udp -s 10.244.1.99 -d 10.96.0.80 --sport 53 --dport 80 -t 600";

#[test]
fn nothing_is_blamed_with_other_routes_and_settings() -> Result<()> {
    run_healthy(
        "why::healthy::nothing_is_blamed_with_other_routes_and_settings",
        &[(Machine::Node, NETWORK)],
    )
}

/// What flannel, Calico and kube-proxy with IPVS leave: many chains of iptables, sets, marks, a bridge that holds the addresses of services,
/// and several default routes and tables.
const PLUGINS: &str = r#"
ipset create cali40masq-ipam-pools hash:net; ipset add cali40masq-ipam-pools 10.244.0.0/16
ipset create cali40all-ipam-pools hash:net; ipset add cali40all-ipam-pools 10.244.0.0/16; ipset add cali40all-ipam-pools 10.96.0.0/16
ipset create cali40blocked hash:net; ipset add cali40blocked 203.0.113.0/24; ipset add cali40blocked 10.244.0.0/16 nomatch
ipset create KUBE-CLUSTER-IP hash:ip,port; ipset add KUBE-CLUSTER-IP 10.96.0.200,tcp:80; ipset add KUBE-CLUSTER-IP 10.96.0.200,udp:80
ipset create KUBE-LOOP-BACK hash:ip,port,ip; ipset add KUBE-LOOP-BACK 10.244.1.10,tcp:9999,10.244.1.10
ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535; ipset add KUBE-NODE-PORT-TCP 31999
ipset create KUBE-6-BLOCKED hash:net,iface family inet6; ipset add KUBE-6-BLOCKED 2001:db8:dead::/48,eth0
iptables-nft -N cali-FORWARD; iptables-nft -N cali-from-wl-dispatch; iptables-nft -N cali-fw-pod2; iptables-nft -N cali-pri; iptables-nft -N KUBE-FORWARD
iptables-nft -N KUBE-FIREWALL; iptables-nft -N FLANNEL-FWD; iptables-nft -N cali-INPUT
iptables-nft -A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
iptables-nft -A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
iptables-nft -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
iptables-nft -A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
iptables-nft -A cali-FORWARD -i pod2 -j cali-from-wl-dispatch
iptables-nft -A cali-FORWARD -m set --match-set cali40blocked src -j DROP
iptables-nft -A cali-from-wl-dispatch -i pod+ -g cali-fw-pod2
iptables-nft -A cali-fw-pod2 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables-nft -A cali-fw-pod2 -m conntrack --ctstate INVALID -j DROP
iptables-nft -A cali-fw-pod2 -j MARK --set-xmark 0x0/0x10000
iptables-nft -A cali-fw-pod2 -p udp -m comment --comment "Drop VXLAN encapped packets originating in workloads" -m multiport --dports 4789 -j DROP
iptables-nft -A cali-fw-pod2 -p 4 -m comment --comment "Drop IPinIP" -j DROP
iptables-nft -A cali-fw-pod2 -j cali-pri
iptables-nft -A cali-fw-pod2 -m comment --comment "Return if profile accepted" -m mark --mark 0x10000/0x10000 -j RETURN
iptables-nft -A cali-fw-pod2 -m comment --comment "Drop if no profiles matched" -j DROP
iptables-nft -A cali-pri -j MARK --set-xmark 0x10000/0x10000
iptables-nft -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
iptables-nft -A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
iptables-nft -A KUBE-FORWARD -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
iptables-nft -A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT; iptables-nft -A FLANNEL-FWD -d 10.244.0.0/16 -j ACCEPT
iptables-nft -A INPUT -j KUBE-FIREWALL; iptables-nft -A INPUT -j cali-INPUT; iptables-nft -A OUTPUT -j KUBE-FIREWALL
iptables-nft -A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
iptables-nft -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
iptables-nft -A cali-INPUT -p 4 -m set ! --match-set cali40all-ipam-pools src -j DROP
iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t nat -N KUBE-MARK-MASQ; iptables-nft -t nat -N KUBE-POSTROUTING; iptables-nft -t nat -N cali-nat-outgoing
iptables-nft -t nat -N FLANNEL-POSTRTG
iptables-nft -t nat -A PREROUTING -j KUBE-SERVICES; iptables-nft -t nat -A OUTPUT -j KUBE-SERVICES
iptables-nft -t nat -A KUBE-SERVICES ! -s 10.244.0.0/16 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
iptables-nft -t nat -A KUBE-SERVICES -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
iptables-nft -t nat -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
iptables-nft -t nat -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
iptables-nft -t nat -A POSTROUTING -j KUBE-POSTROUTING; iptables-nft -t nat -A POSTROUTING -j cali-nat-outgoing; iptables-nft -t nat -A POSTROUTING -j FLANNEL-POSTRTG
iptables-nft -t nat -A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
iptables-nft -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
iptables-nft -t nat -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
iptables-nft -t nat -A KUBE-POSTROUTING -j MASQUERADE --random-fully
iptables-nft -t nat -A cali-nat-outgoing -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE
iptables-nft -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.0.0/16 -j RETURN
iptables-nft -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully
iptables-nft -t raw -N cali-PREROUTING; iptables-nft -t raw -A PREROUTING -j cali-PREROUTING
iptables-nft -t raw -A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
iptables-nft -t raw -A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
iptables-nft -t raw -A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
ip6tables-nft -A FORWARD -m set --match-set KUBE-6-BLOCKED src,src -j DROP
ip link add kube-ipvs0 type bridge
for number in 80 81 83; do ip addr add 10.96.0.$number/32 dev kube-ipvs0; done
ip route add default via 172.31.0.253 metric 100; ip route add default via 172.31.0.252 metric 200; ip -6 route add default via fd00:172:31::253 metric 2048
ip route replace 198.18.0.0/15 nexthop via 172.31.0.2 nexthop via 172.31.0.77; ping -c1 -W1 172.31.0.77 || true
iptables-nft -t mangle -A PREROUTING -i pod2 -j MARK --set-xmark 0x200/0x200
ip rule add fwmark 0x200/0x200 lookup 100; ip route add 10.244.2.0/24 via 172.31.0.2 table 100; ip route add throw default table 100"#;

#[test]
fn nothing_is_blamed_with_plugins_of_networks() -> Result<()> {
    run_healthy(
        "why::healthy::nothing_is_blamed_with_plugins_of_networks",
        &[(Machine::Node, PLUGINS)],
    )
}

/// Ends with different MTUs, where errors reach the sender, or segments are small from the beginning: scripts that make it so, and undo it.
const SIZES: [(&str, &str); 8] = [
    ("ip link set pod2 mtu 1350", "ip link set pod2 mtu 1500"),
    ("ip link set pod1 mtu 1300; ip link set pod2 mtu 1400", "ip link set pod1 mtu 1500; ip link set pod2 mtu 1500"),
    ("ip route replace 10.244.2.0/24 via 172.31.0.2 mtu 1100", "ip route replace 10.244.2.0/24 via 172.31.0.2"),
    ("ip route add 172.31.0.100/32 dev eth0 mtu 1200", "ip route del 172.31.0.100/32 dev eth0"),
    (
        "ip link set pod2 mtu 1300; nft 'add table inet fw; add chain inet fw base { type filter hook output priority 0; }
         add rule inet fw base icmp type { echo-request, echo-reply, redirect, time-exceeded } drop'",
        "ip link set pod2 mtu 1500; nft delete table inet fw",
    ),
    (
        "ip link set pod2 mtu 1300; iptables-nft -A OUTPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables-nft -A OUTPUT -p icmp -j DROP",
        "ip link set pod2 mtu 1500; iptables-nft -F OUTPUT",
    ),
    (
        "ip link set pod2 mtu 1300; iptables-nft -A OUTPUT -p icmp -j DROP; iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 900",
        "ip link set pod2 mtu 1500; iptables-nft -F OUTPUT; iptables-nft -t mangle -F FORWARD",
    ),
    (
        "ip link set pod2 mtu 1300; nft 'add table inet fw; add chain inet fw out { type filter hook output priority 0; }; add rule inet fw out meta l4proto { icmp, icmpv6 } drop
         add chain inet fw base { type filter hook forward priority 0; }; add rule inet fw base tcp flags & (syn | rst) == syn tcp option maxseg size set 900'",
        "ip link set pod2 mtu 1500; nft delete table inet fw",
    ),
];

#[test]
fn nothing_is_blamed_where_large_packets_find_their_size() -> Result<()> {
    isolated(
        "why::healthy::nothing_is_blamed_where_large_packets_find_their_size",
        |lab| {
            let mut scene = Scene::start(lab, &[])?;
            let services = [
                ("10.96.0.84:80", Failure::LargeAnswers),
                ("10.96.0.74:80", Failure::LargeAnswers),
                ("10.96.0.75:80", Failure::LargeRequests),
                ("10.96.0.76:80", Failure::LargeRequests),
                ("10.96.0.80:80", Failure::All),
            ];
            let flows = [Machine::Pod2, Machine::Node].into_iter().flat_map(|from| {
                services.map(|(to, failure)| (from, format!("{to}/tcp"), failure))
            });
            let external = [
                ("192.0.2.84:80/tcp", Failure::LargeAnswers),
                ("192.0.2.75:80/tcp", Failure::LargeRequests),
                ("192.0.2.76:80/tcp", Failure::LargeRequests),
            ]
            .map(|(to, failure)| (Machine::Client, to.to_owned(), failure));
            let flows: Vec<_> = flows.chain(external).collect();
            for (make, end) in SIZES {
                Step::Shell(Machine::Node, make.to_owned()).run(&mut scene)?;
                blame_nothing(&scene, flows.clone())?;
                Step::Shell(Machine::Node, format!("{end}; conntrack -F")).run(&mut scene)?;
            }
            Ok(())
        },
    )
}

/// A node without addresses of IPv4.
const WITHOUT_IPV4: &str =
    "ip -4 route flush table main; for link in eth0 pod1 pod2; do ip -4 addr flush dev $link; done";

#[test]
fn nothing_is_blamed_without_ipv4() -> Result<()> {
    isolated("why::healthy::nothing_is_blamed_without_ipv4", |lab| {
        let mut scene = Scene::start(lab, &[])?;
        Step::Shell(Machine::Node, WITHOUT_IPV4.to_owned()).run(&mut scene)?;
        let flows = CLIENTS.into_iter().flat_map(|from| {
            let destinations = [80, 81, 82, 83].into_iter().flat_map(destinations);
            let of_ipv6 = destinations.filter(|to| to.starts_with('['));
            of_ipv6.map(move |to| (from, to, Failure::All))
        });
        blame_nothing(&scene, flows)
    })
}
