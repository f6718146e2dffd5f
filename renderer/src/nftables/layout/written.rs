//! Encoded rules, for comparison with those of the kernel.

use super::{Chain, DemandChain, expression::Rule};
use crate::nftables::netlink::Writer;

impl Chain {
    /// The list of expressions of each rule, as in a message.
    pub(crate) fn written_rules(&self) -> Vec<Vec<u8>> {
        self.rules.iter().map(written).collect()
    }
}

impl DemandChain {
    /// The list of expressions of each rule, as in a message.
    pub(crate) fn written_rules(self) -> Vec<Vec<u8>> {
        self.rules().iter().map(written).collect()
    }
}

fn written(rule: &Rule) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    for expression in rule {
        expression.write(&mut writer);
    }
    bytes
}
