//! The rules of a chain by the destinations that they match, so that a packet passes over those that cannot concern it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use super::{
    expression::{Expression, Register},
    xt::XtMatch,
};
use crate::nftables::netlink::{
    Attributes,
    constants::{NFPROTO_IPV4, NFPROTO_IPV6, expr},
};

/// A rule: where its parts are in the bytes of all rules.
#[derive(Debug, Clone)]
pub(in crate::packet_path) struct Rule {
    pub(in crate::packet_path) handle: u64,
    pub(super) destination: RuleDestination,
    pub(super) expressions: Range<usize>,
    pub(super) userdata: Range<usize>,
}

/// The only destination that a rule matches; none for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct RuleDestination {
    address: Option<IpAddr>,
    port: Option<u16>,
}

/// A field of the destination in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Address,
    Port,
    Other,
}

impl RuleDestination {
    /// What a rule of a table compares before it does anything else.
    pub(super) fn of(family: u8, expressions: Attributes<'_>) -> Self {
        let mut found = Self::default();
        let mut loaded: Option<(Register, Field)> = None;
        for (_, expression) in expressions.iter() {
            match Expression::decode(Attributes(expression)) {
                Expression::Payload {
                    base,
                    offset,
                    len,
                    to,
                } => loaded = Some((to, field(family, base, offset, len))),
                Expression::Meta { to, .. } => loaded = Some((to, Field::Other)),
                Expression::Compare {
                    from,
                    operator: expr::CMP_EQ,
                    value,
                } => match loaded.filter(|(to, _)| *to == from) {
                    Some((_, Field::Address)) => {
                        let v4 = <[u8; 4]>::try_from(&*value).map(IpAddr::from);
                        let v6 = || <[u8; 16]>::try_from(&*value).map(IpAddr::from);
                        found.address = v4.or_else(|_| v6()).ok();
                    }
                    Some((_, Field::Port)) => {
                        found.port = (&*value).try_into().ok().map(u16::from_be_bytes);
                    }
                    _ => {}
                },
                Expression::Match(XtMatch::Ports { destination, .. })
                    if destination.low == destination.high && !destination.is_inverted =>
                {
                    found.port = Some(destination.low);
                }
                Expression::Compare { .. }
                | Expression::Match(
                    XtMatch::Comment(_)
                    | XtMatch::Always
                    | XtMatch::Ports { .. }
                    | XtMatch::AddressTypes(_),
                ) => {}
                _ => return found,
            }
        }
        found
    }

    /// Whether the rule may match a packet to this destination.
    fn may_match(self, to: SocketAddr) -> bool {
        self.address.is_none_or(|only| only == to.ip())
            && self.port.is_none_or(|only| only == to.port())
    }
}

const fn field(family: u8, base: u32, offset: usize, len: usize) -> Field {
    match (base, offset, len) {
        (expr::PAYLOAD_NETWORK_HEADER, 16, 4) if family != NFPROTO_IPV6 => Field::Address,
        (expr::PAYLOAD_NETWORK_HEADER, 24, 16) if family != NFPROTO_IPV4 => Field::Address,
        (expr::PAYLOAD_TRANSPORT_HEADER, 2, 2) => Field::Port,
        _ => Field::Other,
    }
}

/// A chain is indexed from so many rules on: before, it is as quick to look at each.
const INDEXED_RULES: usize = 32;

/// The rules of a chain, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleList {
    rules: Vec<Rule>,
    /// The numbers of the rules with each destination; empty for a short chain.
    numbers: BTreeMap<RuleDestination, Vec<usize>>,
}

impl RuleList {
    /// Adds a rule at the end.
    pub(super) fn push(&mut self, rule: Rule) {
        self.rules.push(rule);
        let unindexed = match self.rules.len() {
            ..INDEXED_RULES => return,
            INDEXED_RULES => 0,
            len => len - 1,
        };
        for (number, rule) in self.rules.iter().enumerate().skip(unindexed) {
            let numbers = self.numbers.entry(rule.destination).or_default();
            numbers.push(number);
        }
    }

    pub(super) fn as_slice(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule from this number on that may match a packet to this destination, with its number.
    pub(super) fn next(&self, from: usize, to: SocketAddr) -> Option<(usize, &Rule)> {
        if self.numbers.is_empty() {
            let mut rest = self.rules.iter().enumerate().skip(from);
            return rest.find(|(_, rule)| rule.destination.may_match(to));
        }
        let (address, port) = (Some(to.ip()), Some(to.port()));
        let matching = [(None, None), (None, port), (address, None), (address, port)];
        let first = |(address, port)| {
            let numbers = self.numbers.get(&RuleDestination { address, port })?;
            let place = numbers.partition_point(|number| *number < from);
            numbers.get(place).copied()
        };
        let number = matching.into_iter().filter_map(first).min()?;
        Some((number, self.rules.get(number)?))
    }
}

impl FromIterator<Rule> for RuleList {
    fn from_iter<T: IntoIterator<Item = Rule>>(rules: T) -> Self {
        let mut list = Self::default();
        rules.into_iter().for_each(|rule| list.push(rule));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        netlink::Writer,
        nftables::netlink::constants::{LIST_ELEM, data, rule},
    };

    #[test]
    fn bytes_of_a_source_of_ipv6_are_no_destination_of_ipv4() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.nested(LIST_ELEM, |expression| {
            expression.text(rule::EXPR_NAME, "payload");
            expression.nested(rule::EXPR_DATA, |payload| {
                payload.u32(expr::PAYLOAD_DREG, 1);
                payload.u32(expr::PAYLOAD_BASE, expr::PAYLOAD_NETWORK_HEADER);
                payload.u32(expr::PAYLOAD_OFFSET, 16);
                payload.u32(expr::PAYLOAD_LEN, 4);
            });
        });
        writer.nested(LIST_ELEM, |expression| {
            expression.text(rule::EXPR_NAME, "cmp");
            expression.nested(rule::EXPR_DATA, |compare| {
                compare.u32(expr::CMP_SREG, 1);
                compare.u32(expr::CMP_OP, expr::CMP_EQ);
                compare.nested(expr::CMP_DATA, |inner| {
                    inner.bytes(data::VALUE, &[10, 96, 0, 1]);
                });
            });
        });
        let address = |family| RuleDestination::of(family, Attributes(&bytes)).address;
        assert_eq!(address(NFPROTO_IPV4), Some("10.96.0.1".parse().unwrap()));
        assert_eq!(address(NFPROTO_IPV6), None);
    }

    /// A rule for one of a few addresses and ports, each of which may be any.
    fn rule_of(number: usize) -> Rule {
        let address = ["10.96.0.1", "10.96.0.2", "fd00::1"].get(number % 4);
        Rule {
            handle: number as u64,
            destination: RuleDestination {
                address: address.map(|text| text.parse().unwrap()),
                port: [80, 443, 53].get(number / 4 % 5).copied(),
            },
            expressions: 0..0,
            userdata: 0..0,
        }
    }

    #[test]
    fn index_of_a_long_chain_finds_the_rules_that_a_walk_finds() {
        let list: RuleList = (0..200).map(|number| rule_of(number * 7)).collect();
        assert!(!list.numbers.is_empty());
        for to in [
            "10.96.0.1:80",
            "10.96.0.9:443",
            "[fd00::1]:53",
            "[fd00::2]:1",
        ] {
            let to: SocketAddr = to.parse().unwrap();
            let may_match = |number: &usize| list.rules[*number].destination.may_match(to);
            let walked: Vec<usize> = (0..200).filter(may_match).collect();
            let mut found: Vec<usize> = Vec::new();
            while let Some((next, _)) = list.next(found.last().map_or(0, |last| last + 1), to) {
                found.push(next);
            }
            assert_eq!(found, walked);
            assert!(!found.is_empty() && found.len() < 200, "{to}");
        }
    }
}
