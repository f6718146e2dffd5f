//! Evaluates matches of iptables.

use std::net::{IpAddr, SocketAddr};

use contiv_model::Protocol;

use super::{
    Network, PathError, Route, RouteQuery,
    fields::{LOOPBACK, address_type},
    registers::Answer,
    ruleset::{
        AddressTypes, ConntrackMatch, MarkMatch, PortChoice, XtMatch, address_like, conntrack_flag,
    },
    state::{PacketState, Tracking},
};

/// Whether a packet matches.
///
/// # Errors
/// When the kernel cannot be asked for the kind of an address.
pub(super) fn matches(
    condition: &XtMatch,
    state: &PacketState,
    network: &mut dyn Network,
) -> Result<Answer, PathError> {
    Ok(match condition {
        XtMatch::Comment(_) | XtMatch::Always => Answer::Yes,
        XtMatch::Conntrack(condition) => conntrack(condition, state),
        XtMatch::State(states) => (states & connection_state(state, 1 << 6) != 0).into(),
        // Only packets of the protocol are compared.
        XtMatch::Ports { .. } | XtMatch::Multiport { .. } if state.is_size_error => Answer::No,
        XtMatch::Ports {
            source,
            destination,
            flags,
        } => {
            let has_flags = flags.is_none_or(|(mask, value, is_inverted)| {
                (state.tcp_flags() & mask == value) != is_inverted
            });
            let has_ports = source.contains(state.source.port())
                && destination.contains(state.destination.port());
            (has_ports && has_flags).into()
        }
        XtMatch::Multiport {
            choice,
            ranges,
            is_inverted,
        } => {
            let contains = |end: SocketAddr| {
                (ranges.iter()).any(|(low, high)| (*low..=*high).contains(&end.port()))
            };
            let is_contained = match choice {
                PortChoice::Source => contains(state.source),
                PortChoice::Destination => contains(state.destination),
                PortChoice::Either => contains(state.source) || contains(state.destination),
            };
            (is_contained != *is_inverted).into()
        }
        XtMatch::AddressTypes(types) => address_types(types, state, network)?,
        XtMatch::Mark(mark) => matches_mark(*mark, state.mark, state.unknown_mark, "mark"),
        XtMatch::ConnectionMark(_) if state.connection.tracking != Tracking::Tracked => Answer::No,
        XtMatch::ConnectionMark(mark) => {
            let connection = &state.connection;
            matches_mark(*mark, connection.mark, connection.unknown_mark, "connmark")
        }
        XtMatch::AddressRanges {
            source,
            destination,
        } => {
            let contains = |range: &Option<([u8; 16], [u8; 16], bool)>, address: IpAddr| {
                range.is_none_or(|(low, high, is_inverted)| {
                    let range = address_like(low, address)..=address_like(high, address);
                    range.contains(&address) != is_inverted
                })
            };
            let matches = contains(source, state.source.ip())
                && contains(destination, state.destination.ip());
            matches.into()
        }
        // All packets are for this machine: `PACKET_HOST`.
        XtMatch::PacketType { kind, is_inverted } => ((*kind == 0) != *is_inverted).into(),
        XtMatch::ReversePath {
            is_loose,
            accepts_local,
            has_mark,
            is_inverted,
        } => {
            let input = state.input.as_ref();
            let has_path = if input.is_none_or(|input| &*input.0 == LOOPBACK) {
                true
            } else {
                let route = network.route(&RouteQuery {
                    source: None,
                    destination: state.source.ip(),
                    input: None,
                    mark: if *has_mark { state.mark } else { 0 },
                    ports: None,
                })?;
                match route {
                    Route::Unicast { interface, .. } => *is_loose || input == Some(&interface),
                    Route::Local => *accepts_local,
                    _ => false,
                }
            };
            (has_path != *is_inverted).into()
        }
        XtMatch::Icmp { .. } if !state.is_size_error => Answer::No,
        XtMatch::Icmp {
            kind,
            codes: (low, high),
            is_inverted,
        } => {
            let (own_kind, code) = state.error_type();
            let is_any = *kind == u8::MAX && state.is_v4();
            let is_so = is_any || (*kind == own_kind && (*low..=*high).contains(&code));
            (is_so != *is_inverted).into()
        }
        XtMatch::Owner if !state.is_sent_here => Answer::No,
        XtMatch::Owner => Answer::Unknown("match owner of iptables".to_owned()),
        XtMatch::Never => Answer::No,
        // Answered by what is looked up.
        XtMatch::Random => Answer::Unknown("match statistic of iptables".to_owned()),
        XtMatch::Recent(_) => Answer::Unknown("match recent of iptables".to_owned()),
        XtMatch::Set(_) => Answer::Unknown("match set of iptables".to_owned()),
        XtMatch::Unknown(name) => Answer::Unknown(format!("match {name} of iptables")),
    })
}

fn matches_mark(condition: MarkMatch, mark: u32, unknown: u32, name: &str) -> Answer {
    let MarkMatch {
        mark: value,
        mask,
        is_inverted,
    } = condition;
    let differs = (mark ^ value) & mask & !unknown != 0 || value & !mask != 0;
    let answer = if differs {
        Answer::No
    } else if unknown & mask == 0 {
        Answer::Yes
    } else {
        Answer::Unknown(format!("match {name} of iptables"))
    };
    answer.inverted_if(is_inverted)
}

/// The state of the connection as iptables has it: one bit. That of an untracked packet depends on the match.
fn connection_state(state: &PacketState, untracked: u32) -> u32 {
    const INVALID: u32 = 1 << 0;
    const ESTABLISHED: u32 = 1 << 1;
    const RELATED: u32 = 1 << 2;
    const NEW: u32 = 1 << 3;
    match state.connection.tracking {
        Tracking::NotYet | Tracking::Invalid => INVALID,
        Tracking::Untracked => untracked,
        Tracking::Tracked if state.is_size_error => RELATED,
        Tracking::Tracked if !state.connection.is_new => ESTABLISHED,
        Tracking::Tracked => NEW,
    }
}

/// `conntrack_mt`
fn conntrack(condition: &ConntrackMatch, state: &PacketState) -> Answer {
    const UNTRACKED: u32 = 1 << 8;
    const SOURCE_TRANSLATED: u32 = 1 << 6;
    const DESTINATION_TRANSLATED: u32 = 1 << 7;
    let connection = &state.connection;
    let is_tracked = connection.tracking == Tracking::Tracked;
    let has = |flag: u16| condition.flags & flag != 0;
    // A condition that the match has, and whether it holds.
    let holds = |flag: u16, is_so: bool| !has(flag) || is_so != (condition.inverted & flag != 0);
    let mut states = connection_state(state, UNTRACKED);
    if is_tracked {
        let (is_source_translated, is_destination_translated) = state.translations();
        states |= if is_source_translated {
            SOURCE_TRANSLATED
        } else {
            0
        };
        states |= if is_destination_translated {
            DESTINATION_TRANSLATED
        } else {
            0
        };
    }
    if !holds(
        conntrack_flag::STATE,
        u32::from(condition.states) & states != 0,
    ) {
        return Answer::No;
    }
    if !is_tracked {
        return has(conntrack_flag::STATE).into();
    }
    let ends = [
        connection.original.0,
        connection.original.1,
        connection.reply.0,
        connection.reply.1,
    ];
    let has_addresses =
        (condition.addresses.iter().zip(ends))
            .enumerate()
            .all(|(number, (wanted, end))| {
                holds(
                    conntrack_flag::FIRST_ADDRESS << number,
                    is_in_network(end.ip(), wanted.address, wanted.mask),
                )
            });
    let has_ports =
        (condition.ports.iter().zip(ends))
            .enumerate()
            .all(|(number, ((low, high), end))| {
                holds(
                    conntrack_flag::FIRST_PORT << number,
                    (*low..=*high).contains(&end.port()),
                )
            });
    let is_so = has_addresses
        && has_ports
        && holds(
            conntrack_flag::DIRECTION,
            // The match without an inversion is the original direction.
            connection.is_new,
        )
        && holds(
            conntrack_flag::PROTOCOL,
            condition.protocol == u16::from(state.protocol.number()),
        )
        && holds(
            conntrack_flag::STATUS,
            u32::from(condition.statuses) & state.connection_status() != 0,
        );
    if is_so && has(conntrack_flag::EXPIRES) {
        return Answer::Unknown("match conntrack --ctexpire of iptables".to_owned());
    }
    is_so.into()
}

fn is_in_network(address: IpAddr, network: [u8; 16], mask: [u8; 16]) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let (network, mask) = (address_like(network, address), address_like(mask, address));
    (bits(address) ^ bits(network)) & bits(mask) == 0
}

/// `addrtype`
fn address_types(
    types: &AddressTypes,
    state: &PacketState,
    network: &mut dyn Network,
) -> Result<Answer, PathError> {
    const LOCAL: u16 = 1 << 2;
    let mut has_kind = |kinds: u16, end: SocketAddr, is_inverted: bool| {
        if kinds == 0 {
            return Ok(Answer::Yes);
        }
        let bit = 1_u16 << address_type(network.address_kind(end.ip())?, state.is_v4());
        let answer = if types.is_of_interface && bit == LOCAL {
            Answer::Unknown("match addrtype --limit-iface of iptables".to_owned())
        } else {
            (kinds & bit != 0).into()
        };
        Ok(answer.inverted_if(is_inverted))
    };
    let source = has_kind(types.sources, state.source, types.is_source_inverted)?;
    let destination = has_kind(
        types.destinations,
        state.destination,
        types.is_destination_inverted,
    )?;
    Ok(source.and(destination))
}

/// Whether a target for packets of TCP only concerns this one.
pub(super) fn is_concerned(state: &PacketState, is_for_tcp_only: bool) -> bool {
    !is_for_tcp_only || (state.protocol == Protocol::Tcp && !state.is_answer)
}
