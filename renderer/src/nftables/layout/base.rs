//! Base chains: their hooks, and the chains that exist only while an element needs them.

use std::fmt;

use super::{
    Family, Field,
    hook::{
        BEFORE_DSTNAT, BEFORE_SRCNAT, Hook, INPUT, OUTPUT, POSTROUTING, PREROUTING, PRIORITY_SRCNAT,
    },
    rule::{
        Comparison::{Is, IsNot},
        Constant, Flag, Rule,
        Statement::{Drop, Goto, Match, MatchAny, MatchSet},
    },
    rules::{dnat, for_each, named, new, of},
    set::{Set, SetKind},
};

/// A base chain for features that many nodes do not use. Without need no packet passes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BaseChain {
    /// Protects loopback where node ports answer there.
    LoopbackPrerouting,
    /// Source ranges, for incoming packets.
    FirewallPrerouting,
    /// Source ranges, for packets of the node itself.
    FirewallOutput,
    /// Session affinity, for connections to backends in namespaces of their own and on other machines.
    LearnPostrouting,
    /// Session affinity, for connections from other machines to backends in the namespace of the node.
    LearnInput,
    /// Masquerades connections to frontends other than cluster IPs.
    ExternalPostrouting,
    /// Masquerades what pods of this node send out of the cluster.
    EgressPostrouting,
    /// Drops packets to services at interfaces where these do not answer.
    InterfacesPrerouting,
}

impl BaseChain {
    pub(crate) const ALL: [Self; 8] = [
        Self::LoopbackPrerouting,
        Self::FirewallPrerouting,
        Self::FirewallOutput,
        Self::LearnPostrouting,
        Self::LearnInput,
        Self::ExternalPostrouting,
        Self::EgressPostrouting,
        Self::InterfacesPrerouting,
    ];

    /// The sets whose elements need this chain.
    pub(crate) fn sets(self) -> impl Iterator<Item = Set> {
        let kinds: &[SetKind] = match self {
            Self::LoopbackPrerouting => &[SetKind::Loopback],
            Self::FirewallPrerouting | Self::FirewallOutput => &[SetKind::Restricted],
            Self::LearnPostrouting | Self::LearnInput => &[SetKind::Sticky],
            Self::ExternalPostrouting => &[SetKind::MasqueradeAlways, SetKind::MasqueradeLocal],
            Self::EgressPostrouting => &[SetKind::NonMasqueradeCidrs],
            Self::InterfacesPrerouting => &[SetKind::ServiceInterfaces],
        };
        kinds
            .iter()
            .flat_map(|kind| Family::ALL.map(|family| Set::new(*kind, family)))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::LoopbackPrerouting => "loopback-prerouting",
            Self::FirewallPrerouting => "firewall-prerouting",
            Self::FirewallOutput => "firewall-output",
            Self::LearnPostrouting => "learn-postrouting",
            Self::LearnInput => "learn-input",
            Self::ExternalPostrouting => "external-postrouting",
            Self::EgressPostrouting => "egress-postrouting",
            Self::InterfacesPrerouting => "interfaces-prerouting",
        }
    }

    /// The chain of this name; none if it is not the name of such a chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chain| chain.name() == name)
    }

    pub(super) const fn hook(self) -> Hook {
        match self {
            Self::LoopbackPrerouting | Self::FirewallPrerouting | Self::InterfacesPrerouting => {
                Hook::filter_at(PREROUTING, BEFORE_DSTNAT)
            }
            Self::FirewallOutput => Hook::filter_at(OUTPUT, BEFORE_DSTNAT),
            Self::LearnPostrouting => Hook::nat(POSTROUTING, BEFORE_SRCNAT),
            Self::LearnInput => Hook::nat(INPUT, BEFORE_SRCNAT),
            Self::ExternalPostrouting | Self::EgressPostrouting => {
                Hook::nat(POSTROUTING, PRIORITY_SRCNAT)
            }
        }
    }

    /// Its purpose.
    pub(super) const fn comment(self) -> &'static str {
        match self {
            Self::LoopbackPrerouting => "Protects loopback, where node ports answer there.",
            Self::FirewallPrerouting => "Source ranges, for packets that come in.",
            Self::FirewallOutput => "Source ranges, for packets of the node itself.",
            Self::LearnPostrouting => {
                "Session affinity, where connections leave for their backends."
            }
            Self::LearnInput => "Session affinity, for backends in the namespace of the node.",
            Self::ExternalPostrouting => "Connections to frontends other than cluster IPs.",
            Self::EgressPostrouting => "Connections of pods to outside the cluster.",
            Self::InterfacesPrerouting => "Packets at interfaces where services do not answer.",
        }
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        let rules = match self {
            Self::LoopbackPrerouting => for_each(
                "The kernel accepts packets to loopback from elsewhere once node ports answer there.",
                |family| {
                    vec![
                        MatchAny(&[Flag::StateInvalid, Flag::StateNew]),
                        MatchSet(
                            vec![Field::Daddr(family)],
                            Is,
                            Set::new(SetKind::Loopback, family),
                        ),
                        Match(Field::InputInterface, IsNot, Constant::Interface("lo")),
                        Drop,
                    ]
                },
            ),
            Self::FirewallPrerouting | Self::FirewallOutput => for_each(
                "Only the first packet needs a decision: later ones are of a connection that was let in.",
                |family| vec![of(family), new(), Goto(named!(family, "firewall"))],
            ),
            Self::LearnPostrouting | Self::LearnInput => for_each(
                "Only translated connections. Their later packets do not come here: one of a connection that nobody answers may \
                 belong to a removed backend, until the search for stale flows finds it.",
                |family| vec![of(family), dnat(), Goto(named!(family, "learn"))],
            ),
            Self::ExternalPostrouting => for_each("Only translated connections.", |family| {
                vec![
                    of(family),
                    dnat(),
                    Goto(named!(family, "masquerade-external")),
                ]
            }),
            Self::EgressPostrouting => for_each("All that leaves, translated or not.", |family| {
                vec![of(family), Goto(named!(family, "masquerade-egress"))]
            }),
            Self::InterfacesPrerouting => for_each(
                "Services answer only at some interfaces, and not at this one.",
                |family| {
                    let answering = Set::new(SetKind::ServiceInterfaces, family);
                    vec![
                        of(family),
                        new(),
                        MatchSet(vec![Field::InputInterface], IsNot, answering),
                        Goto(named!(family, "interfaces")),
                    ]
                },
            ),
        };
        rules.into()
    }
}

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
