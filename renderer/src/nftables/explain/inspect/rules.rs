//! Checks that the kernel's chains hold the agent's rules: without them the elements have no effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::nftables::{
    kernel::read::{self, ExistingTable},
    layout::{ANONYMOUS, BaseChain, DemandChain, PROTOCOLS, PodRanges, TABLE, chains},
    netlink::{
        Attributes, NetlinkError, Socket,
        constants::{LIST_ELEM, data, elem, expr, msg, rule},
    },
};

/// Descriptions of the differences of the chains.
pub(super) fn differences(
    socket: &mut Socket,
    existing: &ExistingTable,
) -> Result<Vec<String>, NetlinkError> {
    let rules = compare(&read(socket)?, existing, read::pod_ranges(socket)?);
    let foreign = existing.foreign_chains.iter();
    let foreign = foreign.map(|name| format!("chain {name} in the table is not one of contiv's"));
    let missing = missing(socket, existing)?;
    let missing = missing
        .iter()
        .map(|chain| format!("chain {chain} is missing"));
    Ok(rules
        .iter()
        .map(ToString::to_string)
        .chain(foreign)
        .chain(missing)
        .collect())
}

/// Missing base chains that existing elements need.
fn missing(socket: &mut Socket, existing: &ExistingTable) -> Result<Vec<BaseChain>, NetlinkError> {
    let is_there = |chain: &BaseChain| existing.on_demand.contains(&DemandChain::Base(*chain));
    let mut missing = Vec::new();
    for chain in BaseChain::ALL.into_iter().filter(|chain| !is_there(chain)) {
        for set in chain.sets() {
            if read::has_elements(socket, set)? {
                missing.push(chain);
                break;
            }
        }
    }
    Ok(missing)
}

/// A chain with a wrong rule, or with a wrong number of rules.
#[derive(Debug)]
pub(in crate::nftables) struct WrongRule {
    pub(in crate::nftables) chain: String,
    /// The position of the rule, from 1; none if the number of rules is wrong.
    pub(in crate::nftables) number: Option<usize>,
    pub(in crate::nftables) detail: String,
}

impl fmt::Display for WrongRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.number {
            write!(f, "rule {number} of ")?;
        }
        write!(f, "chain {} {}", self.chain, self.detail)
    }
}

/// The wrong rules, in the chains of the skeleton and in existing on-demand chains.
pub(in crate::nftables) fn compare(
    kernel: &Rules,
    existing: &ExistingTable,
    pods: PodRanges,
) -> Vec<WrongRule> {
    let skeleton = chains()
        .iter()
        .map(|chain| (chain.name.to_owned(), chain.written_rules(pods)));
    let on_demand = existing
        .on_demand
        .iter()
        .map(|chain| (chain.to_string(), chain.written_rules()));
    let mut differences = Vec::new();
    for (name, desired) in skeleton.chain(on_demand) {
        let none = Vec::new();
        let found = kernel.rules.get(&name).unwrap_or(&none);
        if found.len() != desired.len() {
            let detail = format!("has {} rules instead of {}", found.len(), desired.len());
            differences.push(WrongRule {
                chain: name,
                number: None,
                detail,
            });
            continue;
        }
        let pairs = desired.iter().zip(found).zip(1..);
        let wrong = pairs.filter(|((desired, found), _)| !kernel.is_same_rule(desired, found));
        differences.extend(wrong.map(|(_, number)| {
            let detail = "is not the one that contiv writes".to_owned();
            WrongRule {
                chain: name.clone(),
                number: Some(number),
                detail,
            }
        }));
    }
    differences
}

/// The rules of the kernel's table.
#[derive(Debug, Default)]
pub(in crate::nftables) struct Rules {
    /// The list of expressions of each rule, by chain.
    rules: BTreeMap<String, Vec<Vec<u8>>>,
    /// The anonymous sets with exactly the protocols of services.
    protocol_sets: BTreeSet<String>,
}

pub(in crate::nftables) fn read(socket: &mut Socket) -> Result<Rules, NetlinkError> {
    let mut read = Rules::default();
    let dump = socket.dump(msg::GETRULE, |message| message.text(rule::TABLE, TABLE))?;
    let mut anonymous = BTreeSet::new();
    for object in dump
        .objects()
        .filter(|object| object.text(rule::TABLE) == Some(TABLE))
    {
        let chain = object.text(rule::CHAIN).unwrap_or_default().to_owned();
        let expressions = object.get(rule::EXPRESSIONS).unwrap_or_default();
        for (_, expression) in Attributes(expressions).iter() {
            let set = Attributes(expression)
                .nested(rule::EXPR_DATA)
                .and_then(|data| data.text(expr::LOOKUP_SET));
            let is_lookup = Attributes(expression).text(rule::EXPR_NAME) == Some("lookup");
            anonymous.extend(
                set.filter(|name| is_lookup && is_anonymous(name))
                    .map(str::to_owned),
            );
        }
        read.rules
            .entry(chain)
            .or_default()
            .push(expressions.to_vec());
    }
    let desired: BTreeSet<u8> = PROTOCOLS.iter().map(|protocol| protocol.number()).collect();
    for name in anonymous {
        let dump = socket.dump(msg::GETSETELEM, |message| {
            message.text(elem::LIST_TABLE, TABLE);
            message.text(elem::LIST_SET, &name);
        })?;
        let lists = dump
            .objects()
            .filter_map(|object| object.nested(elem::LIST_ELEMENTS));
        let elements = lists
            .flat_map(Attributes::iter)
            .filter(|(kind, _)| *kind == LIST_ELEM);
        let key = |element| {
            Attributes(element)
                .nested(elem::KEY)?
                .get(data::VALUE)?
                .first()
                .copied()
        };
        let kernel: Option<BTreeSet<u8>> = elements.map(|(_, element)| key(element)).collect();
        if kernel.as_ref() == Some(&desired) {
            read.protocol_sets.insert(name);
        }
    }
    Ok(read)
}

/// The kernel has replaced `%d` by a number.
fn is_anonymous(set: &str) -> bool {
    set.starts_with(ANONYMOUS.trim_end_matches("%d"))
}

impl Rules {
    /// True if the chain has a rule.
    pub(in crate::nftables) fn has_any(&self, chain: &str) -> bool {
        self.rules.get(chain).is_some_and(|rules| !rules.is_empty())
    }

    /// The number of rules.
    pub(in crate::nftables) fn len(&self) -> usize {
        self.rules.values().map(Vec::len).sum()
    }

    /// The number of rules of a chain.
    pub(in crate::nftables) fn count(&self, chain: &str) -> usize {
        self.rules.get(chain).map_or(0, Vec::len)
    }

    fn is_same_rule(&self, desired: &[u8], found: &[u8]) -> bool {
        let (mut desired, mut found) = (Attributes(desired).iter(), Attributes(found).iter());
        loop {
            match (desired.next(), found.next()) {
                (None, None) => return true,
                (Some((_, desired)), Some((_, found)))
                    if self.is_same_expression(Attributes(desired), Attributes(found)) => {}
                _ => return false,
            }
        }
    }

    fn is_same_expression(&self, desired: Attributes<'_>, found: Attributes<'_>) -> bool {
        let name = desired.text(rule::EXPR_NAME);
        let parts = desired
            .nested(rule::EXPR_DATA)
            .zip(found.nested(rule::EXPR_DATA));
        let Some((desired, found)) = parts.filter(|_| name == found.text(rule::EXPR_NAME)) else {
            return false;
        };
        match name {
            Some("lookup") if desired.text(expr::LOOKUP_SET) == Some(ANONYMOUS) => {
                found
                    .text(expr::LOOKUP_SET)
                    .is_some_and(|set| self.protocol_sets.contains(set))
                    && is_same(desired, found, &[expr::LOOKUP_SET, expr::LOOKUP_SET_ID])
            }
            // The kernel adds the end of the ranges, equal to their start, and flags that follow from that.
            Some("nat") => is_same(
                desired,
                found,
                &[
                    expr::NAT_REG_ADDR_MAX,
                    expr::NAT_REG_PROTO_MAX,
                    expr::NAT_FLAGS,
                ],
            ),
            _ => is_same(desired, found, &[]),
        }
    }
}

/// True if two attribute lists are equal, apart from some. A missing attribute means zero.
fn is_same(desired: Attributes<'_>, found: Attributes<'_>, but: &[u16]) -> bool {
    let is_zero = |payload: &[u8]| payload.iter().all(|byte| *byte == 0);
    let all_desired = desired
        .marked()
        .filter(|(kind, ..)| !but.contains(kind))
        .all(|(kind, is_nested, payload)| match found.get(kind) {
            Some(found) if is_nested => is_same(Attributes(payload), Attributes(found), &[]),
            Some(found) => payload == found,
            None => is_zero(payload),
        });
    let is_extra = |kind: &u16| !but.contains(kind) && desired.get(*kind).is_none();
    all_desired
        && found
            .iter()
            .filter(|(kind, _)| is_extra(kind))
            .all(|(_, payload)| is_zero(payload))
}
