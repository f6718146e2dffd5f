//! The rules of some tables with all elements of their sets, in memory: so that very many connections are followed quickly, and a random
//! choice in each way.

mod outcome;
mod sets;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use contiv_model::{
    FlowEnd, Frontend, InterfaceName, NodeFacts, Protocol, ServiceId, VerdictKind,
    trace::{Affinity, Client, Flow},
};

use self::outcome::{NodeNetwork, Outcome, UPLINK};
pub use self::sets::ReadProgress;
pub(super) use self::sets::{StoredElement, StoredSets, address};
use super::{
    OwnVerdict, Packet, PathError, StopKind, Walk, WalkEnd, WalkStep, follow, ruleset::Ruleset,
};

/// How many ways are followed through the rules for one connection.
const MAX_OUTCOMES: usize = 20_000;
/// A port of clients; no rule of a proxy depends on it.
const CLIENT_PORT: u16 = 40_000;

/// The rules of tables, and the elements of their sets.
#[derive(Debug, Default)]
pub(super) struct StoredRules {
    pub(super) ruleset: Ruleset,
    pub(super) sets: StoredSets,
    /// Only maps keep the backends of clients.
    pub(super) keeps_in_maps: bool,
}

/// A frontend that the rules of a proxy name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyFrontend {
    /// The service, if a rule or an element says so.
    pub service: Option<ServiceId>,
    /// The ranges of sources that rules for it compare, with both ends included.
    pub source_ranges: Vec<(IpAddr, IpAddr)>,
}

impl StoredRules {
    /// How a new connection ends by the rules, for a client whose earlier connections are forgotten. Several ends depend on chance.
    ///
    /// # Errors
    /// When rules have a condition that cannot be evaluated.
    pub(super) fn ends(
        &self,
        flow: &Flow,
        node: &NodeFacts,
    ) -> Result<BTreeSet<FlowEnd>, PathError> {
        let is_sent_here = Client::of(flow, node) == Client::Node;
        let input = || flow.interface().cloned();
        let packet = Packet {
            protocol: flow.protocol(),
            source: SocketAddr::new(flow.from(), CLIENT_PORT),
            destination: SocketAddr::new(flow.to(), flow.port()),
            input: (!is_sent_here).then(|| input().unwrap_or_else(|| InterfaceName::new(UPLINK))),
        };
        let mut found: BTreeMap<(VerdictKind, Affinity), FlowEnd> = BTreeMap::new();
        let mut outcome = Outcome::new(&self.sets, self.keeps_in_maps);
        for _ in 0..MAX_OUTCOMES {
            let mut network = NodeNetwork(node);
            let own = OwnVerdict::Untouched;
            let walk = follow::walk_first(&self.ruleset, &packet, own, &mut network, &mut outcome)?;
            if let Some(doubt) = walk.doubts.iter().find(|doubt| doubt.is_harmful) {
                return Err(PathError(format!("{}: {}", doubt.rule, doubt.condition)));
            }
            let (verdict, backend) = verdict_of(&walk, packet.destination)?;
            let affinity = if backend.is_some() {
                outcome.affinity()
            } else {
                Affinity::None
            };
            let end = found.entry((verdict, affinity)).or_insert_with(|| FlowEnd {
                affinity,
                ..FlowEnd::without_backends(verdict)
            });
            let changes_source = |step: &WalkStep| matches!(step, WalkStep::SourceChanged { .. });
            // What this node sends to itself has one of its addresses in any case.
            let is_masqueraded = walk.steps.iter().any(changes_source);
            let hidden =
                backend.filter(|backend| is_masqueraded && !node.is_local_address(backend.ip()));
            end.backends.extend(backend);
            end.masqueraded.extend(hidden);
            if !outcome.advance() {
                return Ok(found.into_values().collect());
            }
        }
        Err(PathError(format!(
            "the rules have more than {MAX_OUTCOMES} ways for one connection"
        )))
    }
}

/// The verdict on a packet that went this way, with the backend.
fn verdict_of(
    walk: &Walk,
    destination: SocketAddr,
) -> Result<(VerdictKind, Option<SocketAddr>), PathError> {
    Ok(match &walk.end {
        WalkEnd::Local {
            destination: to, ..
        }
        | WalkEnd::Sent {
            destination: to, ..
        } => {
            if *to == destination {
                (VerdictKind::NoService, None)
            } else if to.port() == 0 {
                // Nobody has this port: so the agent rejects datagrams of this node to itself.
                (VerdictKind::Rejected, None)
            } else {
                (VerdictKind::Served, Some(*to))
            }
        }
        WalkEnd::Stopped {
            kind: StopKind::Drops,
            ..
        } => (VerdictKind::Dropped, None),
        WalkEnd::Stopped {
            kind: StopKind::Rejects,
            ..
        } => (VerdictKind::Rejected, None),
        WalkEnd::Stopped { by, .. } => {
            return Err(PathError(format!("{by} passes it to another program")));
        }
        WalkEnd::OwnTable | WalkEnd::NotRouted(_) => {
            return Err(PathError("it has no route".to_owned()));
        }
    })
}

/// The transport protocol of a number.
pub(super) const fn protocol(number: u8) -> Option<Protocol> {
    match number {
        6 => Some(Protocol::Tcp),
        17 => Some(Protocol::Udp),
        132 => Some(Protocol::Sctp),
        _ => None,
    }
}

/// The frontend of a key: address, protocol and port, or protocol and port. Each field has a multiple of four bytes.
pub(super) fn frontend_of(key: &[u8]) -> Option<Frontend> {
    const FIELD: usize = 4;
    let (to, rest) = key.split_at_checked(key.len().checked_sub(2 * FIELD)?)?;
    let protocol = protocol(*rest.first()?)?;
    let port = u16::from_be_bytes(rest.get(FIELD..FIELD + 2)?.try_into().ok()?);
    if to.is_empty() {
        return Some(Frontend::NodePort { protocol, port });
    }
    Some(Frontend::Address {
        address: address(to)?,
        protocol,
        port,
    })
}
