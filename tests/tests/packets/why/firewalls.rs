//! Rules of nft of other programs.

use contiv_tests::lab::{Result, isolated};

use super::{
    fault::{Fault, Machine, fault},
    group::run_group,
    scene::Scene,
};

const WEB: &str = "10.96.0.80:80/tcp";
const WEB6: &str = "[fd00:10:96::80]:80/tcp";
const NODE_PORT: &str = "172.31.0.1:30080/tcp";
const EXTERNAL: &str = "192.0.2.80:80/tcp";

const STOPS: &[&str] = &["rule-drops"];
const REJECTS: &[&str] = &["rule-rejects"];
const ANSWERS: &[&str] = &["rule-stops-answer"];
const TRANSLATES: &[&str] = &["rule-translates"];

/// A table with one base chain.
fn chain(declaration: &str, rules: &str) -> String {
    format!("table inet fw {{ chain base {{ type {declaration}; {rules}; }}; }}")
}

fn faults_of_first_packets() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    let stopped = |name, from, to: &str, declaration: &str, rules: &str, expert| {
        let codes = if rules.contains("reject") {
            REJECTS
        } else {
            STOPS
        };
        fault(name, from, to, codes, expert).nft(&chain(declaration, rules))
    };
    vec![
        stopped("dropped in prerouting", Pod2, WEB, "filter hook prerouting priority -150", "ip daddr 10.96.0.80 drop", "the table fw drops packets to the cluster IP before they are translated"),
        stopped("dropped in raw prerouting", Client, EXTERNAL, "filter hook prerouting priority raw", "tcp dport 80 drop", "the table fw drops packets to port 80 first of all"),
        stopped("refused in prerouting", Pod2, WEB, "filter hook prerouting priority mangle", "ip daddr 10.96.0.0/16 reject", "the table fw refuses packets to cluster IPs"),
        stopped("dropped in forward", Pod2, WEB, "filter hook forward priority filter", "ip daddr 10.244.2.10 tcp dport 8080 drop", "the table fw drops packets to the backend"),
        stopped("dropped in forward (IPv6)", Pod2, WEB6, "filter hook forward priority filter", "ip6 daddr fd00:10:244:2::10 drop", "the table fw drops packets to the backend"),
        stopped("dropped in forward, UDP", Pod2, "10.96.0.80:80/udp", "filter hook forward priority filter", "udp dport 8080 drop", "the table fw drops datagrams to the port of the backend"),
        stopped("refused in forward", Client, NODE_PORT, "filter hook forward priority filter", "tcp dport 8080 reject with icmpx admin-prohibited", "the table fw refuses packets to the port of the backend"),
        stopped("refused by a reset", Pod2, WEB, "filter hook forward priority 10", "meta l4proto tcp reject with tcp reset", "the table fw resets every forwarded connection"),
        stopped("policy drop of forward", Client, EXTERNAL, "filter hook forward priority filter; policy drop", "ct state established,related accept; ip saddr 10.244.0.0/16 accept", "the policy of the chain forward is drop, and no rule accepts this client"),
        stopped("new connections dropped", Pod2, WEB, "filter hook forward priority filter", "ct state established,related accept; ct state new drop", "the table fw drops new connections"),
        stopped("dropped in input", Client, "192.0.2.82:80/tcp", "filter hook input priority filter", "tcp dport 8080 drop", "the table fw drops packets to the process of this node"),
        stopped("policy drop of input", Client, "192.0.2.82:80/tcp", "filter hook input priority filter; policy drop", "ct state established accept; iifname lo accept; meta l4proto { icmp, icmpv6 } accept; tcp dport 22 accept", "the policy of the chain input is drop, and port 8080 is not open"),
        stopped("dropped in output", Node, WEB, "filter hook output priority filter", "ip daddr 10.244.2.10 drop", "the table fw drops what this node sends to the backend"),
        stopped("dropped in output before it is translated", Node, WEB, "filter hook output priority -150", "ip daddr 10.96.0.0/16 tcp dport 80 drop", "the table fw drops what this node sends to cluster IPs"),
        stopped("refused in output", Node, WEB6, "filter hook output priority filter", "tcp dport 8080 reject", "the table fw refuses what this node sends to the port of the backend"),
        stopped("dropped in postrouting", Pod2, WEB, "filter hook postrouting priority -10", "oifname eth0 tcp dport 8080 drop", "the table fw drops what leaves by eth0 to the port of the backend"),
        stopped("dropped by interfaces", Pod2, WEB, "filter hook forward priority filter", "iifname \"pod*\" oifname eth0 drop", "the table fw drops what pods send to the outside"),
        stopped("dropped by a mark of another chain", Pod2, WEB, "filter hook forward priority filter", "meta mark & 0xff == 0x15 drop; }; chain marking { type filter hook prerouting priority mangle; iifname pod2 meta mark set 0x15", "the table fw marks packets of pod2, and drops packets with that mark"),
        stopped("dropped by the mark of the connection", Client, EXTERNAL, "filter hook forward priority filter", "ct mark 7 drop; }; chain marking { type filter hook prerouting priority mangle; ip saddr 172.31.0.100 ct mark set 7", "the table fw marks connections of the client, and drops packets of connections with that mark"),
        fault("dropped by a set", Pod2, WEB, STOPS, "the set bad of the table fw has the client").nft(
            "table inet fw { set bad { type ipv4_addr; flags interval; elements = { 10.244.1.0/24 }; }; chain base { type filter hook forward priority 0; ip saddr @bad drop; }; }",
        ),
        fault("dropped by a concatenation", Pod2, WEB, STOPS, "the set pairs of the table fw has the client with port 8080").nft(
            "table ip fw { set pairs { type ipv4_addr . inet_service; elements = { 10.244.1.11 . 8080 }; }; chain base { type filter hook forward priority 0; ip saddr . tcp dport @pairs drop; }; }",
        ),
        fault("dropped by a verdict map", Pod2, WEB, STOPS, "a verdict map of the table fw drops port 8080").nft(
            "table inet fw { chain base { type filter hook forward priority 0; tcp dport vmap { 22 : accept, 8080 : jump refuse }; }; chain refuse { drop; }; }",
        ),
        fault("dropped three chains further", Pod2, WEB, STOPS, "the chain third of the table fw drops it").nft(
            "table inet fw { chain third { tcp dport 8000-8999 drop; }; chain second { meta l4proto tcp jump third; }; chain base { type filter hook forward priority 0; ip daddr 10.244.0.0/16 goto second; }; }",
        ),
        fault("dropped at the ingress of the pod's interface", Pod2, WEB, STOPS, "the table fw drops it at the ingress of pod2").nft(
            "table netdev fw { chain base { type filter hook ingress device pod2 priority 0; ip daddr 10.96.0.80 drop; }; }",
        ),
        fault("dropped at the ingress of eth0", Client, NODE_PORT, STOPS, "the table fw drops it at the ingress of eth0").nft(
            "table netdev fw { chain base { type filter hook ingress device eth0 priority 0; tcp dport 30000-32767 drop; }; }",
        ),
        fault("dropped at the egress of eth0", Pod2, WEB, STOPS, "the table fw drops it at the egress of eth0").nft(
            "table netdev fw { chain base { type filter hook egress device eth0 priority 0; ip daddr 10.244.2.10 drop; }; }",
        ),
        fault("dropped by a rule that cannot be evaluated", Node, WEB, &["rule-unclear", "rule-drops"], "the table fw drops what processes of root send; it depends on the process").nft(&chain("filter hook output priority filter", "meta skuid 0 tcp dport 8080 drop")),
        fault("dropped by a quota", Pod2, WEB, &["rule-unclear", "rule-drops"], "the quota of the table fw is exceeded").nft(&chain("filter hook forward priority filter", "tcp dport 8080 quota over 1 bytes drop")),
    ]
}

fn faults_of_translations() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    let translated = |name, from, to: &str, declaration: &str, rules: &str, expert| {
        fault(name, from, to, TRANSLATES, expert).nft(&chain(declaration, rules))
    };
    vec![
        translated(
            "translated first",
            Pod2,
            WEB,
            "nat hook prerouting priority dstnat - 10",
            "ip daddr 10.96.0.80 tcp dport 80 dnat ip to 10.244.2.11:81",
            "the table fw translates the cluster IP before contiv does",
        ),
        translated(
            "translated first (IPv6)",
            Pod2,
            WEB6,
            "nat hook prerouting priority dstnat - 10",
            "ip6 daddr fd00:10:96::80 tcp dport 80 dnat ip6 to [fd00:10:244:2::11]:81",
            "the table fw translates the cluster IP before contiv does",
        ),
        translated(
            "redirected first",
            Client,
            NODE_PORT,
            "nat hook prerouting priority dstnat - 1",
            "tcp dport 30080 redirect to :9",
            "the table fw redirects the node port to a port where nobody listens",
        ),
        translated(
            "translated first in output",
            Node,
            WEB,
            "nat hook output priority -110",
            "ip daddr 10.96.0.80 tcp dport 80 dnat ip to 10.244.2.11:81",
            "the table fw translates the cluster IP before contiv does",
        ),
        translated(
            "translated by a map first",
            Client,
            EXTERNAL,
            "nat hook prerouting priority -110",
            "dnat ip to ip daddr map { 192.0.2.80 : 10.244.2.77 }",
            "a map of the table fw translates the external IP before contiv does",
        ),
        fault(
            "the source is translated to a foreign address",
            Pod2,
            WEB,
            &["rule-changes-source"],
            "the table fw gives it the source 198.18.0.1, to which nobody has a route",
        )
        .nft(&chain(
            "nat hook postrouting priority srcnat - 10",
            "ip daddr 10.244.2.10 snat ip to 198.18.0.1",
        )),
        fault(
            "not tracked",
            Pod2,
            WEB,
            &["rule-untracks"],
            "the table fw keeps conntrack from seeing it, so nothing translates it",
        )
        .nft(&chain(
            "filter hook prerouting priority raw",
            "ip daddr 10.96.0.0/16 notrack",
        )),
        fault(
            "not tracked in output",
            Node,
            WEB,
            &["rule-untracks"],
            "the table fw keeps conntrack from seeing it, so nothing translates it",
        )
        .nft(&chain(
            "filter hook output priority raw",
            "tcp dport 80 notrack",
        )),
        fault(
            "only its first packets are in another zone",
            Pod2,
            WEB,
            &["rule-unclear", "rule-untracks"],
            "the table fw puts it into another zone of conntrack, where its answers are not found",
        )
        .nft(&chain(
            "filter hook prerouting priority raw",
            "iifname pod2 ct zone set 5",
        )),
    ]
}

fn faults_of_answers() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    let stopped = |name, from, to: &str, declaration: &str, rules: &str, expert| {
        fault(name, from, to, ANSWERS, expert).nft(&chain(declaration, rules))
    };
    vec![
        stopped(
            "answers dropped in prerouting",
            Pod2,
            WEB,
            "filter hook prerouting priority mangle",
            "tcp sport 8080 drop",
            "the table fw drops the answers of the backend",
        ),
        stopped(
            "answers dropped in forward",
            Pod2,
            WEB,
            "filter hook forward priority filter",
            "ip saddr 10.244.2.10 drop",
            "the table fw drops the answers of the backend",
        ),
        stopped(
            "answers dropped in forward (IPv6)",
            Pod2,
            WEB6,
            "filter hook forward priority filter",
            "iifname eth0 ip6 daddr fd00:10:244:1::11 drop",
            "the table fw drops the answers of the backend",
        ),
        stopped(
            "answers dropped in input",
            Node,
            WEB,
            "filter hook input priority filter",
            "ip saddr 10.244.2.0/24 ct state established drop",
            "the table fw drops the answers to this node",
        ),
        stopped(
            "SYN-ACKs dropped",
            Client,
            EXTERNAL,
            "filter hook forward priority filter",
            "tcp flags & (syn | ack) == (syn | ack) drop",
            "the table fw drops the second packet of each connection",
        ),
        stopped(
            "answers dropped in output",
            Client,
            "192.0.2.82:80/tcp",
            "filter hook output priority filter",
            "tcp sport 8080 drop",
            "the table fw drops the answers of the process of this node",
        ),
        stopped(
            "answers dropped by direction",
            Pod2,
            WEB,
            "filter hook forward priority filter",
            "ct direction reply drop",
            "the table fw drops all answers",
        ),
        stopped(
            "policy drop without established",
            Pod2,
            WEB,
            "filter hook forward priority filter; policy drop",
            "iifname pod2 accept",
            "the policy of the chain forward is drop, and no rule accepts the answers",
        ),
        stopped(
            "input open for new connections only",
            Node,
            WEB,
            "filter hook input priority filter; policy drop",
            "iifname lo accept; tcp dport 22 accept",
            "the policy of the chain input is drop, and no rule accepts the answers",
        ),
    ]
}

/// The pod's interface becomes a port of a bridge with the addresses of the node.
const MAKE_BRIDGE: &str = "ip link add br9 type bridge forward_delay 0; ip link set br9 up
ip link set pod2 master br9; ip route del 10.244.1.11; ip -6 route del fd00:10:244:1::11
ip addr add 10.244.1.1/32 dev br9; ip route add 10.244.1.11/32 dev br9
ip -6 addr add fd00:10:244:1::1/128 dev br9 nodad; ip -6 route add fd00:10:244:1::11/128 dev br9
ip addr del 10.244.1.1/32 dev pod2; ip -6 addr del fd00:10:244:1::1/128 dev pod2";

fn faults_of_bridges() -> Vec<Fault> {
    let on_bridge = |name, expert, rules| {
        fault(
            name,
            Machine::Pod2,
            WEB,
            &["rule-unclear", "rule-drops"],
            expert,
        )
        .shell(Machine::Node, MAKE_BRIDGE, "true")
        .nft(rules)
    };
    // The bridge stays, so it is the last one.
    vec![on_bridge(
        "dropped by rules of the bridge",
        "the table bridge fw drops packets of pod2, a port of br9",
        "table bridge fw { chain base { type filter hook input priority 0; iifname pod2 ip protocol tcp drop; }; }",
    )]
}

#[test]
fn rules_that_stop_packets_are_named() -> Result<()> {
    isolated("why::firewalls::rules_that_stop_packets_are_named", |lab| {
        let mut scene = Scene::start(lab, &[])?;
        run_group(
            "rules of nft: packets",
            &mut scene,
            &faults_of_first_packets(),
        )
    })
}

#[test]
fn rules_that_stop_answers_or_translate_are_named() -> Result<()> {
    isolated(
        "why::firewalls::rules_that_stop_answers_or_translate_are_named",
        |lab| {
            let mut scene = Scene::start(lab, &[])?;
            let groups = [
                faults_of_answers(),
                faults_of_translations(),
                faults_of_bridges(),
            ];
            let faults: Vec<Fault> = groups.into_iter().flatten().collect();
            run_group(
                "rules of nft: answers and translations",
                &mut scene,
                &faults,
            )
        },
    )
}
