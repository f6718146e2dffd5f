//! The chains that record affinity: one for each timeout in use.

use std::fmt;

use super::{
    Family, Field, Set, SetKind,
    rule::{
        Rule,
        Statement::{MatchProtocols, ResetPriority, Update},
    },
    rules::{original_frontend, rule},
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
        write!(
            f,
            "learn{node_port}-v{}-{}",
            self.family.digit(),
            self.timeout
        )
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
        Some(Self {
            family,
            node_port: number & NODE_PORT != 0,
            timeout,
        })
    }

    /// The chain of this name; none if it is not the name of such a chain.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        let (rest, timeout) = name.strip_prefix("learn")?.rsplit_once('-')?;
        let (node_port, rest) = rest
            .strip_prefix("-node-port")
            .map_or((false, rest), |rest| (true, rest));
        let family = Family::ALL
            .into_iter()
            .find(|family| rest == format!("-v{}", family.digit()))?;
        let timeout = timeout.parse().ok().filter(|timeout| *timeout > 0)?;
        Some(Self {
            family,
            node_port,
            timeout,
        })
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        let family = self.family;
        let mut key = original_frontend(family, self.node_port);
        key.push(Field::Saddr(family));
        let data = vec![Field::Daddr(family), Field::Dport];
        let remember = Update {
            map: self.memory(),
            key,
            timeout: self.timeout,
            data,
        };
        vec![rule(
            "Writes the entry anew, so that its time counts from the last new connection. The packet's priority is put back \
             first: it held the number of this chain.",
            [vec![ResetPriority, MatchProtocols, remember]],
        )]
    }

    const fn memory(self) -> Set {
        Set::new(SetKind::Affinity, self.family)
    }
}
