//! Rules as widespread programs write them, shortened.

use contiv_tests::lab::{Family, Protocol, Result, isolated};

use super::{
    cases::{
        Case,
        Flow::{ClientToNode, ClientToVip, NodeToPod, PodToPod, PodToVip},
        LOST, NODE, POD1, POD3, REFUSED,
        Rules::{File, Iptables},
        case,
    },
    check,
};

const FIREWALLD: &str = "table inet firewalld {
    chain mangle_PREROUTING { type filter hook prerouting priority -140; jump mangle_POLICIES; }
    chain mangle_POLICIES { iifname \"pod1\" return; return; }
    chain nat_PREROUTING { type nat hook prerouting priority -90; }
    chain nat_POSTROUTING { type nat hook postrouting priority 110; oifname \"eth1\" masquerade; }
    chain filter_PREROUTING { type filter hook prerouting priority -290;
        icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }
    chain filter_INPUT { type filter hook input priority 10;
        ct state { established, related } accept
        ct status dnat accept
        iifname \"lo\" accept
        ct state invalid drop
        jump filter_IN_public
        reject with icmpx admin-prohibited; }
    chain filter_IN_public {
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
        meta l4proto icmp accept
        tcp dport 22 accept
        {ip} daddr {node} {proto} dport 8080 ct state { new, untracked } {verdict}; }
    chain filter_FORWARD { type filter hook forward priority 10;
        ct state { established, related } accept
        ct status dnat accept
        iifname \"lo\" accept
        ct state invalid drop
        ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002:a00::/24 } reject with icmpv6 addr-unreachable
        jump filter_FWD_public
        reject with icmpx port-unreachable; }
    chain filter_FWD_public { iifname \"pod*\" oifname \"eth0\" {forwarded}; }
    chain filter_OUTPUT { type filter hook output priority 10;
        ct state { established, related } accept
        oifname \"lo\" accept
        ip6 daddr { ::/96, 2002:a00::/24 } reject with icmpv6 addr-unreachable; }
}";

const DOCKER: &str = "
    -N DOCKER
    -N DOCKER-USER
    -N DOCKER-ISOLATION-STAGE-1
    -P FORWARD DROP
    -A FORWARD -j DOCKER-USER
    -A FORWARD -j DOCKER-ISOLATION-STAGE-1
    -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    -A FORWARD -o docker0 -j DOCKER
    -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
    -A DOCKER-USER -j RETURN
    -A DOCKER-ISOLATION-STAGE-1 -j RETURN
    -t nat -N DOCKER
    -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
    -t nat -A POSTROUTING -s {services} ! -o docker0 -j MASQUERADE
    -t nat -A DOCKER -i docker0 -j RETURN";

const UFW: &str = "
    -N ufw-before-input
    -N ufw-user-input
    -N ufw-not-local
    -N ufw-skip
    -N ufw-logging-deny
    -A INPUT -j ufw-before-input
    -A ufw-before-input -i lo -j ACCEPT
    -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    -A ufw-before-input -m conntrack --ctstate INVALID -j ufw-logging-deny
    -A ufw-before-input -m conntrack --ctstate INVALID -j DROP
    -A ufw-before-input -p {proto} -j ufw-not-local
    -A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
    -A ufw-not-local -m addrtype --dst-type MULTICAST -j RETURN
    -A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j ufw-logging-deny
    -A ufw-not-local -j DROP
    -A ufw-logging-deny -m conntrack --ctstate INVALID -m limit --limit 3/min --limit-burst 10 -j RETURN
    -A ufw-logging-deny -m limit --limit 3/min --limit-burst 10 -j LOG
    -A ufw-before-input -p {proto} -j ufw-user-input
    -A ufw-user-input -p {proto} -m multiport --dports 22,443 -j ACCEPT
    -A ufw-before-input -p {proto} -j REJECT";

/// One service with one endpoint, as kube-proxy writes it.
const KUBE_PROXY: &str = "
    -t nat -N KUBE-SERVICES
    -t nat -N KUBE-SVC-X
    -t nat -N KUBE-SEP-X
    -t nat -N KUBE-MARK-MASQ
    -t nat -N KUBE-POSTROUTING
    -N KUBE-FORWARD
    -t nat -A PREROUTING -m comment --comment portals -j KUBE-SERVICES
    -t nat -A POSTROUTING -m comment --comment rules -j KUBE-POSTROUTING
    -t nat -A KUBE-SERVICES -d {server} -p {proto} -m {proto} --dport 8080 -j KUBE-SVC-X
    -t nat -A KUBE-SVC-X ! -s {pods} -d {server} -p {proto} -m {proto} --dport 8080 -j KUBE-MARK-MASQ
    -t nat -A KUBE-SVC-X -j KUBE-SEP-X
    -t nat -A KUBE-SEP-X -s {endpoint} -j KUBE-MARK-MASQ
    -t nat -A KUBE-SEP-X -p {proto} -m {proto} -j DNAT --to-destination {endpoint:}:8080
    -t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
    -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
    -t nat -A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
    -t nat -A KUBE-POSTROUTING -j MASQUERADE --random-fully
    -P FORWARD DROP
    -A FORWARD -j KUBE-FORWARD
    -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
    -A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
    -A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    -A KUBE-FORWARD -m conntrack --ctstate DNAT -j ACCEPT";

/// The same with its tables of nftables.
const KUBE_PROXY_NFT: &str = "table {ip} kube-proxy {
    map service-ips { type {addr} . inet_proto . inet_service : verdict; elements = { {server} . {proto} . 8080 : goto service-x }; }
    map no-endpoint-services { type {addr} . inet_proto . inet_service : verdict; elements = { {server} . {proto} . 81 : goto reject-chain }; }
    chain reject-chain { reject; }
    chain mark-for-masquerade { meta mark set meta mark | 0x4000; }
    chain masquerading { meta mark & 0x4000 == 0 return; meta mark set meta mark ^ 0x4000; masquerade fully-random; }
    chain endpoint-x { {ip} saddr {endpoint} jump mark-for-masquerade; meta l4proto {proto} dnat to {endpoint:}:8080; }
    chain service-x {
        {ip} daddr {server} {proto} dport 8080 {ip} saddr != {pods} jump mark-for-masquerade
        numgen random mod 1 vmap { 0 : goto endpoint-x }
    }
    chain services { {ip} daddr . meta l4proto . th dport vmap @service-ips; }
    chain service-endpoints-check { {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
    chain filter-forward { type filter hook forward priority -110; ct state new jump service-endpoints-check; }
    chain filter-input { type filter hook input priority -110; ct state new jump service-endpoints-check; }
}";

/// Rules of a workload in the style of Calico.
const CALICO: &str = "
    -t raw -N cali-PREROUTING
    -t raw -N cali-rpf-skip
    -t raw -A PREROUTING -j cali-PREROUTING
    -t raw -A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
    -t raw -A cali-PREROUTING -i pod+ -j MARK --set-xmark 0x40000/0x40000
    -t raw -A cali-PREROUTING -m mark --mark 0x40000/0x40000 -j cali-rpf-skip
    -t raw -A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
    -t raw -A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
    -N cali-FORWARD
    -N cali-from-wl-dispatch
    -N cali-fw-pod2
    -N cali-pri-x
    -A FORWARD -j cali-FORWARD
    -A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
    -A cali-FORWARD -i pod+ -j cali-from-wl-dispatch
    -A cali-FORWARD -m comment --comment accepted -m mark --mark 0x10000/0x10000 -j ACCEPT
    -A cali-from-wl-dispatch -i pod2 -g cali-fw-pod2
    -A cali-from-wl-dispatch -j DROP
    -A cali-fw-pod2 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    -A cali-fw-pod2 -m conntrack --ctstate INVALID -j DROP
    -A cali-fw-pod2 -j MARK --set-xmark 0x0/0x10000
    -A cali-fw-pod2 -j cali-pri-x
    -A cali-fw-pod2 -m mark --mark 0x10000/0x10000 -j RETURN
    -A cali-fw-pod2 -j DROP
    -A cali-pri-x -d {allowed} -j MARK --set-xmark 0x10000/0x10000
    -A cali-pri-x -m mark --mark 0x10000/0x10000 -j RETURN";

/// The endpoint of the service of kube-proxy.
const OTHER_NODE: &[(&str, &str)] = &[("{endpoint}", "{pod3}"), ("{endpoint:}", "{pod3:}")];
const THIS_NODE: &[(&str, &str)] = &[("{endpoint}", "{pod1}"), ("{endpoint:}", "{pod1:}")];

const OF_FIREWALLD: &[(&str, &str)] = &[("{verdict}", "accept"), ("{forwarded}", "accept")];
const OF_CLOSED_FIREWALLD: &[(&str, &str)] = &[("{verdict}", "drop"), ("{forwarded}", "counter")];

const CASES: &[Case] = &[
    case(PodToPod, POD3, File(FIREWALLD)).with(OF_FIREWALLD),
    case(ClientToNode, NODE, File(FIREWALLD)).with(OF_FIREWALLD),
    case(PodToPod, REFUSED, File(FIREWALLD)).with(OF_CLOSED_FIREWALLD),
    case(ClientToNode, LOST, File(FIREWALLD)).with(OF_CLOSED_FIREWALLD),
    case(NodeToPod, POD3, File(FIREWALLD)).with(OF_CLOSED_FIREWALLD),
    case(PodToPod, LOST, Iptables(DOCKER)),
    case(ClientToNode, NODE, Iptables(DOCKER)),
    case(ClientToNode, REFUSED, Iptables(UFW)),
    case(PodToPod, POD3, Iptables(UFW)),
    case(PodToVip, POD3, Iptables(KUBE_PROXY)).with(OTHER_NODE),
    case(ClientToVip, POD1, Iptables(KUBE_PROXY)).with(THIS_NODE),
    case(PodToPod, LOST, Iptables(KUBE_PROXY)).with(OTHER_NODE),
    case(PodToVip, POD3, File(KUBE_PROXY_NFT)).with(OTHER_NODE),
    case(ClientToVip, POD1, File(KUBE_PROXY_NFT)).with(THIS_NODE),
    case(PodToPod, POD3, Iptables(CALICO)).with(&[("{allowed}", "{pod3}")]),
    case(PodToPod, LOST, Iptables(CALICO)).with(&[("{allowed}", "{pod4}")]),
];

#[test]
fn rules_of_widespread_programs_do_as_predicted() -> Result<()> {
    isolated(
        "packet_path::programs::rules_of_widespread_programs_do_as_predicted",
        |lab| {
            let protocols = [Protocol::Tcp, Protocol::Udp];
            check(lab, CASES, &Family::BOTH, &protocols)
        },
    )
}
