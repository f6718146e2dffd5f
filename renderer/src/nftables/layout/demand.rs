//! Chains that are made when the first element leads to them.

use std::fmt;

use super::{
    LearnChain, PickChain, TABLE,
    skeleton::{Rule, write_rules_of},
};
use crate::nftables::netlink::{
    Batch,
    constants::{chain, msg},
};

/// A chain made on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DemandChain {
    Pick(PickChain),
    Learn(LearnChain),
}

impl fmt::Display for DemandChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pick(chain) => chain.fmt(f),
            Self::Learn(chain) => chain.fmt(f),
        }
    }
}

impl DemandChain {
    /// The chain of this name; none if it is not the name of such a chain.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let learn = || LearnChain::by_name(name).map(Self::Learn);
        let chain = PickChain::by_name(name).map(Self::Pick).or_else(learn)?;
        // Only the one spelling is ours: no leading zero, no sign.
        (chain.to_string() == name).then_some(chain)
    }

    /// Adds the messages that create the chain and its rules. The chain must not have them yet.
    pub(crate) fn write(self, batch: &mut Batch) {
        let name = self.to_string();
        batch.create(msg::NEWCHAIN, format!("chain {name}"), |message| {
            message.text(chain::TABLE, TABLE);
            message.text(chain::NAME, &name);
        });
        write_rules_of(&name, self.rules(), batch);
    }

    /// The rules in nft's language.
    pub(crate) fn rule_texts(self) -> Vec<String> {
        match self {
            Self::Pick(chain) => chain.rule_texts(),
            Self::Learn(chain) => chain.rule_texts(),
        }
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        match self {
            Self::Pick(chain) => chain.rules(),
            Self::Learn(chain) => chain.rules(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::layout::{Choice, Family};

    #[test]
    fn a_name_leads_back_to_its_chain_and_other_names_to_none() {
        for family in Family::ALL {
            for node_port in [false, true] {
                let learn = DemandChain::Learn(LearnChain { family, node_port, timeout: 10_800 });
                assert_eq!(DemandChain::by_name(&learn.to_string()), Some(learn));
                for (outside, choice, slots) in [
                    (false, Choice::Random, 1),
                    (true, Choice::Sticky, 2),
                    (false, Choice::Client, 1021),
                    (true, Choice::Client, 3),
                ] {
                    let pick = DemandChain::Pick(PickChain { family, outside, node_port, choice, slots });
                    assert_eq!(DemandChain::by_name(&pick.to_string()), Some(pick));
                }
            }
        }
        for name in [
            "pick-v4-0",
            "pick-v4-01",
            "pick-v4-+1",
            "pick-v5-1",
            "pick-v4-",
            "services-v4",
            "pick",
            "learn-v4",
            "learn-v4-0",
        ] {
            assert_eq!(DemandChain::by_name(name), None, "{name}");
        }
    }
}
