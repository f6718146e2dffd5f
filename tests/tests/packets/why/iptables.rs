//! Rules of iptables-nft of other programs.

use contiv_tests::lab::{Result, isolated};

use super::{
    fault::{Fault, Machine, fault},
    group::run_group,
    scene::Scene,
};

const WEB: &str = "10.96.0.80:80/tcp";
const WEB6: &str = "[fd00:10:96::80]:80/tcp";
const NODE_PORT: &str = "172.31.0.1:30080/tcp";

const STOPS: &[&str] = &["rule-drops"];
const REJECTS: &[&str] = &["rule-rejects"];
const QUEUES: &[&str] = &["rule-queues"];
const ANSWERS: &[&str] = &["rule-stops-answer"];
const TRANSLATES: &[&str] = &["rule-translates"];
const MAY_STOP: &[&str] = &["rule-unclear", "rule-drops"];

/// A fault: what is wrong, who connects to what, the codes, what an expert says, and the rules.
type Declared = (
    &'static str,
    Machine,
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const FAULTS: [Declared; 25] = [
    (
        "dropped in FORWARD",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of FORWARD drops packets to the backend",
        &["-A FORWARD -d 10.244.2.10 -j DROP"],
    ),
    (
        "dropped in FORWARD (IPv6)",
        Machine::Pod2,
        WEB6,
        STOPS,
        "a rule of FORWARD drops packets to the backend",
        &["6 -A FORWARD -d fd00:10:244:2::10 -p tcp --dport 8080 -j DROP"],
    ),
    (
        "policy DROP of FORWARD, as Docker sets it",
        Machine::Client,
        NODE_PORT,
        STOPS,
        "the policy of FORWARD is DROP, as Docker sets it, and no rule accepts services",
        &[
            "-P FORWARD DROP",
            "-N DOCKER-USER",
            "-A FORWARD -j DOCKER-USER",
            "-A DOCKER-USER -j RETURN",
            "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            "-A FORWARD -i docker0 -j ACCEPT",
        ],
    ),
    (
        "refused in INPUT",
        Machine::Client,
        "192.0.2.82:80/tcp",
        REJECTS,
        "the last rule of INPUT refuses what is not open",
        &[
            "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            "-A INPUT -i lo -j ACCEPT",
            "-A INPUT -p tcp -m conntrack --ctstate NEW -m tcp --dport 22 -j ACCEPT",
            "-A INPUT -p tcp -j REJECT --reject-with icmp-host-prohibited",
        ],
    ),
    (
        "dropped in mangle",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of mangle PREROUTING drops packets to cluster IPs",
        &["-t mangle -A PREROUTING -d 10.96.0.0/16 -j DROP"],
    ),
    (
        "dropped in raw",
        Machine::Client,
        NODE_PORT,
        STOPS,
        "a rule of raw PREROUTING drops packets to node ports",
        &["-t raw -A PREROUTING -p tcp --dport 30000:32767 -j DROP"],
    ),
    (
        "dropped by multiport",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of FORWARD drops port 8080",
        &["-A FORWARD -p tcp -m multiport --dports 8000,8080:8090 -j DROP"],
    ),
    (
        "dropped by iprange",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of FORWARD drops packets of 10.244.1.5 to 10.244.1.50",
        &["-A FORWARD -m iprange --src-range 10.244.1.5-10.244.1.50 -j DROP"],
    ),
    (
        "dropped by a mark",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule marks packets of pods, and another one drops packets with the mark",
        &[
            "-t mangle -A PREROUTING -s 10.244.1.0/24 -j MARK --set-xmark 0x10/0x10",
            "-A FORWARD -m mark --mark 0x10/0x10 -j DROP",
        ],
    ),
    (
        "dropped by addrtype",
        Machine::Client,
        NODE_PORT,
        STOPS,
        "a rule of mangle PREROUTING drops packets to local addresses",
        &["-t mangle -A PREROUTING -p tcp --dport 30080 -m addrtype --dst-type LOCAL -j DROP"],
    ),
    (
        "refused in OUTPUT",
        Machine::Node,
        WEB,
        REJECTS,
        "a rule of OUTPUT refuses packets to pods",
        &["-A OUTPUT -d 10.244.0.0/16 -p tcp -j REJECT --reject-with tcp-reset"],
    ),
    (
        "dropped in POSTROUTING of mangle",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of mangle POSTROUTING drops what leaves by eth0",
        &["-t mangle -A POSTROUTING -o eth0 -p tcp --dport 8080 -j DROP"],
    ),
    (
        "dropped with a negated address",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of FORWARD drops all clients but 172.31.0.0/24",
        &["-A FORWARD ! -s 172.31.0.0/24 -p tcp --dport 8080 -j DROP"],
    ),
    (
        "dropped as a SYN",
        Machine::Pod2,
        WEB,
        STOPS,
        "a rule of FORWARD drops new connections",
        &["-A FORWARD -p tcp --syn -j DROP"],
    ),
    (
        "dropped in a chain of a firewall",
        Machine::Pod2,
        WEB,
        STOPS,
        "the chain deny drops port 8080",
        &[
            "-N zone",
            "-N deny",
            "-A FORWARD -i pod+ -j zone",
            "-A zone -m comment --comment 'no web' -p tcp --dport 8080 -g deny",
            "-A deny -j DROP",
        ],
    ),
    (
        "queued without a program",
        Machine::Pod2,
        WEB,
        QUEUES,
        "a rule of FORWARD queues it for a program that does not run",
        &["-A FORWARD -p tcp --dport 8080 -j NFQUEUE --queue-num 3"],
    ),
    (
        "not tracked",
        Machine::Pod2,
        WEB,
        &["rule-untracks"],
        "a rule of raw PREROUTING keeps conntrack from seeing it",
        &["-t raw -A PREROUTING -d 10.96.0.0/16 -j CT --notrack"],
    ),
    (
        "translated first",
        Machine::Client,
        NODE_PORT,
        TRANSLATES,
        "a rule of nat PREROUTING, such as one for a host port, translates the node port first",
        &[
            "-t nat -N DOCKER",
            "-t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
            "-t nat -A DOCKER -p tcp --dport 30080 -j DNAT --to-destination 10.244.2.77:80",
        ],
    ),
    (
        "redirected first",
        Machine::Pod2,
        WEB,
        TRANSLATES,
        "a rule of nat PREROUTING redirects port 80 to a port where nobody listens",
        &["-t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 9"],
    ),
    (
        "answers dropped in FORWARD",
        Machine::Pod2,
        WEB,
        ANSWERS,
        "a rule of FORWARD drops the answers",
        &["-A FORWARD -p tcp --sport 8080 -j DROP"],
    ),
    (
        "answers of established connections dropped",
        Machine::Pod2,
        WEB,
        ANSWERS,
        "a rule of FORWARD drops what is established",
        &["-A FORWARD -m conntrack --ctstate ESTABLISHED -d 10.244.1.11 -j DROP"],
    ),
    (
        "policy DROP of FORWARD for answers",
        Machine::Pod2,
        WEB,
        ANSWERS,
        "the policy of FORWARD is DROP, and only what comes from pods is accepted",
        &["-P FORWARD DROP", "-A FORWARD -i pod2 -j ACCEPT"],
    ),
    (
        "dropped by a user's rule",
        Machine::Node,
        WEB,
        MAY_STOP,
        "a rule of OUTPUT drops what processes of root send",
        &["-A OUTPUT -p tcp --dport 8080 -m owner --uid-owner 0 -j DROP"],
    ),
    (
        "dropped at random, always",
        Machine::Pod2,
        WEB,
        MAY_STOP,
        "a rule of FORWARD drops at random, with a probability of 1",
        &["-A FORWARD -p tcp --dport 8080 -m statistic --mode random --probability 1.0 -j DROP"],
    ),
    (
        "dropped by u32",
        Machine::Pod2,
        WEB,
        MAY_STOP,
        "a rule of FORWARD drops by a match that cannot be evaluated",
        &["-A FORWARD -m u32 --u32 '6&0xFF=6' -j DROP"],
    ),
];

#[test]
fn rules_of_iptables_are_named() -> Result<()> {
    isolated("why::iptables::rules_of_iptables_are_named", |lab| {
        let mut scene = Scene::start(lab, &[])?;
        let declared = |(name, from, to, codes, expert, lines): Declared| {
            fault(name, from, to, codes, expert).iptables(lines)
        };
        let faults: Vec<Fault> = FAULTS.into_iter().map(declared).collect();
        run_group("rules of iptables", &mut scene, &faults)
    })
}

/// Ends a fault of iptables-legacy.
const FLUSH_LEGACY: &str = "for table in filter nat mangle; do iptables-legacy -t $table -F; done; iptables-legacy -P FORWARD ACCEPT";

#[test]
fn rules_of_iptables_legacy_are_named_as_unknown() -> Result<()> {
    isolated(
        "why::iptables::rules_of_iptables_legacy_are_named_as_unknown",
        |lab| {
            let mut scene = Scene::start(lab, &[])?;
            let legacy = |name, from, to, expert, script: &str| {
                fault(name, from, to, &["rule-unclear"], expert).shell(
                    Machine::Node,
                    script,
                    FLUSH_LEGACY,
                )
            };
            let faults = [
                legacy(
                    "dropped in FORWARD of iptables-legacy",
                    Machine::Pod2,
                    WEB,
                    "a rule of iptables-legacy drops packets to the backend",
                    "iptables-legacy -A FORWARD -d 10.244.2.10 -j DROP",
                ),
                legacy(
                    "refused by the policy of iptables-legacy",
                    Machine::Client,
                    NODE_PORT,
                    "the policy of FORWARD of iptables-legacy is DROP",
                    "iptables-legacy -P FORWARD DROP",
                ),
                legacy(
                    "dropped in PREROUTING of iptables-legacy",
                    Machine::Pod2,
                    WEB,
                    "a rule of mangle PREROUTING of iptables-legacy drops packets to cluster IPs",
                    "iptables-legacy -t mangle -A PREROUTING -d 10.96.0.0/16 -j DROP",
                ),
            ];
            run_group("rules of iptables-legacy", &mut scene, &faults)
        },
    )
}
