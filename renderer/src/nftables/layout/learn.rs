//! The chains that record affinity: one for each timeout in use.

use std::fmt;

use super::{
    Family, Set, SetKind,
    expression::{Expression, Rule, after_frontend},
    skeleton::original_key,
};

/// The chain that writes affinity entries with one timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LearnChain {
    pub(crate) family: Family,
    /// For node ports: the key has the unspecified address.
    pub(crate) node_port: bool,
    /// Seconds; at least 1.
    pub(crate) timeout: u32,
}

impl fmt::Display for LearnChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node_port = if self.node_port { "-node-port" } else { "" };
        write!(f, "learn{node_port}-v{}-{}", self.family.digit(), self.timeout)
    }
}

/// Set in the numbers of chains for node ports.
const NODE_PORT: u32 = 1 << 31;

impl LearnChain {
    /// The longest timeout that a number has room for: 68 years.
    pub(crate) const MAX_TIMEOUT: u32 = NODE_PORT - 1;

    /// The number by which the frontends of a family name the chain: the seconds.
    pub(crate) fn number(self) -> u32 {
        debug_assert!(self.timeout <= Self::MAX_TIMEOUT, "{self} has no number");
        let node_port = if self.node_port { NODE_PORT } else { 0 };
        node_port | self.timeout
    }

    /// The chain of this number; none if it is not the number of such a chain.
    pub(crate) fn by_number(family: Family, number: u32) -> Option<Self> {
        let timeout = Some(number & Self::MAX_TIMEOUT).filter(|timeout| *timeout > 0)?;
        Some(Self { family, node_port: number & NODE_PORT != 0, timeout })
    }

    /// The chain of this name; none if it is not the name of such a chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        let (rest, timeout) = name.strip_prefix("learn")?.rsplit_once('-')?;
        let (node_port, rest) = rest.strip_prefix("-node-port").map_or((false, rest), |rest| (true, rest));
        let family = Family::ALL.into_iter().find(|family| rest == format!("-v{}", family.digit()))?;
        let timeout = timeout.parse().ok().filter(|timeout| *timeout > 0)?;
        Some(Self { family, node_port, timeout })
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        let client = after_frontend(self.family);
        // The register that nft uses for IPv4; for IPv6 nft runs out of registers, and the next free one is used.
        let backend = match self.family {
            Family::V4 => 4,
            Family::V6 => 10,
        };
        let mut rule =
            vec![Expression::ResetPriority, Expression::Protocols(0), Expression::Family(self.family)];
        rule.extend(original_key(self.family, self.node_port));
        rule.extend([
            Expression::Saddr(self.family, client),
            Expression::Daddr(self.family, backend),
            Expression::Dport(backend + self.family.address_len() / 4),
            Expression::Remember(self.memory(), backend, self.timeout),
        ]);
        vec![rule]
    }

    /// The rule in nft's language.
    pub(super) fn rule_texts(self) -> Vec<String> {
        let (ip, memory) = (self.family.nft(), self.memory().name());
        let mask = if self.node_port { format!(" & {}", self.family.unspecified()) } else { String::new() };
        let timeout = self.timeout;
        vec![format!(
            "meta priority set none meta l4proto {{ tcp, udp, sctp }} update @{memory} {{ ct original {ip} daddr{mask} . meta l4proto . ct \
             original proto-dst . {ip} saddr timeout {timeout}s : {ip} daddr . th dport }}"
        )]
    }

    const fn memory(self) -> Set {
        Set::new(SetKind::Affinity, self.family)
    }
}
