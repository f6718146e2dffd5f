//! The chains that pick a slot: one for each number of slots in use.

use std::fmt;

use super::{
    Family, Set, SetKind,
    expression::{CLIENT_HASH_SEED, Expression, FIRST, after_address, after_frontend},
    skeleton::Rule,
};

/// How a slot is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Choice {
    /// All slots have the same chance.
    Random,
    /// The backend that is remembered for the client, or else at random.
    Sticky,
    /// By the client's address, so that it always draws the same slot.
    Client,
}

impl Choice {
    const ALL: [Self; 3] = [Self::Random, Self::Sticky, Self::Client];

    /// The part of a chain's name that says so.
    const fn infix(self) -> &'static str {
        match self {
            Self::Random => "",
            Self::Sticky => "-sticky",
            Self::Client => "-client",
        }
    }
}

/// The chain that sends a new connection to one of `slots` backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PickChain {
    pub(crate) family: Family,
    /// Picks from the backends for clients outside, where the external policy is Local.
    pub(crate) outside: bool,
    /// For node ports: the address in the key is masked away.
    pub(crate) node_port: bool,
    pub(crate) choice: Choice,
    /// At least 1.
    pub(crate) slots: u32,
}

impl fmt::Display for PickChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = if self.outside { "-outside" } else { "" };
        let node_port = if self.node_port { "-node-port" } else { "" };
        let choice = self.choice.infix();
        write!(f, "pick{choice}{outside}{node_port}-v{}-{}", self.family.digit(), self.slots)
    }
}

impl PickChain {
    /// The chain of this name; none if it is not the name of a pick chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("pick")?;
        let (rest, slots) = rest.rsplit_once('-')?;
        let of_choice = |choice: &Choice| rest.strip_prefix(choice.infix()).map(|rest| (*choice, rest));
        let mut choices = Choice::ALL.iter().rev();
        let (choice, rest) = choices.find_map(of_choice)?;
        let (outside, rest) = rest.strip_prefix("-outside").map_or((false, rest), |rest| (true, rest));
        let (node_port, rest) = rest.strip_prefix("-node-port").map_or((false, rest), |rest| (true, rest));
        let family = Family::ALL.into_iter().find(|family| rest == format!("-v{}", family.digit()))?;
        let slots = slots.parse().ok().filter(|slots| *slots > 0)?;
        Some(Self { family, outside, node_port, choice, slots })
    }

    /// The map of backends that it picks from.
    pub(crate) const fn backends(self) -> Set {
        let kind = if self.outside { SetKind::BackendsOutside } else { SetKind::Backends };
        Set::new(kind, self.family)
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        let at = after_frontend(self.family);
        let pick = |last: Expression, map: Set| {
            let mut rule = vec![Expression::Family(self.family), Expression::Daddr(self.family, FIRST)];
            if self.node_port {
                rule.push(Expression::MaskAway(self.family, FIRST));
            }
            let protocol = after_address(self.family);
            rule.extend([Expression::L4Proto(protocol), Expression::Dport(protocol + 1), last]);
            rule.extend([Expression::DataOf(map), Expression::Dnat(self.family)]);
            rule
        };
        let random = || pick(Expression::Random(self.slots, at), self.backends());
        match self.choice {
            Choice::Random => vec![random()],
            Choice::Sticky => {
                let memory = Set::new(SetKind::Affinity, self.family);
                vec![pick(Expression::Saddr(self.family, at), memory), random()]
            }
            Choice::Client => {
                vec![pick(Expression::ClientHash(self.family, self.slots, at), self.backends())]
            }
        }
    }

    /// The rules in nft's language.
    pub(super) fn rule_texts(self) -> Vec<String> {
        let (ip, slots, backends) = (self.family.nft(), self.slots, self.backends().name());
        let mask = if self.node_port { format!(" & {}", self.family.unspecified()) } else { String::new() };
        let pick = |last: &str, map: &str| {
            format!("dnat {ip} to {ip} daddr{mask} . meta l4proto . th dport . {last} map @{map}")
        };
        let random = || pick(&format!("numgen random mod {slots}"), &backends);
        match self.choice {
            Choice::Random => vec![random()],
            Choice::Sticky => {
                let memory = Set::new(SetKind::Affinity, self.family).name();
                vec![pick(&format!("{ip} saddr"), &memory), random()]
            }
            Choice::Client => {
                let seed = CLIENT_HASH_SEED;
                vec![pick(&format!("jhash {ip} saddr mod {slots} seed {seed:#x}"), &backends)]
            }
        }
    }
}
