//! Chains that are created when the first element needs them.

use std::fmt;

use super::{
    BaseChain, Family, Hook, LearnChain, PickChain,
    bytecode::{write_rules, written_rules},
    hook::write_chain,
    rule::Rule,
};
use crate::nftables::netlink::Batch;

/// A chain that is created on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DemandChain {
    Pick(PickChain),
    Learn(LearnChain),
    Base(BaseChain),
}

impl fmt::Display for DemandChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pick(chain) => chain.fmt(f),
            Self::Learn(chain) => chain.fmt(f),
            Self::Base(chain) => chain.fmt(f),
        }
    }
}

impl DemandChain {
    /// The family and the number by which frontends name the chain; none for one that a hook leads to.
    pub(crate) fn number(self) -> Option<(Family, u32)> {
        match self {
            Self::Pick(chain) => Some((chain.family, chain.number())),
            Self::Learn(chain) => Some((chain.family, chain.number())),
            Self::Base(_) => None,
        }
    }

    /// The chain of this name; none if it is not the name of such a chain.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let learn = || LearnChain::by_name(name).map(Self::Learn);
        let base = || BaseChain::by_name(name).map(Self::Base);
        let chain = PickChain::by_name(name)
            .map(Self::Pick)
            .or_else(learn)
            .or_else(base)?;
        // Only the canonical spelling is ours: no leading zero, no sign.
        (chain.to_string() == name).then_some(chain)
    }

    /// Its hook; none for a chain that only elements jump to.
    pub(crate) const fn hook(self) -> Option<Hook> {
        match self {
            Self::Pick(_) | Self::Learn(_) => None,
            Self::Base(chain) => Some(chain.hook()),
        }
    }

    /// Adds the messages that create the chain and its rules. The chain must not have them yet.
    pub(crate) fn write(self, batch: &mut Batch) {
        let name = self.to_string();
        write_chain(batch, &name, self.hook());
        write_rules(&name, &self.rules(), batch);
    }

    /// The list of expressions of each rule, as in a message.
    pub(crate) fn written_rules(self) -> Vec<Vec<u8>> {
        written_rules(&self.rules())
    }

    /// Its purpose.
    pub(super) const fn comment(self) -> &'static str {
        match self {
            Self::Pick(_) => "Sends a new connection to one of its slots.",
            Self::Learn(_) => "Stores the backend of a client for this number of seconds.",
            Self::Base(chain) => chain.comment(),
        }
    }

    pub(crate) fn rules(self) -> Vec<Rule> {
        match self {
            Self::Pick(chain) => chain.rules(),
            Self::Learn(chain) => chain.rules(),
            Self::Base(chain) => chain.rules(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::layout::Choice;

    #[test]
    fn chain_names_are_parsed_back_and_others_refused() {
        for family in Family::ALL {
            for node_port in [false, true] {
                let learn = DemandChain::Learn(LearnChain {
                    family,
                    node_port,
                    timeout: 10_800,
                });
                assert_eq!(DemandChain::by_name(&learn.to_string()), Some(learn));
                let (of, number) = learn.number().unwrap();
                assert_eq!(
                    LearnChain::by_number(of, number).map(DemandChain::Learn),
                    Some(learn)
                );
                for (external_slots, choice, slots) in [
                    (None, Choice::Random, 1),
                    (Some(0), Choice::Sticky, 2),
                    (None, Choice::Client, 1021),
                    (Some(12), Choice::Client, 3),
                ] {
                    let pick = PickChain {
                        family,
                        node_port,
                        choice,
                        slots,
                        external_slots,
                    };
                    let pick = DemandChain::Pick(pick);
                    assert_eq!(DemandChain::by_name(&pick.to_string()), Some(pick));
                    let (of, number) = pick.number().unwrap();
                    assert_eq!(
                        PickChain::by_number(of, number).map(DemandChain::Pick),
                        Some(pick)
                    );
                }
            }
        }
        for base in BaseChain::ALL.map(DemandChain::Base) {
            assert_eq!(DemandChain::by_name(&base.to_string()), Some(base));
            assert!(base.hook().is_some());
        }
        for name in [
            "pick-v4-0",
            "pick-v4-01",
            "pick-v4-+1",
            "pick-v5-1",
            "pick-v4-",
            "pick-v4-1-external-",
            "pick-v4-1-external-01",
            "pick-external-v4-1",
            "services-v4",
            "pick",
            "learn-v4",
            "learn-v4-0",
            "nat-prerouting",
        ] {
            assert_eq!(DemandChain::by_name(name), None, "{name}");
        }
    }
}
