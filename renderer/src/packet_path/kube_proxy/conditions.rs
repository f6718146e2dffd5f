//! The addresses and ports that a rule compares.

use std::net::IpAddr;

use contiv_model::Protocol;

use crate::{
    nftables::netlink::constants::expr,
    packet_path::{
        ruleset::{Expression, Rule, Ruleset, Verdict, XtMatch},
        stored_rules::{StoredSets, address, protocol},
    },
};

/// What a rule compares.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// The ranges of sources, with both ends included, whether they match or all others do.
    pub(super) sources: Vec<(IpAddr, IpAddr)>,
    /// Those of them of which all others match.
    pub(super) other_sources: Vec<(IpAddr, IpAddr)>,
    /// An interface such that all others match, or all with a name that begins otherwise.
    pub(super) other_input: Option<String>,
    /// The ranges of destinations that match, with both ends included.
    pub(super) destinations: Vec<(IpAddr, IpAddr)>,
    /// The destination, if it is a single one.
    pub(super) destination: Option<IpAddr>,
    pub(super) protocol: Option<Protocol>,
    /// The destination port, if it is a single one.
    pub(super) port: Option<u16>,
    /// The chain where it leads.
    pub(super) chain: Option<String>,
}

/// A field in the register that was loaded last.
#[derive(Debug, Clone)]
enum Field {
    Source { mask: Option<Vec<u8>> },
    Destination { mask: Option<Vec<u8>> },
    Protocol,
    Port,
    Input,
    Other,
}

impl Conditions {
    /// Those of a rule in a chain.
    pub(super) fn of(ruleset: &Ruleset, sets: &StoredSets, chain: usize, rule: &Rule) -> Self {
        let is_v4 = ruleset.is_of_v4(chain);
        let mut conditions = Self::default();
        let mut field = Field::Other;
        for expression in ruleset.expressions(rule) {
            match &expression {
                Expression::Payload { base, offset, .. } => {
                    field = payload(*base, *offset, is_v4);
                }
                Expression::Meta { key, .. } => {
                    field = match *key {
                        expr::META_L4PROTO => Field::Protocol,
                        expr::META_IIFNAME => Field::Input,
                        _ => Field::Other,
                    };
                }
                Expression::Bitwise { mask, .. } => match &mut field {
                    Field::Source { mask: of_field } | Field::Destination { mask: of_field } => {
                        *of_field = Some(mask.clone());
                    }
                    _ => {}
                },
                Expression::Compare {
                    operator, value, ..
                } => conditions.compare(&field, *operator, value, is_v4),
                Expression::Range { low, high, .. } => {
                    if let (Field::Source { .. }, Some(low), Some(high)) =
                        (&field, address(low), address(high))
                    {
                        conditions.sources.push((low, high));
                    }
                }
                Expression::Lookup { set, .. } => {
                    let set = ruleset.set_beside(chain, set).and_then(|set| sets.get(set));
                    match (&field, set) {
                        (Field::Source { .. }, Some(set)) => {
                            conditions.sources.extend(set.addresses());
                        }
                        (Field::Destination { .. }, Some(set)) => {
                            conditions.destinations.extend(set.addresses());
                        }
                        _ => {}
                    }
                }
                Expression::Match(XtMatch::Ports { destination, .. })
                    if destination.low == destination.high && !destination.is_inverted =>
                {
                    conditions.port = Some(destination.low);
                }
                Expression::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => {
                    conditions.chain = Some(chain.clone());
                }
                _ => {}
            }
        }
        conditions
    }

    fn compare(&mut self, field: &Field, operator: u32, value: &[u8], is_v4: bool) {
        let range = |mask: &Option<Vec<u8>>| {
            let len = if is_v4 { 4 } else { 16 };
            let mut mask = mask.clone().unwrap_or_else(|| vec![u8::MAX; value.len()]);
            let mut low = value.to_vec();
            low.resize(len, 0);
            mask.resize(len, 0);
            let high: Vec<u8> = low
                .iter()
                .zip(&mask)
                .map(|(byte, mask)| byte | !mask)
                .collect();
            address(&low).zip(address(&high))
        };
        match field {
            Field::Source { mask } => {
                self.sources.extend(range(mask));
                if operator == expr::CMP_NEQ {
                    self.other_sources.extend(range(mask));
                }
            }
            Field::Input if operator == expr::CMP_NEQ => {
                let name = value.split(|byte| *byte == 0).next();
                let name = name.and_then(|name| std::str::from_utf8(name).ok());
                self.other_input = name.map(|name| {
                    // Without an end it is the beginning of many names.
                    let is_beginning = !value.contains(&0);
                    format!("{name}{}", if is_beginning { "0" } else { "" })
                });
            }
            _ if operator != expr::CMP_EQ => {}
            Field::Destination { mask } => {
                self.destinations.extend(range(mask));
                let single = range(mask).filter(|(low, high)| low == high);
                self.destination = single.map(|(address, _)| address);
            }
            Field::Protocol => self.protocol = value.first().copied().and_then(protocol),
            Field::Port => {
                let port = value.try_into().ok().map(u16::from_be_bytes);
                self.port = port;
            }
            Field::Input | Field::Other => {}
        }
    }
}

/// The field at a place of a header.
const fn payload(base: u32, offset: usize, is_v4: bool) -> Field {
    let (source, destination, protocol) = if is_v4 { (12, 16, 9) } else { (8, 24, 6) };
    if base == expr::PAYLOAD_NETWORK_HEADER {
        if offset == source {
            return Field::Source { mask: None };
        } else if offset == destination {
            return Field::Destination { mask: None };
        } else if offset == protocol {
            return Field::Protocol;
        }
    } else if base == expr::PAYLOAD_TRANSPORT_HEADER && offset == 2 {
        return Field::Port;
    }
    Field::Other
}
