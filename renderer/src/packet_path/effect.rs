//! What a rule does with a packet that matches it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{
    Hook, Network, PathError, Route, RouteQuery, StopKind,
    lookups::RuleLookups,
    registers::Registers,
    ruleset::{NatRange, RegisterRange, Verdict, address_like},
    state::{PacketState, address_bytes},
};

/// A translation. One that is not known says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Translation {
    Destination(Result<SocketAddr, String>),
    Source(Result<SocketAddr, String>),
    /// To an address of this node.
    Masquerade(SocketAddr),
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Verdict(Verdict),
    /// The packet ends, with the name of the statement.
    Stop(StopKind, &'static str),
    Untrack,
    /// The new mark, and its unknown bits.
    Mark {
        mark: u32,
        unknown: u32,
    },
    MarkConnection {
        mark: u32,
        unknown: u32,
    },
    /// The new priority; none if it is unknown.
    Prioritize(Option<[u8; 4]>),
    Translate(Translation),
    /// Segments of the other side become smaller.
    ClampSegments,
    /// Something that is not evaluated.
    Unknown {
        condition: String,
        text: String,
        is_harmful: bool,
    },
}

impl Effect {
    pub(super) fn unknown(condition: &str, text: &str, is_harmful: bool) -> Self {
        Self::Unknown {
            condition: condition.to_owned(),
            text: text.to_owned(),
            is_harmful,
        }
    }

    /// Whether it is worth to be recorded if the rule is not certain to match.
    pub(super) fn is_notable(&self) -> bool {
        !matches!(
            self,
            Self::Verdict(Verdict::Continue)
                | Self::MarkConnection { .. }
                | Self::ClampSegments
                | Self::Prioritize(_)
        )
    }

    /// Whether no expression of the rule follows.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Verdict(_) | Self::Stop(..) | Self::Translate(_))
    }

    /// Whether it stops the packet, changes its addresses or hides it from conntrack. Chains are not looked into.
    pub(super) fn is_harmful(&self) -> bool {
        match self {
            Self::Verdict(verdict) => matches!(verdict, Verdict::Drop | Verdict::Queue { .. }),
            Self::Stop(..) | Self::Untrack | Self::Translate(_) => true,
            Self::Mark { .. }
            | Self::MarkConnection { .. }
            | Self::ClampSegments
            | Self::Prioritize(_) => false,
            Self::Unknown { is_harmful, .. } => *is_harmful,
        }
    }

    /// What of it is not known, even if the rule matches.
    pub(super) fn unknown_part(&self) -> Option<String> {
        match self {
            Self::Translate(
                Translation::Destination(Err(reason)) | Translation::Source(Err(reason)),
            )
            | Self::Unknown {
                condition: reason, ..
            } => Some(reason.clone()),
            _ => None,
        }
    }

    /// It may have happened: marks that it may have changed are unknown then.
    pub(super) fn make_unknown(&self, state: &mut PacketState) {
        match self {
            Self::Mark { mark, unknown } => {
                state.unknown_mark |= (mark ^ state.mark) | unknown;
            }
            Self::MarkConnection { mark, unknown } => {
                let connection = &mut state.connection;
                connection.unknown_mark |= (mark ^ connection.mark) | unknown;
            }
            Self::Prioritize(_) => state.priority = None,
            _ => {}
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(Verdict::Accept) => f.write_str("accept"),
            Self::Verdict(Verdict::Drop) => f.write_str("drop"),
            Self::Verdict(Verdict::Queue { .. }) => f.write_str("queue"),
            Self::Verdict(Verdict::Continue) => f.write_str("continue"),
            Self::Verdict(Verdict::Return) => f.write_str("return"),
            Self::Verdict(Verdict::Jump(chain)) => write!(f, "jump {chain}"),
            Self::Verdict(Verdict::Goto(chain)) => write!(f, "goto {chain}"),
            Self::Stop(_, name) => f.write_str(name),
            Self::Untrack => f.write_str("notrack"),
            Self::Mark { mark, .. } => write!(f, "mark {mark:#x}"),
            Self::MarkConnection { mark, .. } => write!(f, "ct mark {mark:#x}"),
            Self::Prioritize(_) => f.write_str("priority"),
            Self::Translate(Translation::Destination(Ok(to))) => write!(f, "dnat to {to}"),
            Self::Translate(Translation::Source(Ok(to))) => write!(f, "snat to {to}"),
            Self::Translate(Translation::Destination(Err(_))) => f.write_str("dnat"),
            Self::Translate(Translation::Source(Err(_))) => f.write_str("snat"),
            Self::Translate(Translation::Masquerade(_)) => f.write_str("masquerade"),
            Self::ClampSegments => f.write_str("clamp segments"),
            Self::Unknown { text, .. } => f.write_str(text),
        }
    }
}

impl Translation {
    fn new(is_destination: bool, to: Result<SocketAddr, String>) -> Self {
        if is_destination {
            Self::Destination(to)
        } else {
            Self::Source(to)
        }
    }

    fn current(is_destination: bool, state: &PacketState) -> SocketAddr {
        if is_destination {
            state.destination
        } else {
            state.source
        }
    }

    /// As the expression `nat` has it.
    pub(super) fn of_registers(
        is_destination: bool,
        address: Option<RegisterRange>,
        port: Option<RegisterRange>,
        registers: &Registers,
        state: &PacketState,
    ) -> Self {
        let mut to = Self::current(is_destination, state);
        let mut translate = || {
            if let Some((low, high)) = address {
                let len = address_bytes(to.ip()).len();
                let (low, high) = (registers.read(low, len), registers.read(high, len));
                if !low.is_known() || !high.is_known() {
                    return Err(low.reason + &high.reason);
                }
                if low.bytes != high.bytes {
                    return Err("one of several addresses".to_owned());
                }
                let mut bytes = [0; 16];
                bytes
                    .iter_mut()
                    .zip(&low.bytes)
                    .for_each(|(to, from)| *to = *from);
                to.set_ip(address_like(bytes, to.ip()));
            }
            if let Some(port) = port {
                to.set_port(Self::port(port, registers)?);
            }
            Ok(to)
        };
        let to = translate();
        Self::new(is_destination, to)
    }

    /// As the targets `DNAT` and `SNAT` have it.
    pub(super) fn of_range(is_destination: bool, range: &NatRange, state: &PacketState) -> Self {
        let mut to = Self::current(is_destination, state);
        let mut translate = || {
            if let Some((low, high)) = range.addresses {
                let address = address_like(low, to.ip());
                if address_like(high, to.ip()) != address {
                    return Err("one of several addresses".to_owned());
                }
                to.set_ip(address);
            }
            if let Some(port) = Self::port_of_range(range) {
                to.set_port(port?);
            }
            Ok(to)
        };
        let to = translate();
        Self::new(is_destination, to)
    }

    /// The port in registers.
    pub(super) fn port((low, high): RegisterRange, registers: &Registers) -> Result<u16, String> {
        let (low, high) = (registers.read(low, 2), registers.read(high, 2));
        if !low.is_known() || !high.is_known() {
            return Err(low.reason + &high.reason);
        }
        if low.bytes != high.bytes {
            return Err("one of several ports".to_owned());
        }
        let port = low.bytes.first_chunk().copied();
        Ok(port.map_or(0, u16::from_be_bytes))
    }

    /// The port of a range; none if ports stay.
    pub(super) fn port_of_range(range: &NatRange) -> Option<Result<u16, String>> {
        let (low, high) = range.ports?;
        Some(if low == high {
            Ok(low)
        } else {
            Err("one of several ports".to_owned())
        })
    }

    /// To this node: to the address of the interface by which the packet comes in, or its own.
    pub(super) fn redirect(
        hook: Hook,
        port: Option<Result<u16, String>>,
        state: &PacketState,
        lookups: &mut dyn RuleLookups,
    ) -> Self {
        let address = if hook == Hook::Output {
            Some(if state.is_v4() {
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            } else {
                IpAddr::V6(Ipv6Addr::LOCALHOST)
            })
        } else {
            let input = state.input.as_ref();
            input.and_then(|input| lookups.interface_address(input, state.is_v4()))
        };
        let address = address.ok_or_else(|| "the address of an interface".to_owned());
        let port = port.unwrap_or(Ok(state.destination.port()));
        Self::Destination(
            address.and_then(|address| port.map(|port| SocketAddr::new(address, port))),
        )
    }
}

/// The source that a masqueraded packet gets: the address of this node that its route has, or else one of the interface.
///
/// # Errors
/// When the kernel cannot be asked for the route.
pub(super) fn masquerade_source(
    state: &PacketState,
    network: &mut dyn Network,
    lookups: &mut dyn RuleLookups,
) -> Result<SocketAddr, PathError> {
    let route = network.route(&RouteQuery {
        source: None,
        input: None,
        ..state.route_query()
    })?;
    let of_route = match route {
        Route::Unicast {
            source, interface, ..
        } if state.output.as_ref() == Some(&interface) => source,
        _ => None,
    };
    let of_interface = || {
        let output = state.output.as_ref()?;
        lookups.interface_address(output, state.is_v4())
    };
    let address = of_route.or_else(of_interface).unwrap_or(state.source.ip());
    Ok(SocketAddr::new(address, state.source.port()))
}
