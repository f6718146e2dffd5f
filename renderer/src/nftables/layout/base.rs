//! Base chains: their hooks, and the chains that exist only while an element needs them.

use std::fmt;

use super::{
    Family, TABLE,
    expression::{Expression, FIRST},
    set::{Set, SetKind},
    skeleton::{Rule, names},
};
use crate::nftables::{
    element::{Element, Key},
    netlink::{
        Batch,
        constants::{chain, msg},
    },
};

/// The hook of a base chain. Source: `include/uapi/linux/netfilter.h` and `netfilter_ipv4.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) kind: &'static str,
    pub(crate) number: u32,
    pub(crate) priority: i32,
}

impl Hook {
    pub(super) const fn nat(number: u32, priority: i32) -> Self {
        Self { kind: "nat", number, priority }
    }

    /// At the priority "filter".
    pub(super) const fn filter(number: u32) -> Self {
        Self::filter_at(number, 0)
    }

    const fn filter_at(number: u32, priority: i32) -> Self {
        Self { kind: "filter", number, priority }
    }

    /// The name of the hook in nft's language.
    const fn place(self) -> &'static str {
        match self.number {
            PREROUTING => "prerouting",
            INPUT => "input",
            FORWARD => "forward",
            OUTPUT => "output",
            _ => "postrouting",
        }
    }
}

impl fmt::Display for Hook {
    /// In nft's syntax, as in the head of a chain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {} hook {} priority {}; policy accept;", self.kind, self.place(), self.priority)
    }
}

pub(super) const PREROUTING: u32 = 0;
pub(super) const INPUT: u32 = 1;
pub(super) const FORWARD: u32 = 2;
pub(super) const OUTPUT: u32 = 3;
pub(super) const POSTROUTING: u32 = 4;
pub(super) const PRIORITY_DSTNAT: i32 = -100;
pub(super) const PRIORITY_SRCNAT: i32 = 100;
const BEFORE_DSTNAT: i32 = PRIORITY_DSTNAT - 10;
const AFTER_DSTNAT: i32 = PRIORITY_DSTNAT + 10;

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
}

impl BaseChain {
    pub(crate) const ALL: [Self; 6] = [
        Self::LoopbackPrerouting,
        Self::FirewallPrerouting,
        Self::FirewallOutput,
        Self::LearnPrerouting,
        Self::LearnOutput,
        Self::ExternalPostrouting,
    ];

    /// The base chains without which an element has no effect.
    pub(crate) const fn needed_by(element: &Element) -> &'static [Self] {
        match element.set.kind {
            SetKind::Restricted => &[Self::FirewallPrerouting, Self::FirewallOutput],
            SetKind::Sticky => &[Self::LearnPrerouting, Self::LearnOutput],
            SetKind::MasqueradeAlways | SetKind::MasqueradeOwn => &[Self::ExternalPostrouting],
            SetKind::NodeIps => match element.key {
                Key::Address(address) if address.is_loopback() => &[Self::LoopbackPrerouting],
                _ => &[],
            },
            _ => &[],
        }
    }

    /// The sets whose elements need this chain.
    pub(crate) fn sets(self) -> impl Iterator<Item = Set> {
        let kinds: &[SetKind] = match self {
            Self::LoopbackPrerouting => &[SetKind::Loopback],
            Self::FirewallPrerouting | Self::FirewallOutput => &[SetKind::Restricted],
            Self::LearnPrerouting | Self::LearnOutput => &[SetKind::Sticky],
            Self::ExternalPostrouting => &[SetKind::MasqueradeAlways, SetKind::MasqueradeOwn],
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
        }
    }

    /// The chain of this name; none if it is not the name of such a chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chain| chain.name() == name)
    }

    pub(super) const fn hook(self) -> Hook {
        match self {
            Self::LoopbackPrerouting | Self::FirewallPrerouting => Hook::filter_at(PREROUTING, BEFORE_DSTNAT),
            Self::FirewallOutput => Hook::filter_at(OUTPUT, BEFORE_DSTNAT),
            Self::LearnPrerouting => Hook::filter_at(PREROUTING, AFTER_DSTNAT),
            Self::LearnOutput => Hook::filter_at(OUTPUT, AFTER_DSTNAT),
            Self::ExternalPostrouting => Hook::nat(POSTROUTING, PRIORITY_SRCNAT),
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
        }
    }
}

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Adds the message that creates a chain, or corrects an existing one.
pub(super) fn write_chain(batch: &mut Batch, name: &str, hook: Option<Hook>) {
    write_chain_of(batch, TABLE, name, hook);
}

/// The same for a chain of another table.
pub(super) fn write_chain_of(batch: &mut Batch, table: &str, name: &str, hook: Option<Hook>) {
    batch.create(msg::NEWCHAIN, format!("chain {name}"), |message| {
        message.text(chain::TABLE, table);
        message.text(chain::NAME, name);
        if let Some(hook) = hook {
            message.text(chain::TYPE, hook.kind);
            message.u32(chain::POLICY, chain::POLICY_ACCEPT);
            message.nested(chain::HOOK, |attributes| {
                attributes.u32(chain::HOOK_HOOKNUM, hook.number);
                attributes.bytes(chain::HOOK_PRIORITY, &hook.priority.to_be_bytes());
            });
        }
    });
}
