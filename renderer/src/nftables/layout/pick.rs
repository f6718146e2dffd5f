//! The chains that pick a slot: one for each number of slots in use.

use std::fmt;

use super::{
    Family, Set, SetKind, TABLE,
    expression::{Expression, FIRST, after_address},
    skeleton::write_rule,
};
use crate::nftables::netlink::{
    Batch,
    constants::{chain, msg},
};

/// The chain that sends a new connection to one of `slots` backends, all with the same chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PickChain {
    pub(crate) family: Family,
    /// Picks from the backends for clients outside, where the external policy is Local.
    pub(crate) outside: bool,
    /// For node ports: the address in the key is masked away.
    pub(crate) node_port: bool,
    /// At least 1.
    pub(crate) slots: u32,
}

impl fmt::Display for PickChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = if self.outside { "-outside" } else { "" };
        let node_port = if self.node_port { "-node-port" } else { "" };
        write!(f, "pick{outside}{node_port}-v{}-{}", self.family.digit(), self.slots)
    }
}

impl PickChain {
    /// The chain of this name; none if it is not the name of a pick chain.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("pick")?;
        let (rest, slots) = rest.rsplit_once('-')?;
        let (outside, rest) = rest.strip_prefix("-outside").map_or((false, rest), |rest| (true, rest));
        let (node_port, rest) = rest.strip_prefix("-node-port").map_or((false, rest), |rest| (true, rest));
        let family = Family::ALL.into_iter().find(|family| rest == format!("-v{}", family.digit()))?;
        let slots = slots.parse().ok().filter(|slots| *slots > 0)?;
        let chain = Self { family, outside, node_port, slots };
        // Only the one spelling is ours: no leading zero, no sign.
        (chain.to_string() == name).then_some(chain)
    }

    /// The map of backends that it picks from.
    pub(crate) const fn backends(self) -> Set {
        let kind = if self.outside { SetKind::BackendsOutside } else { SetKind::Backends };
        Set::new(kind, self.family)
    }

    /// Adds the messages that create the chain and its rule. The chain must not have the rule yet.
    pub(crate) fn write(self, batch: &mut Batch) {
        let name = self.to_string();
        batch.create(msg::NEWCHAIN, format!("chain {name}"), |message| {
            message.text(chain::TABLE, TABLE);
            message.text(chain::NAME, &name);
        });
        let protocol = after_address(self.family);
        let mut rule = vec![Expression::Family(self.family), Expression::Daddr(self.family, FIRST)];
        if self.node_port {
            rule.push(Expression::MaskAway(self.family, FIRST));
        }
        rule.extend([
            Expression::L4Proto(protocol),
            Expression::Dport(protocol + 1),
            Expression::Random(self.slots, protocol + 2),
            Expression::DataOf(self.backends()),
            Expression::Dnat(self.family),
        ]);
        write_rule(batch, &name, &rule);
    }

    /// The rule in nft's language.
    pub(crate) fn rule_text(self) -> String {
        let ip = if self.family == Family::V4 { "ip" } else { "ip6" };
        let mask = match (self.node_port, self.family) {
            (false, _) => "",
            (true, Family::V4) => " & 0.0.0.0",
            (true, Family::V6) => " & ::",
        };
        let (slots, backends) = (self.slots, self.backends().name());
        format!(
            "dnat {ip} to {ip} daddr{mask} . meta l4proto . th dport . numgen random mod {slots} map @{backends}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_chain_and_other_names_to_none() {
        for family in Family::ALL {
            for (outside, node_port) in [(false, false), (false, true), (true, false), (true, true)] {
                for slots in [1, 2, 1000] {
                    let chain = PickChain { family, outside, node_port, slots };
                    assert_eq!(PickChain::by_name(&chain.to_string()), Some(chain));
                }
            }
        }
        for name in ["pick-v4-0", "pick-v4-01", "pick-v4-+1", "pick-v5-1", "pick-v4-", "services-v4", "pick"]
        {
            assert_eq!(PickChain::by_name(name), None, "{name}");
        }
    }
}
