//! Rules of nft.

use contiv_tests::lab::{Family, Protocol, Result, isolated};

use super::{
    cases::{
        Case,
        Flow::{ClientToNode, ClientToVip, NodeToNode, NodeToPod, NodeToVip, PodToPod, PodToVip},
        LOST, NODE, POD1, POD3, POD4, REFUSED,
        Rules::{Chain, File},
        case, doubtful,
    },
    check,
};

const BOTH: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

const FILTERS: &[Case] = &[
    case(PodToPod, POD3, Chain("forward", "counter")),
    case(PodToPod, LOST, Chain("forward", "{ip} daddr {server} drop")),
    case(
        PodToPod,
        REFUSED,
        Chain("forward", "{ip} daddr {server} reject"),
    ),
    case(PodToPod, POD3, Chain("forward", "{ip} daddr {pod4} drop")),
    case(
        PodToPod,
        LOST,
        Chain("forward", "{proto} dport 8080 log drop"),
    ),
    case(PodToPod, POD3, Chain("forward", "{proto} dport 81 drop")),
    case(
        PodToPod,
        LOST,
        Chain(
            "forward",
            "{ip} saddr {pods} {ip} daddr {pods2} counter drop",
        ),
    ),
    case(PodToPod, LOST, Chain("forward", "{ip} daddr {odd} drop")),
    case(
        PodToPod,
        POD3,
        Chain("forward", "{ip} daddr != {odd} {ip} saddr != {odd} drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain("forward", "iifname \"pod2\" oifname \"eth0\" drop"),
    ),
    case(PodToPod, LOST, Chain("forward", "iifname \"pod*\" drop")),
    case(PodToPod, LOST, Chain("forward", "iif \"pod2\" drop")),
    case(PodToPod, POD3, Chain("forward", "iif \"pod1\" drop")),
    case(
        PodToPod,
        LOST,
        Chain("postrouting", "iifname \"pod2\" oif \"eth0\" drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain("prerouting", "{proto} dport 8000-8100 drop"),
    ),
    case(
        PodToPod,
        POD3,
        Chain(
            "prerouting",
            "{proto} dport != 8000-8100 {proto} sport != 8080 drop",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Chain("prerouting", "{proto} dport > 8000 drop"),
    ),
    case(
        PodToPod,
        POD3,
        Chain("prerouting", "{proto} dport < 8000 drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain("forward", "meta l4proto { tcp, udp } drop"),
    ),
    case(PodToPod, LOST, Chain("forward", "meta protocol {ip} drop")),
    case(PodToPod, LOST, Chain("forward", "@th,16,16 8080 drop")),
    case(PodToPod, LOST, Chain("forward", "meta pkttype host drop")),
    case(PodToPod, POD3, Chain("forward", "meta skuid 0 drop")),
    case(
        PodToPod,
        LOST,
        Chain("forward", "meta mark set 0x17\nmeta mark & 0xf == 7 drop"),
    ),
    case(
        PodToPod,
        POD3,
        Chain("forward", "meta mark set 0x17\nmeta mark & 0xf == 8 drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain("forward", "meta mark set 0x100\nmeta mark >= 0x80 drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain(
            "forward",
            "meta mark set 0x7\nmeta mark set meta mark lshift 4\nmeta mark 0x70 drop",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Chain("forward", "numgen inc mod 1 vmap { 0 : drop }"),
    ),
    case(
        PodToPod,
        POD3,
        Chain("forward", "limit rate 1000/second accept\ndrop"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Chain("forward", "limit rate over 1000/second drop"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Chain("forward", "quota over 100 mbytes drop"),
    ),
    doubtful(PodToPod, POD3, Chain("forward", "ct count over 1000 drop")),
    doubtful(PodToPod, POD3, Chain("forward", "meta length > 10000 drop")),
    case(
        PodToPod,
        POD3,
        Chain("prerouting", "fib daddr type local drop"),
    ),
    case(
        ClientToNode,
        LOST,
        Chain("prerouting", "fib daddr type local {proto} dport 8080 drop"),
    ),
    case(
        PodToPod,
        POD3,
        Chain("prerouting", "fib saddr . iif oif missing drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain(
            "prerouting",
            "{proto} dport 8080 fib saddr . iif oif exists drop",
        ),
    ),
    case(PodToPod, LOST, Chain("ingress", "{proto} dport 8080 drop")),
    case(
        ClientToNode,
        LOST,
        Chain("input", "{proto} dport 8080 drop"),
    ),
    case(
        ClientToNode,
        REFUSED,
        Chain("input", "{proto} dport 8080 reject"),
    ),
    case(ClientToNode, NODE, Chain("forward", "drop")),
    case(
        NodeToNode,
        LOST,
        Chain("input", "iif lo {proto} dport 8080 drop"),
    ),
    case(NodeToNode, NODE, Chain("input", "iif != lo drop")),
    case(NodeToPod, POD3, Chain("forward", "drop")),
    case(
        PodToPod,
        LOST,
        File("table {ip} f { chain c { type filter hook forward priority 0; policy drop; } }"),
    ),
    case(
        PodToPod,
        POD3,
        File(
            "table inet f { chain c { type filter hook forward priority 0; policy drop; ct state established accept; {proto} dport 8080 accept; } }",
        ),
    ),
    case(
        PodToPod,
        POD3,
        File(
            "table inet f { flags dormant; chain c { type filter hook forward priority 0; drop; } }",
        ),
    ),
    case(
        PodToPod,
        LOST,
        File(
            "table inet f {
        chain a { type filter hook forward priority -10; accept; }
        chain b { type filter hook forward priority 10; drop; } }",
        ),
    ),
    case(
        PodToPod,
        POD3,
        File(
            "table inet f {
        chain sub { {proto} dport 8080 return; {proto} sport 8080 return; drop; }
        chain b { type filter hook forward priority 10; jump sub; accept; drop; } }",
        ),
    ),
    case(
        PodToPod,
        LOST,
        File(
            "table inet f {
        chain sub { counter; }
        chain b { type filter hook forward priority 10; policy drop; goto sub; accept; } }",
        ),
    ),
    case(
        PodToPod,
        POD3,
        File(
            "table inet f { chain unused { drop; }; chain b { type filter hook forward priority 10; } }",
        ),
    ),
];

const TRACKING: &[Case] = &[
    case(PodToPod, LOST, Chain("forward", "ct state new drop")),
    case(PodToPod, POD3, Chain("forward", "ct state established,related accept\nct state invalid drop")),
    case(PodToPod, LOST, Chain("forward", "ct state established drop")),
    case(PodToPod, LOST, Chain("forward", "ct direction reply drop")),
    case(PodToPod, POD3, Chain("forward", "ct status dnat drop")),
    case(PodToPod, LOST, Chain("forward", "ct original {ip} daddr {server} drop")),
    case(PodToPod, LOST, Chain("forward", "ct reply {ip} daddr {pod2} drop")),
    case(PodToPod, LOST, Chain("forward", "meta l4proto {proto} ct original proto-dst 8080 drop")),
    case(PodToPod, LOST, Chain("forward", "ct mark set 5\nct mark 5 drop")),
    case(PodToPod, LOST, Chain("forward", "ct state new ct mark set 5\nct direction reply ct mark 5 drop")),
    case(PodToPod, POD3, Chain("forward", "ct mark 5 drop")),
    case(PodToPod, LOST, Chain("forward", "ct state vmap { new : drop, established : accept }")),
    case(PodToPod, POD3, Chain("raw", "{ip} daddr {server} notrack")),
    case(PodToPod, LOST, File("table inet f {
        chain r { type filter hook prerouting priority raw; {ip} daddr {server} notrack; }
        chain b { type filter hook forward priority 0; ct state untracked drop; } }")),
    case(PodToPod, POD3, File("table inet f {
        chain r { type filter hook prerouting priority mangle; notrack; }
        chain b { type filter hook forward priority 0; ct state untracked drop; } }")),
    case(PodToVip, LOST, File("table inet f {
        chain r { type filter hook prerouting priority raw; {ip} daddr {server} notrack; }
        chain b { type nat hook prerouting priority dstnat; dnat {ip} to {pod4}; } }")),
    case(PodToPod, LOST, File("table inet f {
        chain r { type filter hook prerouting priority raw; {ip} daddr {server} ct state invalid drop; }
        chain b { type filter hook forward priority 0; ct state new accept; } }")),
];

/// Tables of bridges are not evaluated, and zones are other connections.
const UNKNOWN: &[Case] = &[
    doubtful(
        PodToPod,
        POD3,
        File("table bridge b { chain c { type filter hook forward priority 0; drop; } }"),
    ),
    case(
        PodToPod,
        POD3,
        File("table bridge b { chain c { type filter hook forward priority 0; counter; } }"),
    ),
    doubtful(PodToPod, POD3, Chain("raw", "ct zone set 5")),
    doubtful(
        PodToVip,
        LOST,
        Chain("raw", "{ip} daddr set {node}\n{proto} dport set 81"),
    ),
];

const TRANSLATIONS: &[Case] = &[
    case(PodToVip, LOST, Chain("forward", "counter")),
    case(PodToVip, POD4, Chain("dnat", "{ip} daddr {server} dnat {ip} to {pod4}")),
    case(PodToVip, POD4, Chain("dnat", "{proto} dport 8080 dnat {ip} to {pod4:}:8080")),
    case(PodToVip, REFUSED, Chain("dnat", "{proto} dport 8080 dnat {ip} to {pod4:}:81")),
    case(PodToVip, POD4, Chain("dnat", "dnat {ip} to {ip} daddr map { {server} : {pod4} }")),
    case(PodToVip, POD4, Chain("dnat", "meta l4proto {proto} dnat {ip} addr . port to {ip} daddr . {proto} dport map { {server} . 8080 : {pod4} . 8080 }")),
    case(PodToVip, NODE, Chain("dnat", "{ip} daddr {server} redirect")),
    case(PodToVip, REFUSED, Chain("dnat", "meta l4proto {proto} redirect to :82")),
    case(PodToPod, POD4, Chain("dnat", "{ip} daddr {pod3} dnat {ip} to {pod4}")),
    case(ClientToVip, POD1, Chain("dnat", "{ip} daddr {services} dnat {ip} to {pod1}")),
    case(ClientToNode, POD1, Chain("dnat", "fib daddr type local {proto} dport 8080 dnat {ip} to {pod1}")),
    case(NodeToVip, POD3, Chain("dnat-output", "{ip} daddr {server} dnat {ip} to {pod3}")),
    case(NodeToVip, POD1, Chain("dnat-output", "{ip} daddr {server} dnat {ip} to {pod1}")),
    case(NodeToVip, NODE, Chain("dnat-output", "{ip} daddr {server} redirect")),
    case(NodeToVip, LOST, Chain("dnat", "{ip} daddr {server} dnat {ip} to {pod3}")),
    case(PodToPod, POD3, Chain("snat", "oifname \"eth0\" masquerade")),
    case(PodToPod, POD3, Chain("snat", "oifname \"eth0\" snat {ip} to {node}")),
    // Without a rule that needs conntrack nothing passes the chains of nat.
    case(PodToPod, POD3, Chain("snat", "oifname \"eth0\" drop")),
    case(PodToPod, LOST, Chain("snat", "oifname \"eth0\" ct state new drop")),
    // Of chains with the same priority the one that was added last comes first.
    case(PodToVip, POD4, File("
        table inet a { chain c { type nat hook prerouting priority -100; dnat {ip} to {pod3}; } }
        table inet b { chain c { type nat hook prerouting priority -100; dnat {ip} to {pod4}; } }")),
    case(PodToVip, LOST, File("
        table inet a { chain c { type filter hook prerouting priority 5; meta mark 5 drop; } }
        table inet b { chain c { type filter hook prerouting priority 5; {ip} daddr {pod4} meta mark set 5; } }
        table inet d { chain c { type nat hook prerouting priority -100; dnat {ip} to {pod4}; } }")),
    case(PodToVip, POD4, File("
        table inet a { chain c { type filter hook prerouting priority 5; {ip} daddr {pod4} meta mark set 5; } }
        table inet b { chain c { type filter hook prerouting priority 5; meta mark 5 drop; } }
        table inet d { chain c { type nat hook prerouting priority -100; dnat {ip} to {pod4}; } }")),
    case(PodToVip, POD3, File("
        table inet a { chain c { type nat hook prerouting priority -101; dnat {ip} to {pod3}; } }
        table inet b { chain c { type nat hook prerouting priority -100; dnat {ip} to {pod4}; } }")),
    // Nat is where the kernel has it, whatever the priority of its chain.
    case(PodToVip, POD4, File("table inet a {
        chain c { type nat hook prerouting priority -199; dnat {ip} to {pod4}; }
        chain d { type filter hook prerouting priority -150; {ip} daddr {pod4} drop; } }")),
    case(PodToVip, LOST, File("table inet a {
        chain c { type nat hook prerouting priority 50; dnat {ip} to {pod4}; }
        chain d { type filter hook prerouting priority 0; {ip} daddr {pod4} drop; } }")),
    case(PodToVip, LOST, File("table inet a {
        chain c { type nat hook prerouting priority -100; dnat {ip} to {pod4}; }
        chain d { type filter hook forward priority 0; ct status dnat drop; } }")),
    case(PodToVip, POD4, File("table inet a {
        chain c { type nat hook prerouting priority -100; dnat {ip} to {pod4}; }
        chain d { type filter hook forward priority 0; policy drop; ct status dnat accept; } }")),
    case(PodToPod, POD3, File("
        table {ip} a { chain c { type nat hook prerouting priority -100; accept; } }
        table inet b { chain c { type nat hook postrouting priority 100; masquerade; } }")),
];

const SETS: &[Case] = &[
    case(PodToPod, LOST, File("table inet s { set s { type {addr}; elements = { {server} }; }
        chain c { type filter hook forward priority 0; {ip} daddr @s drop; } }")),
    case(PodToPod, POD3, File("table inet s { set s { type {addr}; elements = { {pod4} }; }
        chain c { type filter hook forward priority 0; {ip} daddr @s drop; } }")),
    case(PodToPod, POD3, File("table inet s { set s { type {addr}; }
        chain c { type filter hook forward priority 0; {ip} daddr @s drop; } }")),
    case(PodToPod, LOST, File("table {ip} s { set s { type {addr}; elements = { {pod4} }; }
        chain c { type filter hook forward priority 0; {ip} daddr != @s drop; } }")),
    case(PodToPod, LOST, File("table inet s { set s { type {addr}; flags interval; elements = { {services}, {pods2} }; }
        chain c { type filter hook forward priority 0; {ip} daddr @s drop; } }")),
    case(PodToPod, POD3, File("table inet s { set s { type {addr}; flags interval; elements = { {services} }; }
        chain c { type filter hook forward priority 0; {ip} daddr @s drop; } }")),
    case(PodToPod, LOST, File("table inet s { set s { type inet_service; flags interval; elements = { 80, 8000-65535 }; }
        chain c { type filter hook forward priority 0; th dport @s drop; } }")),
    case(PodToPod, LOST, File("table inet s { set s { type {addr} . inet_proto . inet_service; elements = { {server} . {proto} . 8080 }; }
        chain c { type filter hook forward priority 0; {ip} daddr . meta l4proto . th dport @s drop; } }")),
    case(PodToPod, LOST, File("table inet s { set s { type {addr} . inet_service; flags interval; elements = { {pods2} . 8000-8100 }; }
        chain c { type filter hook forward priority 0; {ip} daddr . th dport @s drop; } }")),
    case(PodToPod, POD3, File("table inet s { set s { type {addr} . inet_service; flags interval; elements = { {pods2} . 8081-8100 }; }
        chain c { type filter hook forward priority 0; {ip} daddr . th dport @s drop; } }")),
    case(PodToPod, LOST, File("table inet s { set s { type {addr}; flags timeout; elements = { {server} timeout 1h }; }
        chain c { type filter hook forward priority 0; {ip} daddr @s drop; } }")),
    case(PodToPod, REFUSED, File("table inet s { chain no { reject; }; map m { type {addr} : verdict; elements = { {pod4} : accept, {server} : goto no }; }
        chain c { type filter hook forward priority 0; {ip} daddr vmap @m; } }")),
    case(PodToPod, LOST, File("table inet s { map m { type {addr} : verdict; flags interval; elements = { {pods2} : drop }; }
        chain c { type filter hook forward priority 0; {ip} daddr vmap @m; } }")),
    case(PodToPod, LOST, File("table inet s { map m { type {addr} : verdict; elements = { {pod2} : accept, * : drop }; }
        chain c { type filter hook forward priority 0; {ip} daddr vmap @m; } }")),
    case(PodToPod, LOST, Chain("forward", "iifname { \"pod2\", \"lo\" } drop")),
    case(PodToPod, POD3, Chain("forward", "iifname { \"pod1\", \"lo\" } drop")),
    case(PodToPod, LOST, Chain("forward", "th dport { 80, 8000-8100 } drop")),
    case(PodToPod, LOST, Chain("forward", "{ip} daddr . th dport vmap { {server} . 8080 : drop }")),
    case(PodToPod, LOST, Chain("forward", "meta mark set {ip} daddr map { {server} : 5 }\nmeta mark 5 drop")),
    case(PodToPod, LOST, File("table inet s { counter k { }; chain c { type filter hook forward priority 0; counter name k drop; } }")),
    doubtful(PodToPod, POD3, File("table inet s { limit l { rate over 1000/second; }; chain c { type filter hook forward priority 0; limit name l drop; } }")),
    case(PodToPod, POD3, File("table inet s { limit l { rate 1000/second; }; chain c { type filter hook forward priority 0; limit name l accept; drop; } }")),
    doubtful(PodToPod, POD3, File("table inet s { set s { type {addr}; flags dynamic; size 100; }
        chain c { type filter hook forward priority 0; update @s { {ip} saddr limit rate over 1000/second } drop; } }")),
    case(PodToPod, LOST, File("table inet s { set s { type {addr}; flags dynamic; size 100; }
        chain c { type filter hook forward priority 0; add @s { {ip} saddr } drop; } }")),
];

/// With a rule of routing for packets with the mark 7 that leads nowhere, and one for the mark 8 that refuses them.
const MARKS: &[Case] = &[
    case(
        PodToPod,
        LOST,
        Chain("mangle", "{proto} dport 8080 meta mark set 7"),
    ),
    case(
        PodToPod,
        REFUSED,
        Chain("mangle", "{proto} dport 8080 meta mark set 8"),
    ),
    case(PodToPod, POD3, Chain("mangle", "meta mark set 9")),
    case(PodToPod, POD3, Chain("forward", "meta mark set 7")),
    case(
        PodToPod,
        LOST,
        Chain(
            "mangle",
            "ct state new ct mark set 7\nct direction reply meta mark set ct mark",
        ),
    ),
    case(
        NodeToPod,
        LOST,
        Chain("route", "{proto} dport 8080 meta mark set 7"),
    ),
    case(
        NodeToPod,
        POD3,
        Chain("output", "{proto} dport 8080 meta mark set 7"),
    ),
];

const OF_TCP: &[Case] = &[
    case(
        PodToPod,
        REFUSED,
        Chain("forward", "{proto} dport 8080 reject with icmpx no-route"),
    ),
    case(
        PodToPod,
        LOST,
        Chain("forward", "tcp flags & (fin | syn | rst | ack) == syn drop"),
    ),
    case(
        PodToPod,
        LOST,
        Chain("forward", "tcp flags & (syn | ack) == syn | ack drop"),
    ),
    case(
        PodToPod,
        POD3,
        Chain("forward", "tcp flags & (fin | rst) != 0 drop"),
    ),
    case(
        PodToPod,
        POD3,
        Chain("forward", "tcp flags syn tcp option maxseg size set rt mtu"),
    ),
    case(
        PodToPod,
        REFUSED,
        Chain("forward", "{proto} dport 8080 reject with tcp reset"),
    ),
    case(NodeToPod, LOST, Chain("output", "{proto} dport 8080 drop")),
    case(
        NodeToPod,
        LOST,
        Chain("raw-output", "oif \"eth0\" {ip} daddr {server} drop"),
    ),
    case(
        NodeToNode,
        LOST,
        Chain("output", "oif lo {proto} dport 8080 drop"),
    ),
];

#[test]
fn nft_filter_ends_packets_as_predicted() -> Result<()> {
    isolated(
        "packet_path::nft::nft_filter_ends_packets_as_predicted",
        |lab| check(lab, FILTERS, &Family::BOTH, &BOTH),
    )
}

#[test]
fn nft_conntrack_condition_holds_as_predicted() -> Result<()> {
    isolated(
        "packet_path::nft::nft_conntrack_condition_holds_as_predicted",
        |lab| check(lab, TRACKING, &Family::BOTH, &BOTH),
    )
}

#[test]
fn nft_translation_leads_where_predicted() -> Result<()> {
    isolated(
        "packet_path::nft::nft_translation_leads_where_predicted",
        |lab| check(lab, TRANSLATIONS, &Family::BOTH, &BOTH),
    )
}

#[test]
fn nft_set_matches_as_predicted() -> Result<()> {
    isolated("packet_path::nft::nft_set_matches_as_predicted", |lab| {
        check(lab, SETS, &Family::BOTH, &BOTH)
    })
}

#[test]
fn nft_rule_that_is_not_evaluated_is_said() -> Result<()> {
    isolated(
        "packet_path::nft::nft_rule_that_is_not_evaluated_is_said",
        |lab| check(lab, UNKNOWN, &Family::BOTH, &[Protocol::Udp]),
    )
}

#[test]
fn nft_mark_routes_as_predicted() -> Result<()> {
    isolated("packet_path::nft::nft_mark_routes_as_predicted", |lab| {
        for ip in ["-4", "-6"] {
            for (mark, kind) in [("7", "blackhole"), ("8", "unreachable")] {
                let table = format!("7{mark}");
                lab.node
                    .exec(&["ip", ip, "rule", "add", "fwmark", mark, "table", &table])?;
                lab.node
                    .exec(&["ip", ip, "route", "add", kind, "default", "table", &table])?;
            }
        }
        check(lab, MARKS, &Family::BOTH, &[Protocol::Tcp])
    })
}

const OF_SCTP: &[Case] = &[
    case(PodToPod, POD3, Chain("forward", "sctp dport 81 drop")),
    case(PodToPod, LOST, Chain("forward", "sctp dport 8080 drop")),
    case(
        PodToPod,
        LOST,
        Chain("forward", "ct state established drop"),
    ),
    case(PodToPod, LOST, Chain("forward", "meta l4proto sctp drop")),
    case(
        PodToVip,
        POD4,
        Chain("dnat", "{ip} daddr {server} dnat {ip} to {pod4}"),
    ),
];

const EGRESS: &[Case] = &[
    case(
        PodToPod,
        LOST,
        File(
            "table netdev t { chain c { type filter hook egress device eth0 priority 0; th dport 8080 drop; } }",
        ),
    ),
    case(
        PodToPod,
        POD3,
        File(
            "table netdev t { chain c { type filter hook egress device pod1 priority 0; th dport 8080 drop; } }",
        ),
    ),
    case(
        NodeToPod,
        LOST,
        File(
            "table netdev t { chain c { type filter hook egress device eth0 priority 0; {ip} daddr {pod3} th dport 8080 drop; } }",
        ),
    ),
    case(
        PodToPod,
        LOST,
        File(
            "table inet t { chain c { type filter hook ingress device pod2 priority 0; th dport 8080 drop; } }",
        ),
    ),
];

#[test]
fn nft_rule_of_sctp_ends_packets_as_predicted() -> Result<()> {
    isolated(
        "packet_path::nft::nft_rule_of_sctp_ends_packets_as_predicted",
        |lab| check(lab, OF_SCTP, &Family::BOTH, &[Protocol::Sctp]),
    )
}

#[test]
fn nft_chain_of_a_device_ends_packets_as_predicted() -> Result<()> {
    isolated(
        "packet_path::nft::nft_chain_of_a_device_ends_packets_as_predicted",
        |lab| check(lab, EGRESS, &Family::BOTH, &[Protocol::Tcp]),
    )
}

#[test]
fn nft_rule_of_tcp_ends_packets_as_predicted() -> Result<()> {
    isolated(
        "packet_path::nft::nft_rule_of_tcp_ends_packets_as_predicted",
        |lab| check(lab, OF_TCP, &Family::BOTH, &[Protocol::Tcp]),
    )
}
