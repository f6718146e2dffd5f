//! Rules, connections, and what becomes of them.

use contiv_tests::lab::{Family, Lab, Namespace, Protocol, ranges};

/// The address that no host has, in the range of services.
const VIP_OFFSET: u8 = 77;

/// Who connects to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// A pod of the node to one of the other node.
    PodToPod,
    /// A pod of the node to an address that no host has.
    PodToVip,
    /// An external client to the node.
    ClientToNode,
    /// An external client to an address that no host has.
    ClientToVip,
    /// The node to a pod of the other node.
    NodeToPod,
    /// The node to an address that no host has.
    NodeToVip,
    /// The node to itself.
    NodeToNode,
}

/// What becomes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This host answers.
    By(&'static str),
    /// An error comes back.
    Refused,
    /// Nothing comes back.
    Lost,
}

/// How rules are loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rules {
    /// In one chain of an nftables table: the kind of chain, and its rules.
    Chain(&'static str, &'static str),
    /// A file for `nft -f`.
    File(&'static str),
    /// Commands of iptables, without the first word, one a line.
    Iptables(&'static str),
}

/// Rules, a connection, and its outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) rules: Rules,
    /// Placeholders of the rules, and their content.
    pub(crate) words: &'static [(&'static str, &'static str)],
    pub(crate) flow: Flow,
    pub(crate) outcome: &'static Outcome,
    /// Rules may do harm, and it cannot be said whether they do.
    pub(crate) has_doubts: bool,
}

pub(crate) const LOST: &Outcome = &Outcome::Lost;
pub(crate) const REFUSED: &Outcome = &Outcome::Refused;
pub(crate) const POD1: &Outcome = &Outcome::By("pod1");
pub(crate) const POD3: &Outcome = &Outcome::By("pod3");
pub(crate) const POD4: &Outcome = &Outcome::By("pod4");
pub(crate) const NODE: &Outcome = &Outcome::By("node");

pub(crate) const fn case(flow: Flow, outcome: &'static Outcome, rules: Rules) -> Case {
    Case {
        rules,
        words: &[],
        flow,
        outcome,
        has_doubts: false,
    }
}

/// One whose rules cannot be evaluated.
pub(crate) const fn doubtful(flow: Flow, outcome: &'static Outcome, rules: Rules) -> Case {
    Case {
        rules,
        words: &[],
        flow,
        outcome,
        has_doubts: true,
    }
}

impl Flow {
    /// The client.
    pub(crate) const fn client(self, lab: &Lab) -> &Namespace {
        match self {
            Self::PodToPod | Self::PodToVip => &lab.pod2,
            Self::ClientToNode | Self::ClientToVip => &lab.client,
            Self::NodeToPod | Self::NodeToVip | Self::NodeToNode => &lab.node,
        }
    }

    /// The interface of the node by which the first packet comes in.
    pub(crate) const fn input(self) -> Option<&'static str> {
        match self {
            Self::PodToPod | Self::PodToVip => Some("pod2"),
            Self::ClientToNode | Self::ClientToVip => Some("eth0"),
            Self::NodeToPod | Self::NodeToVip | Self::NodeToNode => None,
        }
    }

    /// The address that the client connects to.
    pub(crate) fn server(self, lab: &Lab, family: Family) -> std::net::IpAddr {
        match self {
            Self::PodToPod | Self::NodeToPod => lab.pod3.host.address(family),
            Self::PodToVip | Self::ClientToVip | Self::NodeToVip => {
                ranges::SERVICES.address(family, VIP_OFFSET)
            }
            Self::ClientToNode | Self::NodeToNode => lab.node.host.address(family),
        }
    }
}

impl Case {
    /// The same with other words in the rules.
    pub(crate) const fn with(self, words: &'static [(&'static str, &'static str)]) -> Self {
        Self { words, ..self }
    }

    /// The rules as text for one family.
    pub(crate) fn text(&self, lab: &Lab, family: Family, protocol: Protocol) -> String {
        let flow = self.flow;
        let text = match self.rules {
            Rules::Chain(kind, rules) => {
                let chain = match kind {
                    "raw" => "type filter hook prerouting priority -300",
                    "raw-output" => "type filter hook output priority -300",
                    "mangle" => "type filter hook prerouting priority -150",
                    "dnat" => "type nat hook prerouting priority -100",
                    "dnat-output" => "type nat hook output priority -100",
                    "snat" => "type nat hook postrouting priority 100",
                    "route" => "type route hook output priority -150",
                    "ingress" => "type filter hook ingress device \"pod2\" priority 0",
                    hook => &format!("type filter hook {hook} priority 0"),
                };
                let table = if kind == "ingress" { "netdev" } else { "inet" };
                format!("table {table} t {{ chain c {{ {chain};\n{rules}\n}}\n}}")
            }
            Rules::File(text) | Rules::Iptables(text) => text.to_owned(),
        };
        let text = (self.words.iter()).fold(text, |text, (name, word)| text.replace(name, word));
        let is_v4 = family == Family::V4;
        let pair = |v4: &str, v6: &str| if is_v4 { v4 } else { v6 }.to_owned();
        let number = match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        let address = |host: &contiv_tests::lab::Host| host.address(family).to_string();
        let bracketed = |host: &contiv_tests::lab::Host| {
            let address = address(host);
            pair(&address, &format!("[{address}]"))
        };
        let of_client = flow.client(lab).host;
        [
            ("{ip}", pair("ip", "ip6")),
            ("{addr}", pair("ipv4_addr", "ipv6_addr")),
            ("{server}", flow.server(lab, family).to_string()),
            ("{client}", address(of_client)),
            ("{pod1}", address(lab.pod1.host)),
            ("{pod2}", address(lab.pod2.host)),
            ("{pod3}", address(lab.pod3.host)),
            ("{pod4}", address(lab.pod4.host)),
            ("{node}", address(lab.node.host)),
            ("{pod1:}", bracketed(lab.pod1.host)),
            ("{pod3:}", bracketed(lab.pod3.host)),
            ("{pod4:}", bracketed(lab.pod4.host)),
            ("{pods2}", ranges::PODS2.cidr(family)),
            ("{services}", ranges::SERVICES.cidr(family)),
            ("{pods}", ranges::PODS.cidr(family)),
            ("{odd}", pair("10.244.0.0/14", "fd00:10:240::/44")),
            ("{proto}", number.to_owned()),
        ]
        .into_iter()
        .fold(text, |text, (name, value)| text.replace(name, &value))
        // The end of a block needs the end of a line.
        .replace("} }", "}\n}")
    }
}
