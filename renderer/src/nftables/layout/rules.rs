//! The rules that are always the same, in the order of `skeleton.nft`, which is written from them.

use std::{borrow::Cow, sync::LazyLock};

use contiv_model::Protocol;
use ipnetwork::IpNetwork;

use super::{
    Family, Field, Hook, Set, SetKind,
    hook::{OUTPUT, POSTROUTING, PREROUTING, PRIORITY_DSTNAT, PRIORITY_FILTER, PRIORITY_SRCNAT},
    rule::{
        Comparison::{Is, IsNot},
        Constant, Flag, Key, Rule,
        Statement::{
            self, Accept, DnatToPort, Drop, Goto, Jump, Masquerade, Match, MatchAny,
            MatchProtocols, MatchSet, Record, Reject, RejectWithTcpReset, SetPriority, Snat,
            SnatByMap, Vmap,
        },
    },
};

/// The name of a chain that exists once per family.
macro_rules! named {
    ($family:expr, $stem:literal) => {
        match $family {
            Family::V4 => concat!($stem, "-v4"),
            Family::V6 => concat!($stem, "-v6"),
        }
    };
}
pub(super) use named;

/// A chain that is always there.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    /// Its purpose.
    pub(super) comment: &'static str,
    /// None for a chain that others jump to.
    pub(crate) hook: Option<Hook>,
    /// Those of a node whose pods have no range, or several. [`Chain::rules_for`] has those of others, which decide the same.
    pub(crate) rules: Vec<Rule>,
}

impl Chain {
    /// The rules on a node whose pods have these ranges.
    pub(crate) fn rules_for(&self, pods: PodRanges) -> Cow<'_, [Rule]> {
        match self
            .family_of_pods()
            .map(|family| (family, pods.of(family)))
        {
            Some((family, range @ Some(_))) => Cow::Owned(masquerade_rules(family, range)),
            _ => Cow::Borrowed(&self.rules),
        }
    }

    /// The family of the ranges of pods on which its rules depend.
    pub(super) fn family_of_pods(&self) -> Option<Family> {
        Family::ALL
            .into_iter()
            .find(|family| self.name == named!(family, "masquerade"))
    }
}

/// The range of this node's pods in each family, if it is the only one whose clients keep their address: then rules compare
/// addresses with it, which takes a seventh of the time of looking them up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PodRanges {
    v4: Option<IpNetwork>,
    v6: Option<IpNetwork>,
}

impl PodRanges {
    /// From the elements of the sets `no-masquerade`.
    pub(crate) fn new(ranges: &[IpNetwork]) -> Self {
        let only = |family| {
            let mut of_family = ranges
                .iter()
                .filter(|range| Family::of(&range.ip()) == family);
            match (of_family.next(), of_family.next()) {
                // All clients keep their address with the prefix 0.
                (Some(range), None) if range.prefix() > 0 => Some(*range),
                _ => None,
            }
        };
        Self {
            v4: only(Family::V4),
            v6: only(Family::V6),
        }
    }

    const fn of(self, family: Family) -> Option<IpNetwork> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

/// The chains that are always there.
pub(crate) fn chains() -> &'static [Chain] {
    static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
        let (v4, v6) = (family_chains(Family::V4), family_chains(Family::V6));
        [reject_now()]
            .into_iter()
            .chain(v4)
            .chain(v6)
            .chain(shared_chains())
            .collect()
    });
    &CHAINS
}

/// A rule, with the reason for it.
pub(super) fn rule(reason: &'static str, parts: impl IntoIterator<Item = Vec<Statement>>) -> Rule {
    Rule {
        reason,
        statements: parts.into_iter().flatten().collect(),
    }
}

fn reject_now() -> Chain {
    let is = |protocol| Match(Field::L4Proto, Is, Constant::Protocol(protocol));
    let to_itself = for_each(
        "A datagram of this node to itself goes to port 0, which nobody can have: so its sender gets the same \
         error as others, while with a reject where it leaves `send` would fail as forbidden.",
        |family| {
            vec![
                of(family),
                is(Protocol::Udp),
                Match(Field::OutputInterface, Is, Constant::Interface("lo")),
                DnatToPort(family, 0),
            ]
        },
    );
    let others = [
        rule(
            "A connection attempt from before the rules is not translated until conntrack forgets it, \
             within moments: its client tries again, and must not get an error.",
            [vec![
                is(Protocol::Tcp),
                MatchAny(&[Flag::StatusConfirmed]),
                Drop,
            ]],
        ),
        rule(
            "TCP clients expect a reset from a closed port.",
            [vec![is(Protocol::Tcp), RejectWithTcpReset]],
        ),
        rule("All others get an ICMP error.", [vec![Reject]]),
    ];
    Chain {
        name: "reject-now",
        comment: "Rejects a packet with an error for its client.",
        hook: None,
        rules: to_itself.into_iter().chain(others).collect(),
    }
}

/// The chains that exist once per family.
fn family_chains(family: Family) -> Vec<Chain> {
    [
        choose(family),
        refuse(family),
        masquerade(family),
        guard(family),
        learn(family),
    ]
    .concat()
}

/// Choosing a backend, or refusing what has none.
fn choose(family: Family) -> Vec<Chain> {
    let [frontend, node_port] = [false, true].map(|node_port| frontend(family, node_port));
    let daddr = vec![Field::Daddr(family)];
    let pick = |key: &Key| goto_numbered(family, key, SetKind::Services, SetKind::PickChains);
    let refused = |key: &Key, node_port| {
        let refuse = |refusal: Refusal| Goto(refusal.chain(family, node_port));
        [
            rule(
                "It has no backend on any node.",
                [vec![
                    is_in(family, key, SetKind::NoEndpoints),
                    refuse(Refusal::NoEndpoints),
                ]],
            ),
            rule(
                "It has backends on other nodes, but the policy allows only backends of this one.",
                [vec![
                    is_in(family, key, SetKind::NoLocalEndpoints),
                    refuse(Refusal::Policy),
                ]],
            ),
        ]
    };
    let left = [
        rule(
            "Routes lead to the backends; without this rule its cluster IP would be dropped as unknown.",
            [vec![
                is_in(family, &frontend, SetKind::RoutedFrontends),
                Accept,
            ]],
        ),
        to_node_ports(
            family,
            "It may be a node port.",
            &daddr,
            named!(family, "check-node-ports"),
        ),
    ];
    vec![
        plain(
            named!(family, "services"),
            "Selects the backend of a new connection; reached from nat prerouting and output.",
            vec![
                rule(
                    "The number of slots leads to a chain that selects one of them. Between the two maps \
                     it is the packet's priority, since nft up to 1.0.6 cannot list a lookup by the result \
                     of another map.",
                    [pick(&frontend)],
                ),
                to_node_ports(
                    family,
                    "No service has the address: it may be a node port.",
                    &daddr,
                    named!(family, "node-ports"),
                ),
            ],
        ),
        plain(
            named!(family, "node-ports"),
            "The same for node ports.",
            vec![rule(
                "One element serves all addresses of the node.",
                [pick(&node_port)],
            )],
        ),
        plain(
            named!(family, "check"),
            "Refuses connections without a backend; reached from refuse-prerouting and refuse-output.",
            refused(&frontend, false).into_iter().chain(left).collect(),
        ),
        plain(
            named!(family, "check-node-ports"),
            "The same for node ports.",
            refused(&node_port, true).into(),
        ),
    ]
}

/// Why an attempt is refused.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    NoEndpoints,
    Policy,
    SourceRanges,
}

impl Refusal {
    const ALL: [Self; 3] = [Self::NoEndpoints, Self::Policy, Self::SourceRanges];

    /// The chain that counts the attempt and refuses it.
    pub(super) const fn chain(self, family: Family, node_port: bool) -> &'static str {
        match (self, node_port) {
            (Self::NoEndpoints, false) => named!(family, "no-endpoints"),
            (Self::NoEndpoints, true) => named!(family, "no-endpoints-node-port"),
            (Self::Policy, false) => named!(family, "no-local-endpoints"),
            (Self::Policy, true) => named!(family, "no-local-endpoints-node-port"),
            (Self::SourceRanges, false) => named!(family, "no-source-range"),
            (Self::SourceRanges, true) => named!(family, "no-source-range-node-port"),
        }
    }

    /// The set that counts the attempts of each frontend.
    const fn tally(self) -> SetKind {
        match self {
            Self::NoEndpoints => SetKind::RefusedNoEndpoints,
            Self::Policy => SetKind::RefusedPolicy,
            Self::SourceRanges => SetKind::RefusedSourceRanges,
        }
    }

    const fn comment(self) -> &'static str {
        match self {
            Self::NoEndpoints => "Rejects an attempt since there is no backend, and counts it.",
            Self::Policy => "Drops an attempt since no backend is on this node, and counts it.",
            Self::SourceRanges => {
                "Drops an attempt since its client is in no source range, and counts it."
            }
        }
    }

    const fn verdict(self) -> Statement {
        match self {
            Self::NoEndpoints => Goto("reject-now"),
            Self::Policy | Self::SourceRanges => Drop,
        }
    }
}

/// Refusing attempts, each counted once.
fn refuse(family: Family) -> Vec<Chain> {
    let record = |kind, key: &Key| Record(Set::new(kind, family), key.clone());
    let mut attempt = frontend(family, false);
    attempt.extend([Field::Saddr(family), Field::Sport]);
    let remember = || record(SetKind::RefusedClients, &attempt);
    let chain = |refusal: Refusal, node_port| {
        let repeated = vec![
            is_in(family, &attempt, SetKind::RefusedClients),
            remember(),
            refusal.verdict(),
        ];
        let counted = vec![
            record(refusal.tally(), &frontend(family, node_port)),
            remember(),
        ];
        plain(
            refusal.chain(family, node_port),
            if node_port {
                "The same for node ports."
            } else {
                refusal.comment()
            },
            vec![
                rule(
                    "The client repeats an attempt that was counted.",
                    [repeated],
                ),
                rule(
                    "An attempt; if a set is full the rule ends, and no packet is let in.",
                    [counted],
                ),
                rule("Refuses it.", [vec![refusal.verdict()]]),
            ],
        )
    };
    Refusal::ALL
        .into_iter()
        .flat_map(|refusal| [false, true].map(|node_port| chain(refusal, node_port)))
        .collect()
}

/// Masquerades connections: to hide the source from the backend, or from destinations outside the cluster.
fn masquerade(family: Family) -> Vec<Chain> {
    let [frontend, node_port] = [false, true].map(|node_port| original_frontend(family, node_port));
    let (daddr, saddr) = (vec![Field::Daddr(family)], vec![Field::Saddr(family)]);
    let (original_daddr, interface) = (
        vec![Field::OriginalDaddr(family)],
        vec![Field::InputInterface],
    );
    let masquerade_now = Goto(named!(family, "masquerade-now"));
    let always = |key: &Key| {
        let then = vec![
            MatchProtocols,
            is_in(family, key, SetKind::MasqueradeAlways),
            masquerade_now.clone(),
        ];
        rule(
            "With policy Cluster the backend may be on another node.",
            [then],
        )
    };
    let local = |reason, key: &Key| {
        let then = vec![
            MatchProtocols,
            is_in(family, key, SetKind::MasqueradeLocal),
            masquerade_now.clone(),
        ];
        rule(reason, [from_node(family), then])
    };
    vec![
        plain(
            named!(family, "masquerade"),
            "Decides by the connection's original destination whether it is masqueraded. Where the pods of the node have one \
             range, the rules compare addresses with it: a connection from it to elsewhere is accepted first, and the lookup \
             in no-masquerade is a comparison.",
            masquerade_rules(family, None),
        ),
        plain(
            named!(family, "masquerade-external"),
            "The same for destinations that are no cluster IP.",
            vec![
                always(&frontend),
                to_node_ports(
                    family,
                    "It may have been a node port.",
                    &original_daddr,
                    named!(family, "masquerade-node-ports"),
                ),
                local(
                    "With policy Local clients keep their address, except this node itself.",
                    &frontend,
                ),
            ],
        ),
        plain(
            named!(family, "masquerade-node-ports"),
            "The same for an address of the node: for node ports, and for external addresses that the node \
             has.",
            vec![
                always(&node_port),
                local(
                    "An external address that the node has, with policy Local.",
                    &frontend,
                ),
                local("A node port with policy Local.", &node_port),
            ],
        ),
        plain(
            named!(family, "masquerade-egress"),
            "Masquerades connections of this node's pods out of the cluster, after destinations are \
             translated.",
            vec![
                rule(
                    "The destination is in the cluster, or is reached without masquerading.",
                    [vec![
                        is_in(family, &daddr, SetKind::NonMasqueradeCidrs),
                        Accept,
                    ]],
                ),
                rule(
                    "Routes lead to backends in the cluster.",
                    [vec![is_in(family, &daddr, SetKind::Routed), Accept]],
                ),
                rule(
                    "Outside the cluster there is no route to the address of a pod.",
                    [vec![
                        is_in(family, &saddr, SetKind::Pods),
                        masquerade_now.clone(),
                    ]],
                ),
                rule(
                    "The same by interface.",
                    [vec![
                        is_in(family, &interface, SetKind::PodInterfaces),
                        masquerade_now.clone(),
                    ]],
                ),
            ],
        ),
        masquerade_now_chain(family),
    ]
}

/// The rules that decide whether a connection to a cluster IP is masqueraded. `pods` is the range of the node's pods, if they have one.
fn masquerade_rules(family: Family, pods: Option<IpNetwork>) -> Vec<Rule> {
    let (saddr, daddr) = (Field::Saddr(family), Field::Daddr(family));
    let masquerade_now = || Goto(named!(family, "masquerade-now"));
    let to_elsewhere = pods.map(Constant::Range).map(|pods| {
        rule(
            "The client is a pod of this node, and its backend is not.",
            [vec![
                Match(saddr, Is, pods),
                Match(daddr, IsNot, pods),
                Accept,
            ]],
        )
    });
    let is_no_pod = match pods {
        Some(pods) => Match(saddr, IsNot, Constant::Range(pods)),
        None => is_not_in(family, &vec![saddr], SetKind::NoMasquerade),
    };
    let others = [
        rule(
            "A pod that connects to itself would reply to itself directly.",
            [vec![
                is_in(family, &vec![saddr, daddr], SetKind::Hairpin),
                masquerade_now(),
            ]],
        ),
        rule(
            "The reply to a client that is no pod of this node may not return through this node.",
            [vec![
                is_no_pod,
                is_not_in(
                    family,
                    &vec![Field::InputInterface],
                    SetKind::NoMasqueradeInterfaces,
                ),
                is_in(
                    family,
                    &vec![Field::OriginalDaddr(family)],
                    SetKind::ClusterIps,
                ),
                masquerade_now(),
            ]],
        ),
    ];
    to_elsewhere.into_iter().chain(others).collect()
}

/// Masquerades a connection that other chains have decided to masquerade.
fn masquerade_now_chain(family: Family) -> Chain {
    plain(
        named!(family, "masquerade-now"),
        "Masquerades a connection.",
        vec![
            rule(
                "The node itself connects to its own backend: its source becomes what it is without a service, \
                 the address that it connects to. With any other one a UDP server answers from that one. Mostly \
                 nothing changes, so the port stays.",
                [vec![
                    Match(Field::OutputInterface, Is, Constant::Interface("lo")),
                    Snat(family, Field::Daddr(family)),
                ]],
            ),
            rule(
                "The kernel would choose another address here than that which the node is known by.",
                [vec![SnatByMap(
                    family,
                    Field::OutputInterface,
                    Set::new(SetKind::MasqueradeSources, family),
                )]],
            ),
            rule("An address of the interface.", [vec![Masquerade]]),
        ],
    )
}

/// Dropping what may not reach a service, before destinations are translated.
fn guard(family: Family) -> Vec<Chain> {
    let [frontend, node_port] = [false, true].map(|node_port| frontend(family, node_port));
    let daddr = vec![Field::Daddr(family)];
    let closed = |reason, key: &Key, kind| rule(reason, [vec![is_in(family, key, kind), Drop]]);
    let check_sources = |is_node_port| {
        let key = if is_node_port { &node_port } else { &frontend };
        let mut source = frontend_key(family, is_node_port, Field::CtProtocol);
        source.push(Field::Saddr(family));
        let allowed = is_not_in(family, &source, SetKind::SourceRanges);
        let refuse = Goto(Refusal::SourceRanges.chain(family, is_node_port));
        vec![is_in(family, key, SetKind::Restricted), allowed, refuse]
    };
    vec![
        plain(
            named!(family, "interfaces"),
            "Drops packets to services at interfaces where services do not answer; before destinations are \
             translated.",
            vec![
                closed("A cluster IP, on any port.", &daddr, SetKind::ClusterIps),
                closed(
                    "An external address with policy Cluster.",
                    &frontend,
                    SetKind::MasqueradeAlways,
                ),
                closed(
                    "An external address with policy Local.",
                    &frontend,
                    SetKind::MasqueradeLocal,
                ),
                to_node_ports(
                    family,
                    "It may be a node port.",
                    &daddr,
                    named!(family, "interfaces-node-ports"),
                ),
            ],
        ),
        plain(
            named!(family, "interfaces-node-ports"),
            "The same for node ports.",
            vec![
                closed(
                    "With policy Cluster.",
                    &node_port,
                    SetKind::MasqueradeAlways,
                ),
                closed("With policy Local.", &node_port, SetKind::MasqueradeLocal),
            ],
        ),
        plain(
            named!(family, "firewall"),
            "Restricts frontends with source ranges to these; before destinations are translated. The protocol \
             in the key of an interval set is conntrack's: for meta l4proto nft up to 1.0.6 adds a byte-order \
             conversion of its single byte, which hardened kernels refuse.",
            vec![
                rule(
                    "The frontend has ranges, and the client is in none.",
                    [check_sources(false)],
                ),
                rule(
                    "The same for a node port.",
                    [
                        vec![is_in(family, &daddr, SetKind::NodeIps)],
                        check_sources(true),
                    ],
                ),
            ],
        ),
    ]
}

/// Remembering which backend a client got.
fn learn(family: Family) -> Vec<Chain> {
    let [frontend, node_port] = [false, true].map(|node_port| original_frontend(family, node_port));
    let remember = |reason, key: &Key| {
        let then = goto_numbered(family, key, SetKind::Sticky, SetKind::LearnChains);
        rule(reason, [vec![MatchProtocols], then])
    };
    let was_node_port = "It may have been a node port.";
    let original_daddr = vec![Field::OriginalDaddr(family)];
    vec![
        plain(
            named!(family, "learn"),
            "Stores the backend of a client; after destinations are translated.",
            vec![
                remember("The timeout of the frontend leads to a chain.", &frontend),
                to_node_ports(
                    family,
                    was_node_port,
                    &original_daddr,
                    named!(family, "learn-node-ports"),
                ),
            ],
        ),
        plain(
            named!(family, "learn-node-ports"),
            "The same for node ports.",
            vec![remember(
                "One element serves all addresses of the node.",
                &node_port,
            )],
        ),
    ]
}

const fn plain(name: &'static str, comment: &'static str, rules: Vec<Rule>) -> Chain {
    Chain {
        name,
        comment,
        hook: None,
        rules,
    }
}

fn is_in(family: Family, key: &Key, kind: SetKind) -> Statement {
    MatchSet(key.clone(), Is, Set::new(kind, family))
}

fn is_not_in(family: Family, key: &Key, kind: SetKind) -> Statement {
    MatchSet(key.clone(), IsNot, Set::new(kind, family))
}

/// Goes to the chain whose number a map has for the key.
fn goto_numbered(family: Family, key: &Key, numbers: SetKind, chains: SetKind) -> Vec<Statement> {
    vec![
        SetPriority(key.clone(), Set::new(numbers, family)),
        Vmap(vec![Field::Priority], Set::new(chains, family)),
    ]
}

fn to_node_ports(family: Family, reason: &'static str, key: &Key, chain: &'static str) -> Rule {
    rule(
        reason,
        [vec![is_in(family, key, SetKind::NodeIps), Goto(chain)]],
    )
}

/// A rule for each family.
pub(super) fn for_each(
    reason: &'static str,
    statements: impl Fn(Family) -> Vec<Statement>,
) -> [Rule; 2] {
    let reason = |family| {
        if family == Family::V4 {
            reason
        } else {
            "The same for IPv6."
        }
    };
    Family::ALL.map(|family| rule(reason(family), [statements(family)]))
}

fn shared_chains() -> [Chain; 6] {
    let base = |name, comment, hook, rules| Chain {
        name,
        comment,
        hook: Some(hook),
        rules,
    };
    let new_connections = || {
        let reason =
            "The first packet of a connection; conntrack repeats the decision for all others.";
        for_each(reason, |family| {
            vec![of(family), Goto(named!(family, "services"))]
        })
        .into()
    };
    let refuse = || {
        let reason = "It may be for a service without a backend.";
        let checked = for_each(reason, |family| {
            vec![of(family), Jump(named!(family, "check"))]
        });
        let unknown = rule("It may be for no service.", [vec![Goto("unknown-port")]]);
        checked.into_iter().chain([unknown]).collect()
    };
    // This node itself knows its ports: an address of a service may be one of its own.
    let elsewhere = Match(Field::DaddrType, IsNot, Constant::Local);
    let to = |family, kind, then| {
        let daddr = vec![Field::Daddr(family)];
        vec![is_in(family, &daddr, kind), elsewhere.clone(), then]
    };
    let unknown_port = [
        for_each("The service has no such port.", |family| {
            to(family, SetKind::ClusterIps, Goto("reject-now"))
        }),
        for_each(
            "No service has the address: without the drop packets would leave by the default route, and \
             come back.",
            |family| to(family, SetKind::ServiceCidrs, Drop),
        ),
    ];
    let masquerade = for_each("Only translated connections.", |family| {
        vec![of(family), dnat(), Goto(named!(family, "masquerade"))]
    });
    [
        plain(
            "unknown-port",
            "Refuses packets to an address of a service, or of the service ranges, that belong to no \
             service.",
            unknown_port.concat(),
        ),
        base(
            "nat-prerouting",
            "New connections that this node receives.",
            Hook::nat(PREROUTING, PRIORITY_DSTNAT),
            new_connections(),
        ),
        base(
            "nat-output",
            "New connections of the node itself.",
            Hook::nat(OUTPUT, PRIORITY_DSTNAT),
            new_connections(),
        ),
        base(
            "nat-postrouting",
            "New connections on their way to backends.",
            Hook::nat(POSTROUTING, PRIORITY_SRCNAT),
            masquerade.into(),
        ),
        base(
            "refuse-prerouting",
            "New connections that this node receives, and no program has translated. As of type nat no packet \
             of an established connection passes it.",
            Hook::nat(PREROUTING, PRIORITY_FILTER),
            refuse(),
        ),
        base(
            "refuse-output",
            "The same for those of the node itself.",
            Hook::nat(OUTPUT, PRIORITY_FILTER),
            refuse(),
        ),
    ]
}

/// Matches packets of this family.
pub(super) const fn of(family: Family) -> Statement {
    Match(Field::Nfproto, Is, Constant::Family(family))
}

/// Matches new connections.
pub(super) const fn new() -> Statement {
    MatchAny(&[Flag::StateNew])
}

/// Matches packets with a translated destination.
pub(super) const fn dnat() -> Statement {
    MatchAny(&[Flag::StatusDnat])
}

/// The client is neither a pod of this node nor the node itself.
pub(super) fn from_external_client(family: Family) -> Vec<Statement> {
    vec![
        MatchSet(
            vec![Field::Saddr(family)],
            IsNot,
            Set::new(SetKind::Pods, family),
        ),
        MatchSet(
            vec![Field::InputInterface],
            IsNot,
            Set::new(SetKind::PodInterfaces, family),
        ),
        Match(Field::SaddrType, IsNot, Constant::Local),
    ]
}

/// The client is the node itself, and its address is not in a pod range.
fn from_node(family: Family) -> Vec<Statement> {
    vec![
        MatchSet(
            vec![Field::Saddr(family)],
            IsNot,
            Set::new(SetKind::Pods, family),
        ),
        Match(Field::SaddrType, Is, Constant::Local),
    ]
}

/// Address, protocol and port of the packet. A node port has the address of all addresses of the node.
pub(super) fn frontend(family: Family, node_port: bool) -> Key {
    frontend_key(family, node_port, Field::L4Proto)
}

fn frontend_key(family: Family, node_port: bool, protocol: Field) -> Key {
    let address = if node_port {
        Field::DaddrMasked(family)
    } else {
        Field::Daddr(family)
    };
    vec![address, protocol, Field::Dport]
}

/// The frontend that the connection's first packet was sent to.
pub(super) fn original_frontend(family: Family, node_port: bool) -> Key {
    let address = if node_port {
        Field::OriginalDaddrMasked(family)
    } else {
        Field::OriginalDaddr(family)
    };
    vec![address, Field::L4Proto, Field::OriginalDport]
}
