//! Rules of iptables, which iptables-nft stores as rules of nftables with binary structures.

use contiv_renderer::packet_path::{Doubt, OwnVerdict};
use contiv_tests::lab::{Family, Lab, LabError, Protocol, Result, isolated};

use super::{
    cases::{
        Case,
        Flow::{ClientToNode, ClientToVip, NodeToNode, NodeToPod, NodeToVip, PodToPod, PodToVip},
        LOST, NODE, POD1, POD3, POD4, REFUSED,
        Rules::Iptables,
        case, doubtful,
    },
    check, walks,
};

const BOTH: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

const MATCHES: &[Case] = &[
    case(PodToPod, LOST, Iptables("-A FORWARD -d {server} -j DROP")),
    case(PodToPod, POD3, Iptables("-A FORWARD -d {pod4} -j DROP")),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -s {pods} -d {pods2} -j DROP"),
    ),
    case(PodToPod, LOST, Iptables("-A FORWARD -d {odd} -j DROP")),
    case(PodToPod, LOST, Iptables("-A FORWARD ! -s {pods} -j DROP")),
    case(PodToPod, LOST, Iptables("-A FORWARD -i pod+ -j DROP")),
    case(PodToPod, LOST, Iptables("-A FORWARD ! -i pod+ -j DROP")),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -i eth0 ! -o pod+ -j DROP"),
    ),
    case(PodToPod, LOST, Iptables("-A FORWARD -o eth0 -j DROP")),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} --dport 8080 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} --dport 8000:8100 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} ! --dport 80 -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -p {proto} --sport 1:1024 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} -m multiport --dports 80,8080 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} -m multiport --dports 9,8000:8100 -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -p {proto} -m multiport --dports 9,80:90 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} -m multiport ! --dports 9,80:90 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} -m multiport --ports 8080 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p {proto} -m multiport --sports 8080 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctstate NEW -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctstate ESTABLISHED -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m conntrack --ctstate INVALID,UNTRACKED -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack ! --ctstate NEW -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctorigdst {server} -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m conntrack --ctorigdst {pod4} -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctreplsrc {pods2} -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctorigdstport 8080 -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m conntrack --ctorigdstport 80 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctdir REPLY -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctstatus SEEN_REPLY -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m conntrack --ctproto {proto} -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m conntrack --ctproto 132 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m state --state NEW -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m state --state INVALID -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m addrtype --dst-type LOCAL -j DROP"),
    ),
    case(
        ClientToNode,
        LOST,
        Iptables("-t raw -A PREROUTING -p {proto} -m addrtype --dst-type LOCAL -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m addrtype ! --dst-type LOCAL -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m addrtype --src-type UNICAST -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables(
            "-t mangle -A PREROUTING -j MARK --set-mark 0x17\n-A FORWARD -m mark --mark 0x7/0xf -j DROP",
        ),
    ),
    case(
        PodToPod,
        POD3,
        Iptables(
            "-t mangle -A PREROUTING -j MARK --set-mark 0x17\n-A FORWARD -m mark --mark 0x8/0xf -j DROP",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Iptables(
            "-t mangle -A PREROUTING -j MARK --set-xmark 0x10/0x10\n-A FORWARD -m mark ! --mark 0 -j DROP",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Iptables(
            "-t mangle -A PREROUTING -j CONNMARK --set-mark 0x7\n-A FORWARD -m connmark --mark 0x7 -j DROP",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Iptables(
            "-t mangle -A PREROUTING -p {proto} --dport 8080 -j MARK --set-mark 0x7
        -t mangle -A PREROUTING -p {proto} --dport 8080 -j CONNMARK --save-mark
        -t mangle -A PREROUTING -p {proto} --sport 8080 -j CONNMARK --restore-mark
        -A FORWARD -p {proto} --sport 8080 -m mark --mark 0x7 -j DROP",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m iprange --dst-range {pod3}-{pod4} -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m iprange ! --dst-range {pod1}-{pod2} -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m iprange --src-range {pod4}-{pod4} -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m comment --comment words -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -m pkttype --pkt-type unicast -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m pkttype --pkt-type multicast -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m limit --limit 1000/second -j ACCEPT\n-A FORWARD -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m statistic --mode nth --every 1000 --packet 999 -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables(
            "-A FORWARD -m hashlimit --hashlimit-above 1000/second --hashlimit-name x -j DROP",
        ),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m recent --name x --rcheck -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m length --length 5000 -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-t raw -A PREROUTING -m rpfilter --invert -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-t raw -A PREROUTING -p {proto} -m rpfilter -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-t raw -A PREROUTING -p {proto} -m rpfilter --loose --validmark -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m mac --mac-source 02:00:00:00:00:01 -j DROP"),
    ),
    doubtful(
        PodToVip,
        LOST,
        Iptables(
            "-t nat -A PREROUTING -d {server} -j DNAT --to-destination {pod3}-{pod4}
-P FORWARD DROP",
        ),
    ),
    case(PodToPod, POD3, Iptables("-A FORWARD -p esp -j DROP")),
    case(PodToPod, LOST, Iptables("-P FORWARD DROP")),
    case(
        PodToPod,
        POD3,
        Iptables(
            "-P FORWARD DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A FORWARD -p {proto} --dport 8080 -j ACCEPT",
        ),
    ),
    case(
        PodToPod,
        POD3,
        Iptables(
            "-N X\n-A X -d {server} -j RETURN\n-A X -s {server} -j RETURN\n-A X -j DROP\n-A FORWARD -j X",
        ),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-N X\n-A X -j RETURN\n-A FORWARD -g X\n-A FORWARD -j ACCEPT\n-P FORWARD DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-N X\n-A X -j DROP\n-A FORWARD -m recent --name x --rcheck -j X"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-N X\n-A X -j LOG\n-A FORWARD -m recent --name x --rcheck -j X"),
    ),
    case(
        NodeToNode,
        LOST,
        Iptables("-A INPUT -i lo -p {proto} --dport 8080 -j DROP"),
    ),
    case(NodeToPod, POD3, Iptables("-A FORWARD -j DROP")),
    case(
        ClientToNode,
        LOST,
        Iptables("-A INPUT -p {proto} --dport 8080 -j DROP"),
    ),
];

/// Matches that cannot be evaluated.
const UNKNOWN: &[Case] = &[
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m string --string x-y-z --algo bm -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m physdev --physdev-in x -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m connlimit --connlimit-above 1000 -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m dscp --dscp 10 -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m helper --helper ftp -j REJECT"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m time --timestart 00:00 -j ACCEPT"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-t raw -A PREROUTING -j CT --zone 5"),
    ),
];

const TARGETS: &[Case] = &[
    case(
        PodToPod,
        REFUSED,
        Iptables("-A FORWARD -d {server} -j REJECT"),
    ),
    case(
        PodToVip,
        POD4,
        Iptables("-t nat -A PREROUTING -d {server} -j DNAT --to-destination {pod4}"),
    ),
    case(
        PodToVip,
        POD4,
        Iptables(
            "-t nat -A PREROUTING -p {proto} --dport 8080 -j DNAT --to-destination {pod4:}:8080",
        ),
    ),
    case(
        PodToVip,
        REFUSED,
        Iptables(
            "-t nat -A PREROUTING -p {proto} --dport 8080 -j DNAT --to-destination {pod4:}:81",
        ),
    ),
    case(
        PodToVip,
        NODE,
        Iptables("-t nat -A PREROUTING -d {server} -j REDIRECT"),
    ),
    case(
        PodToVip,
        NODE,
        Iptables("-t nat -A PREROUTING -p {proto} -d {server} -j REDIRECT --to-ports 8080"),
    ),
    case(
        PodToVip,
        REFUSED,
        Iptables("-t nat -A PREROUTING -p {proto} -d {server} -j REDIRECT --to-ports 82"),
    ),
    case(
        ClientToVip,
        POD1,
        Iptables("-t nat -A PREROUTING -d {services} -j DNAT --to-destination {pod1}"),
    ),
    case(
        NodeToVip,
        POD3,
        Iptables("-t nat -A OUTPUT -d {server} -j DNAT --to-destination {pod3}"),
    ),
    case(
        PodToVip,
        LOST,
        Iptables(
            "-t nat -A PREROUTING -d {server} -j DNAT --to-destination {pod4}\n-A FORWARD -m conntrack --ctstate DNAT -j DROP",
        ),
    ),
    case(
        PodToVip,
        POD4,
        Iptables(
            "-t nat -A PREROUTING -d {server} -j DNAT --to-destination {pod4}\n-P FORWARD DROP\n-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT",
        ),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-t nat -A POSTROUTING -o eth0 -j MASQUERADE"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-t nat -A POSTROUTING -o eth0 -j SNAT --to-source {node}"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables(
            "-t raw -A PREROUTING -d {server} -j NOTRACK\n-A FORWARD -m conntrack --ctstate UNTRACKED -j DROP",
        ),
    ),
    case(
        PodToVip,
        LOST,
        Iptables(
            "-t raw -A PREROUTING -d {server} -j CT --notrack\n-t nat -A PREROUTING -d {server} -j DNAT --to-destination {pod4}",
        ),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -j LOG\n-A FORWARD -j NFLOG\n-t raw -A PREROUTING -j TRACE"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-t mangle -A FORWARD -p {proto} -j CHECKSUM --checksum-fill"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -j NFQUEUE --queue-num 9"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -j NFQUEUE --queue-num 9 --queue-bypass"),
    ),
    case(
        NodeToPod,
        POD3,
        Iptables("-t mangle -A OUTPUT -j MARK --set-mark 0x9"),
    ),
];

const OF_TCP: &[Case] = &[
    case(
        PodToPod,
        REFUSED,
        Iptables("-A FORWARD -p tcp --dport 8080 -j REJECT --reject-with tcp-reset"),
    ),
    case(PodToPod, LOST, Iptables("-A FORWARD -p tcp --syn -j DROP")),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p tcp --tcp-flags SYN,ACK SYN,ACK -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -p tcp --tcp-flags FIN,RST FIN -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p tcp ! --tcp-flags FIN,RST FIN -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables(
            "-t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
        ),
    ),
    case(
        NodeToPod,
        LOST,
        Iptables("-A OUTPUT -p tcp --dport 8080 -j DROP"),
    ),
    case(PodToPod, POD3, Iptables("-A FORWARD -p udp -j DROP")),
];

/// Both families have the match `icmp`, by another name, and few have the match of a field of one family only.
const OF_IPV4: &[Case] = &[
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m u32 --u32 0=1 -j DROP"),
    ),
    doubtful(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -m ttl --ttl-lt 5 -j DROP"),
    ),
    doubtful(
        PodToVip,
        LOST,
        Iptables("-t nat -A PREROUTING -d {server} -j NETMAP --to {pods2}"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -p icmp --icmp-type echo-request -j DROP"),
    ),
    case(PodToPod, POD3, Iptables("-A FORWARD -f -j DROP")),
    case(PodToPod, LOST, Iptables("-A FORWARD ! -f -j DROP")),
];

#[test]
fn iptables_match_matches_as_predicted() -> Result<()> {
    isolated(
        "packet_path::iptables::iptables_match_matches_as_predicted",
        |lab| check(lab, MATCHES, &Family::BOTH, &BOTH),
    )
}

#[test]
fn iptables_unknown_match_is_said() -> Result<()> {
    isolated(
        "packet_path::iptables::iptables_unknown_match_is_said",
        |lab| check(lab, UNKNOWN, &Family::BOTH, &BOTH),
    )
}

#[test]
fn iptables_legacy_rules_are_said() -> Result<()> {
    isolated(
        "packet_path::iptables::iptables_legacy_rules_are_said",
        |lab| {
            for (program, family) in [
                ("iptables-legacy", Family::V4),
                ("ip6tables-legacy", Family::V6),
            ] {
                let drops = case(PodToPod, LOST, Iptables(""));
                let said = |lab: &Lab| {
                    let server = lab.pod3.host.socket(family, 80);
                    let (first, _) =
                        walks(lab, &drops, server, Protocol::Tcp, OwnVerdict::Untouched)?;
                    let is_legacy = |doubt: &Doubt| doubt.condition.contains("iptables-legacy");
                    Ok::<_, LabError>(first.doubts.iter().filter(|doubt| is_legacy(doubt)).count())
                };
                let before = said(lab)?;
                lab.node.exec(&[program, "-A", "FORWARD", "-j", "DROP"])?;
                assert_eq!(said(lab)?, before + 1, "{program}");
            }
            Ok(())
        },
    )
}

#[test]
fn iptables_target_does_what_is_predicted() -> Result<()> {
    isolated(
        "packet_path::iptables::iptables_target_does_what_is_predicted",
        |lab| check(lab, TARGETS, &Family::BOTH, &BOTH),
    )
}

const OF_SCTP: &[Case] = &[
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p sctp --dport 8080 -j DROP"),
    ),
    case(
        PodToPod,
        POD3,
        Iptables("-A FORWARD -p sctp --dport 81 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p sctp -m sctp ! --sport 8080 --dport 8000:8090 -j DROP"),
    ),
    case(
        PodToPod,
        LOST,
        Iptables("-A FORWARD -p sctp -m multiport --dports 8080 -j DROP"),
    ),
    case(
        PodToVip,
        POD4,
        Iptables("-t nat -A PREROUTING -p sctp -d {server} -j DNAT --to-destination {pod4}"),
    ),
];

#[test]
fn iptables_rule_of_sctp_ends_packets_as_predicted() -> Result<()> {
    isolated(
        "packet_path::iptables::iptables_rule_of_sctp_ends_packets_as_predicted",
        |lab| check(lab, OF_SCTP, &Family::BOTH, &[Protocol::Sctp]),
    )
}

#[test]
fn iptables_rule_of_tcp_ends_packets_as_predicted() -> Result<()> {
    isolated(
        "packet_path::iptables::iptables_rule_of_tcp_ends_packets_as_predicted",
        |lab| {
            check(lab, OF_TCP, &Family::BOTH, &[Protocol::Tcp])?;
            check(lab, OF_IPV4, &[Family::V4], &BOTH)
        },
    )
}
