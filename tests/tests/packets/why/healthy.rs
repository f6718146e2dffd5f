//! Connections that succeed: nothing may be blamed, whatever else is on the node.

use contiv_tests::lab::{LabError, Result, isolated};

use super::{
    attempt::wait_until_answered,
    fault::{Machine, Step, fault},
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
        let mut blamed = Vec::new();
        let mut count = 0;
        for from in CLIENTS {
            for number in [80, 81, 82, 83] {
                for to in destinations(number) {
                    let healthy = fault("nothing", from, to.clone(), &[], "");
                    wait_until_answered(&scene, &healthy)?;
                    let (answer, code) = scene.explain(from, &to, false)?;
                    count += 1;
                    if !answer["cause"].is_null() || code != Some(0) {
                        blamed.push(format!("{from:?} to {to}: {code:?} {answer}"));
                    }
                }
            }
        }
        if count != 256 || !blamed.is_empty() {
            return Err(LabError::Unexpected(format!(
                "{} of {count} connections that succeed have a cause to fail:\n{}",
                blamed.len(),
                blamed.join("\n")
            )));
        }
        Ok(())
    })
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
