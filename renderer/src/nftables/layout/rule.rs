//! Rules: their statements and expressions, and their text in nft's language.
//!
//! Everything else follows from these types: `skeleton.nft` and `contiv render` print them, `bytecode` encodes them for the
//! kernel, and `evaluate` executes them for `contiv trace`.

use std::fmt::{self, Display};

use contiv_model::Protocol;
use ipnetwork::IpNetwork;

use super::{Family, Field, PROTOCOLS, Set};
use crate::nftables::netlink::constants::expr;

/// A rule of a chain.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// Why it is there: the comment above it.
    pub(super) reason: &'static str,
    /// Executed in this order, until one does not match or ends the rule.
    pub(crate) statements: Vec<Statement>,
}

/// Fields that make a key together.
pub(crate) type Key = Vec<Field>;

/// A statement of a rule: exactly those of which nft itself would make the same expressions. Others would work in the kernel,
/// but make `nft list ruleset` abort.
#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// Matches if the field is this constant, or is not.
    Match(Field, Comparison, Constant),
    /// Matches the protocols of services, all with ports: [`PROTOCOLS`].
    MatchProtocols,
    /// Matches if at least one of these flags is set.
    MatchAny(&'static [Flag]),
    /// Matches if the key is in the set, or is not.
    MatchSet(Key, Comparison, Set),
    /// Sets the packet's priority to 0.
    ResetPriority,
    /// Sets the packet's priority to the number that the map has for the key; ends the rule if it has none.
    SetPriority(Key, Set),
    /// Follows the verdict that the map has for the key.
    Vmap(Key, Set),
    /// Translates the destination to what the map has for the key, or without a map to the key; ends the rule if there is
    /// nothing.
    Dnat(Family, Key, Option<Set>),
    /// Translates the destination to the same address, and to this port.
    DnatToPort(Family, u16),
    /// Stores the data in the map under the key, for so many seconds.
    Update {
        map: Set,
        key: Key,
        timeout: u32,
        data: Key,
    },
    /// Adds the key to the set, or refreshes its time there. An element with a counter counts one more. Ends the rule if the
    /// set is full.
    Record(Set, Key),
    /// Translates the source to the value of the field; the port stays if it is free.
    Snat(Family, Field),
    /// Translates the source to what the map has for the field, with a random port; ends the rule if there is nothing.
    SnatByMap(Family, Field, Set),
    Masquerade,
    RejectWithTcpReset,
    /// Answers that the port is unreachable, by ICMP or ICMPv6.
    Reject,
    Counter,
    /// Ends the base chain.
    Accept,
    Drop,
    Goto(&'static str),
    Jump(&'static str),
}

/// Whether a match is for equal values (or members of a set), or for all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Is,
    IsNot,
}

/// A constant to compare a field with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constant {
    Family(Family),
    Protocol(Protocol),
    Interface(&'static str),
    /// Any address of a range that has more than one bit of prefix.
    Range(IpNetwork),
    /// The type of an address of this node.
    Local,
    Number(u32),
}

/// A flag of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    StateInvalid,
    StateNew,
    /// It is not the first packet: that one has passed all hooks.
    StatusConfirmed,
    /// Both sides have spoken as the protocol demands: the handshake is over.
    StatusAssured,
    /// The destination is translated.
    StatusDnat,
}

impl Statement {
    /// The fields that it reads first.
    fn fields(&self) -> &[Field] {
        match self {
            Self::Match(field, ..) | Self::Snat(_, field) | Self::SnatByMap(_, field, _) => {
                std::slice::from_ref(field)
            }
            Self::MatchSet(key, ..)
            | Self::SetPriority(key, _)
            | Self::Vmap(key, _)
            | Self::Dnat(_, key, _)
            | Self::Update { key, .. }
            | Self::Record(_, key) => key,
            Self::DnatToPort(Family::V4, _) => &[Field::Daddr(Family::V4)],
            Self::DnatToPort(Family::V6, _) => &[Field::Daddr(Family::V6)],
            Self::MatchProtocols
            | Self::MatchAny(_)
            | Self::ResetPriority
            | Self::Masquerade
            | Self::RejectWithTcpReset
            | Self::Reject
            | Self::Counter
            | Self::Accept
            | Self::Drop
            | Self::Goto(_)
            | Self::Jump(_) => &[],
        }
    }

    /// The family whose packets it matches because it reads their header: nft adds the match, and does not print it.
    pub(crate) fn header(&self) -> Option<Family> {
        self.fields().iter().find_map(|field| field.header())
    }
}

impl Flag {
    pub(super) const fn field(self) -> Field {
        match self {
            Self::StateInvalid | Self::StateNew => Field::CtState,
            Self::StatusConfirmed | Self::StatusAssured | Self::StatusDnat => Field::CtStatus,
        }
    }

    pub(super) const fn bit(self) -> u32 {
        match self {
            Self::StateInvalid => expr::CT_STATE_INVALID,
            Self::StateNew => expr::CT_STATE_NEW,
            Self::StatusConfirmed => expr::CT_STATUS_CONFIRMED,
            Self::StatusAssured => expr::CT_STATUS_ASSURED,
            Self::StatusDnat => expr::CT_STATUS_DNAT,
        }
    }
}

impl Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StateInvalid => "invalid",
            Self::StateNew => "new",
            Self::StatusConfirmed => "confirmed",
            Self::StatusAssured => "assured",
            Self::StatusDnat => "dnat",
        })
    }
}

impl Display for Comparison {
    /// With a space before the compared value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Is => "",
            Self::IsNot => "!= ",
        })
    }
}

impl Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(family) => write!(f, "ipv{}", family.digit()),
            Self::Protocol(protocol) => write!(f, "{protocol}"),
            Self::Interface(name) => write!(f, "\"{name}\""),
            Self::Range(range) => write!(f, "{range}"),
            Self::Local => f.write_str("local"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Display for Rule {
    /// In nft's syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.statements, " "))
    }
}

impl Display for Statement {
    /// In nft's syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |set: &Set| set.name();
        let key = |key: &Key| joined(key, " . ");
        match self {
            Self::Match(field, comparison, constant) => write!(f, "{field} {comparison}{constant}"),
            Self::MatchProtocols => {
                write!(f, "{} {{ {} }}", Field::L4Proto, joined(&PROTOCOLS, ", "))
            }
            Self::MatchAny(flags) => {
                let fields = flags.iter().map(|flag| flag.field());
                let field = fields
                    .take(1)
                    .map(|field| field.to_string())
                    .collect::<String>();
                write!(f, "{field} {}", joined(flags, ","))
            }
            Self::MatchSet(fields, comparison, set) => {
                write!(f, "{} {comparison}@{}", key(fields), name(set))
            }
            Self::ResetPriority => write!(f, "{} set none", Field::Priority),
            Self::SetPriority(fields, map) => {
                write!(
                    f,
                    "{} set {} map @{}",
                    Field::Priority,
                    key(fields),
                    name(map)
                )
            }
            Self::Vmap(fields, map) => write!(f, "{} vmap @{}", key(fields), name(map)),
            Self::Dnat(family, fields, map) => {
                write!(f, "dnat {} to {}", family.nft(), key(fields))?;
                map.map_or(Ok(()), |map| write!(f, " map @{}", map.name()))
            }
            Self::DnatToPort(family, port) => {
                write!(
                    f,
                    "dnat {} to {}:{port}",
                    family.nft(),
                    Field::Daddr(*family)
                )
            }
            Self::Update {
                map,
                key: fields,
                timeout,
                data,
            } => {
                let (fields, data) = (key(fields), key(data));
                write!(
                    f,
                    "update @{} {{ {fields} timeout {timeout}s : {data} }}",
                    name(map)
                )
            }
            Self::Record(set, fields) => write!(f, "update @{} {{ {} }}", name(set), key(fields)),
            Self::Snat(family, field) => write!(f, "snat {} to {field}", family.nft()),
            Self::SnatByMap(family, field, map) => {
                write!(
                    f,
                    "snat {} to {field} map @{} fully-random",
                    family.nft(),
                    name(map)
                )
            }
            Self::Masquerade => f.write_str("masquerade fully-random"),
            Self::RejectWithTcpReset => f.write_str("reject with tcp reset"),
            Self::Reject => f.write_str("reject"),
            Self::Counter => f.write_str("counter"),
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
        }
    }
}

fn joined(items: &[impl Display], separator: &str) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(separator)
}
