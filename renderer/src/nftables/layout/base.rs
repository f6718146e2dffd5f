//! Base chains: their hooks, and the chains that exist only while an element needs them.

use std::fmt;

use super::{
    Family,
    expression::{Expression, FIRST, Rule},
    hook::{AFTER_DSTNAT, BEFORE_DSTNAT, Hook, OUTPUT, POSTROUTING, PREROUTING, PRIORITY_SRCNAT},
    set::{Set, SetKind},
    skeleton::names,
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
    /// Session affinity, for incoming packets.
    LearnPrerouting,
    /// Session affinity, for packets of the node itself.
    LearnOutput,
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
        Self::LearnPrerouting,
        Self::LearnOutput,
        Self::ExternalPostrouting,
        Self::EgressPostrouting,
        Self::InterfacesPrerouting,
    ];

    /// The sets whose elements need this chain.
    pub(crate) fn sets(self) -> impl Iterator<Item = Set> {
        let kinds: &[SetKind] = match self {
            Self::LoopbackPrerouting => &[SetKind::Loopback],
            Self::FirewallPrerouting | Self::FirewallOutput => &[SetKind::Restricted],
            Self::LearnPrerouting | Self::LearnOutput => &[SetKind::Sticky],
            Self::ExternalPostrouting => &[SetKind::MasqueradeAlways, SetKind::MasqueradeLocal],
            Self::EgressPostrouting => &[SetKind::NonMasqueradeCidrs],
            Self::InterfacesPrerouting => &[SetKind::ServiceInterfaces],
        };
        kinds.iter().flat_map(|kind| Family::ALL.map(|family| Set::new(*kind, family)))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::LoopbackPrerouting => "loopback-prerouting",
            Self::FirewallPrerouting => "firewall-prerouting",
            Self::FirewallOutput => "firewall-output",
            Self::LearnPrerouting => "learn-prerouting",
            Self::LearnOutput => "learn-output",
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
            Self::LearnPrerouting => Hook::filter_at(PREROUTING, AFTER_DSTNAT),
            Self::LearnOutput => Hook::filter_at(OUTPUT, AFTER_DSTNAT),
            Self::ExternalPostrouting | Self::EgressPostrouting => Hook::nat(POSTROUTING, PRIORITY_SRCNAT),
        }
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        Family::ALL.map(|family| self.rule(family)).into()
    }

    fn rule(self, family: Family) -> Rule {
        let names = names(family);
        match self {
            // The kernel accepts packets to loopback from elsewhere once node ports answer there.
            Self::LoopbackPrerouting => vec![
                Expression::StateInvalidOrNew,
                Expression::Family(family),
                Expression::Daddr(family, FIRST),
                Expression::In(Set::new(SetKind::Loopback, family)),
                Expression::NotByLoopback,
                Expression::Drop,
            ],
            Self::FirewallPrerouting | Self::FirewallOutput => {
                vec![Expression::Family(family), Expression::StateNew, Expression::Goto(names.firewall)]
            }
            // Only a connection's first packet is recorded. A later packet of an unanswered connection may belong to a removed
            // backend, until the search for stale flows finds it.
            Self::LearnPrerouting | Self::LearnOutput => vec![
                Expression::Family(family),
                Expression::StatusDnatUnconfirmed,
                Expression::Goto(names.learn),
            ],
            Self::ExternalPostrouting => {
                let goto = Expression::Goto(names.masquerade_external);
                vec![Expression::Family(family), Expression::StatusDnat, goto]
            }
            Self::EgressPostrouting => {
                vec![Expression::Family(family), Expression::Goto(names.masquerade_egress)]
            }
            Self::InterfacesPrerouting => vec![
                Expression::Family(family),
                Expression::StateNew,
                Expression::Interface,
                Expression::NotIn(Set::new(SetKind::ServiceInterfaces, family)),
                Expression::Goto(names.interfaces),
            ],
        }
    }

    /// The rules in nft's language.
    pub(super) fn rule_texts(self) -> Vec<String> {
        Family::ALL.map(|family| self.rule_text(family)).into()
    }

    fn rule_text(self, family: Family) -> String {
        let (ip, digit, names) = (family.nft(), family.digit(), names(family));
        match self {
            Self::LoopbackPrerouting => {
                format!("ct state invalid,new {ip} daddr @loopback{digit} iifname != \"lo\" drop")
            }
            Self::FirewallPrerouting | Self::FirewallOutput => {
                format!("meta nfproto ipv{digit} ct state new goto {}", names.firewall)
            }
            Self::LearnPrerouting | Self::LearnOutput => {
                format!("meta nfproto ipv{digit} ct status & (confirmed | dnat) == dnat goto {}", names.learn)
            }
            Self::ExternalPostrouting => {
                format!("meta nfproto ipv{digit} ct status dnat goto {}", names.masquerade_external)
            }
            Self::EgressPostrouting => {
                format!("meta nfproto ipv{digit} goto {}", names.masquerade_egress)
            }
            Self::InterfacesPrerouting => format!(
                "meta nfproto ipv{digit} ct state new iifname != @service-interfaces{digit} goto {}",
                names.interfaces
            ),
        }
    }
}

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
