//! Follows a packet through the hooks, in the kernel's order, with the routing between them.

use std::net::SocketAddr;

use contiv_model::InterfaceName;

use super::{
    ChainRef, Doubt, Hook, Network, OwnVerdict, Packet, PathError, Route, RouteQuery, RuleRef,
    SizeError, Walk, WalkEnd, WalkStep,
    effect::masquerade_source,
    evaluate::{ChainEnd, Record, Sources, run_base_chain},
    fields::LOOPBACK,
    lookups::RuleLookups,
    ruleset::{ChainKind, Ruleset},
    state::{Connection, PacketState, Tracking},
};

/// Where conntrack sees packets: `NF_IP_PRI_CONNTRACK`.
const CONNTRACK_PRIORITY: i32 = -200;
/// Where destinations are translated, whatever the priorities of the nat chains are: `NF_IP_PRI_NAT_DST`.
const DESTINATION_NAT_PRIORITY: i32 = -100;
/// The same for sources: `NF_IP_PRI_NAT_SRC`.
const SOURCE_NAT_PRIORITY: i32 = 100;

/// Follows the first packet of a connection through this node.
///
/// # Errors
/// When the kernel cannot be asked for a route.
pub(super) fn walk_first(
    ruleset: &Ruleset,
    packet: &Packet,
    own: OwnVerdict,
    network: &mut dyn Network,
    lookups: &mut dyn RuleLookups,
) -> Result<Walk, PathError> {
    let ends = (packet.source, packet.destination);
    let state = PacketState {
        protocol: packet.protocol,
        source: packet.source,
        destination: packet.destination,
        input: packet.input.clone(),
        output: None,
        mark: 0,
        unknown_mark: 0,
        priority: None,
        is_answer: false,
        is_size_error: false,
        is_sent_here: packet.input.is_none(),
        connection: Connection {
            tracking: Tracking::NotYet,
            is_new: true,
            original: ends,
            reply: (ends.1, ends.0),
            mark: 0,
            unknown_mark: 0,
            is_destination_decided: false,
            is_source_decided: false,
        },
    };
    let record = Record {
        steps: Vec::new(),
        doubts: unread_rules(ruleset, packet.source.is_ipv4()),
    };
    Follower {
        sources: Sources {
            ruleset,
            network,
            lookups,
        },
        state,
        record,
        own,
        is_own_overruled: false,
    }
    .walk()
}

/// Follows the answer of the server to the first packet, which went this way; none if it reached no server.
///
/// # Errors
/// When the kernel cannot be asked for a route.
pub(super) fn walk_answer(
    ruleset: &Ruleset,
    packet: &Packet,
    first: &Walk,
    network: &mut dyn Network,
    lookups: &mut dyn RuleLookups,
) -> Result<Option<Walk>, PathError> {
    let Some((input, source, destination)) = answer_ends(first) else {
        return Ok(None);
    };
    let is_untracked = (first.steps.iter()).any(|step| matches!(step, WalkStep::Untracked(_)));
    let state = PacketState {
        protocol: packet.protocol,
        source,
        destination,
        output: None,
        mark: 0,
        unknown_mark: 0,
        priority: None,
        is_answer: true,
        is_size_error: false,
        is_sent_here: input.is_none(),
        input,
        connection: Connection {
            tracking: Tracking::NotYet,
            // To conntrack it is the first packet that it sees.
            is_new: is_untracked,
            original: (packet.source, packet.destination),
            reply: (source, destination),
            mark: first.connection_mark,
            unknown_mark: 0,
            is_destination_decided: true,
            is_source_decided: true,
        },
    };
    let follower = Follower {
        sources: Sources {
            ruleset,
            network,
            lookups,
        },
        state,
        record: Record::default(),
        own: OwnVerdict::Untouched,
        is_own_overruled: false,
    };
    follower.walk().map(Some)
}

/// Where the answer to a first packet comes in, its source and its destination; none if the packet reached no server.
fn answer_ends(first: &Walk) -> Option<(Option<InterfaceName>, SocketAddr, SocketAddr)> {
    match &first.end {
        WalkEnd::Local {
            source,
            destination,
        } => Some((None, *destination, *source)),
        WalkEnd::Sent {
            interface,
            source,
            destination,
            ..
        } => Some((Some(interface.clone()), *destination, *source)),
        WalkEnd::OwnTable | WalkEnd::Stopped { .. } | WalkEnd::NotRouted(_) => None,
    }
}

/// Follows the ICMP error about a packet of a connection that is too large; none if the first packet reached no server, or if the error
/// is for this node itself.
///
/// # Errors
/// When the kernel cannot be asked for a route.
pub(super) fn walk_size_error(
    ruleset: &Ruleset,
    packet: &Packet,
    first: &Walk,
    error: SizeError,
    network: &mut dyn Network,
    lookups: &mut dyn RuleLookups,
) -> Result<Option<Walk>, PathError> {
    let Some((interface, server, seen_source)) = answer_ends(first) else {
        return Ok(None);
    };
    let (input, source, destination) = match error {
        SizeError::ToClientFromBeyond => (interface, server.ip(), seen_source),
        SizeError::ToClient | SizeError::ToServer => {
            let destination = if error == SizeError::ToClient {
                packet.source
            } else {
                server
            };
            let route = network.route(&RouteQuery {
                source: None,
                destination: destination.ip(),
                input: None,
                mark: 0,
                ports: None,
            })?;
            let Route::Unicast {
                source: Some(source),
                ..
            } = route
            else {
                return Ok(None);
            };
            (None, source, destination)
        }
    };
    if error == SizeError::ToClientFromBeyond && input.is_none() {
        return Ok(None);
    }
    let state = PacketState {
        protocol: packet.protocol,
        source: SocketAddr::new(source, 0),
        destination,
        output: None,
        mark: 0,
        unknown_mark: 0,
        priority: None,
        is_answer: true,
        is_size_error: true,
        is_sent_here: input.is_none(),
        input,
        connection: Connection {
            tracking: Tracking::NotYet,
            is_new: false,
            original: (packet.source, packet.destination),
            reply: (server, seen_source),
            mark: first.connection_mark,
            unknown_mark: 0,
            is_destination_decided: true,
            is_source_decided: true,
        },
    };
    let follower = Follower {
        sources: Sources {
            ruleset,
            network,
            lookups,
        },
        state,
        record: Record::default(),
        own: OwnVerdict::Untouched,
        is_own_overruled: false,
    };
    follower.walk().map(Some)
}

/// What is known to be there and cannot be evaluated.
fn unread_rules(ruleset: &Ruleset, is_v4: bool) -> Vec<Doubt> {
    let of_family = |(family, _): &&(&str, String)| (*family == "ip") == is_v4;
    let legacy = ruleset.legacy().iter().filter(of_family);
    let legacy = legacy.map(|(family, names)| Doubt {
        rule: RuleRef {
            base: ChainRef {
                table: format!("{family} {names} of iptables-legacy"),
                chain: "all".to_owned(),
                hook: Hook::Prerouting,
                priority: 0,
            },
            chain: "all".to_owned(),
            handle: None,
            comment: String::new(),
        },
        condition: "rules of iptables-legacy cannot be evaluated".to_owned(),
        effect: "anything".to_owned(),
        is_harmful: true,
    });
    let bridges = ruleset.bridge_chains().map(|(chain, is_harmful)| Doubt {
        rule: ruleset.rule_ref(chain, chain, None),
        condition: "rules of bridges are not evaluated".to_owned(),
        effect: "anything, if the packet passes a bridge of this node".to_owned(),
        is_harmful,
    });
    legacy.chain(bridges).collect()
}

/// Something that happens at a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookEvent {
    Chain(usize),
    Conntrack,
    Nat,
}

/// A packet that is followed.
struct Follower<'a> {
    sources: Sources<'a>,
    state: PacketState,
    record: Record,
    own: OwnVerdict,
    /// The agent's table does not do what it would: the packet was translated before, or is untracked.
    is_own_overruled: bool,
}

/// Returns the end of the packet from the calling function, if there is one.
macro_rules! end_if_any {
    ($end:expr) => {
        if let Some(end) = $end? {
            return Ok(end);
        }
    };
}

impl Follower<'_> {
    fn walk(mut self) -> Result<Walk, PathError> {
        let end = if self.state.input.is_some() {
            self.receive()
        } else {
            self.send()
        }?;
        Ok(Walk {
            steps: self.record.steps,
            doubts: self.record.doubts,
            end,
            connection_mark: self.state.connection.mark,
        })
    }

    /// A packet that comes in by an interface.
    fn receive(&mut self) -> Result<WalkEnd, PathError> {
        end_if_any!(self.pass_hook(Hook::Ingress));
        end_if_any!(self.pass_hook(Hook::Prerouting));
        let route = self.route()?;
        let (interface, gateway) = match route {
            Route::Local => return self.deliver(),
            Route::Unicast {
                interface, gateway, ..
            } => (interface, gateway),
            other => return Ok(WalkEnd::NotRouted(other)),
        };
        self.state.output = Some(interface.clone());
        end_if_any!(self.pass_hook(Hook::Forward));
        end_if_any!(self.pass_hook(Hook::Postrouting));
        end_if_any!(self.pass_hook(Hook::Egress));
        Ok(self.sent(interface, gateway))
    }

    /// A packet that this node sends.
    fn send(&mut self) -> Result<WalkEnd, PathError> {
        let first_route = self.route()?;
        if let Some(end) = self.leave_by(&first_route) {
            return Ok(end);
        }
        let mut route = first_route;
        end_if_any!(self.pass_output(&mut route));
        end_if_any!(self.pass_hook(Hook::Postrouting));
        end_if_any!(self.pass_hook(Hook::Egress));
        if let Route::Unicast {
            interface, gateway, ..
        } = route
        {
            return Ok(self.sent(interface, gateway));
        }
        // It comes in again, and keeps its route.
        self.state.input = self.state.output.take();
        self.state.is_sent_here = false;
        end_if_any!(self.pass_hook(Hook::Ingress));
        end_if_any!(self.pass_hook(Hook::Prerouting));
        self.deliver()
    }

    fn deliver(&mut self) -> Result<WalkEnd, PathError> {
        end_if_any!(self.pass_hook(Hook::Input));
        Ok(WalkEnd::Local {
            source: self.state.source,
            destination: self.state.destination,
        })
    }

    fn sent(&self, interface: InterfaceName, gateway: Option<std::net::IpAddr>) -> WalkEnd {
        WalkEnd::Sent {
            interface,
            gateway,
            source: self.state.source,
            destination: self.state.destination,
        }
    }

    fn route(&mut self) -> Result<Route, PathError> {
        let route = self.sources.network.route(&self.state.route_query())?;
        self.record.steps.push(WalkStep::Routed(route.clone()));
        Ok(route)
    }

    /// The interface by which a packet of this node leaves; its end if there is none.
    fn leave_by(&mut self, route: &Route) -> Option<WalkEnd> {
        self.state.output = Some(match route {
            Route::Unicast { interface, .. } => interface.clone(),
            Route::Local => InterfaceName::new(LOOPBACK),
            other => return Some(WalkEnd::NotRouted(other.clone())),
        });
        None
    }

    /// The hook output: a packet that a nat or route chain changes is routed again.
    fn pass_output(&mut self, route: &mut Route) -> Result<Option<WalkEnd>, PathError> {
        for event in self.events(Hook::Output) {
            let before = (self.state.mark, self.state.source, self.state.destination);
            let end = self.handle(Hook::Output, event)?;
            if end.is_some() {
                return Ok(end);
            }
            let after = (self.state.mark, self.state.source, self.state.destination);
            let is_routed_again = match event {
                HookEvent::Chain(chain) => {
                    let base = self.sources.ruleset.base(chain);
                    base.is_some_and(|base| base.kind == ChainKind::Route) && before != after
                }
                HookEvent::Nat => before.2 != after.2,
                HookEvent::Conntrack => false,
            };
            if is_routed_again {
                *route = self.route()?;
                if let Some(end) = self.leave_by(route) {
                    return Ok(Some(end));
                }
            }
        }
        Ok(None)
    }

    fn pass_hook(&mut self, hook: Hook) -> Result<Option<WalkEnd>, PathError> {
        for event in self.events(hook) {
            let end = self.handle(hook, event)?;
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    /// What happens at a hook, in order. Chains of nat are called where conntrack translates.
    fn events(&self, hook: Hook) -> Vec<HookEvent> {
        let ruleset = self.sources.ruleset;
        let device = match hook {
            Hook::Ingress => self.state.input.as_ref(),
            Hook::Egress => self.state.output.as_ref(),
            _ => None,
        };
        let device = device.map(|device| &*device.0);
        let chains = ruleset.base_chains(hook, self.state.is_v4(), device);
        let priority = |chain: usize| ruleset.base(chain).map_or(0, |base| base.priority);
        // Conntrack is before the chains of its priority, nat after them.
        let mut events = vec![];
        if [Hook::Prerouting, Hook::Output].contains(&hook) {
            events.push(((CONNTRACK_PRIORITY, 0), HookEvent::Conntrack));
            events.push(((DESTINATION_NAT_PRIORITY, 2), HookEvent::Nat));
        } else if [Hook::Postrouting, Hook::Input].contains(&hook) {
            events.push(((SOURCE_NAT_PRIORITY, 2), HookEvent::Nat));
        }
        let filters = chains.into_iter().filter(|chain| !self.is_nat(*chain));
        events.extend(filters.map(|chain| ((priority(chain), 1), HookEvent::Chain(chain))));
        events.sort_by_key(|(order, _)| *order);
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn is_nat(&self, chain: usize) -> bool {
        let base = self.sources.ruleset.base(chain);
        base.is_some_and(|base| base.kind == ChainKind::Nat)
    }

    fn handle(&mut self, hook: Hook, event: HookEvent) -> Result<Option<WalkEnd>, PathError> {
        match event {
            HookEvent::Conntrack => {
                if self.sources.ruleset.has_conntrack {
                    self.state.track();
                }
                Ok(None)
            }
            HookEvent::Chain(chain) => self.run(hook, chain),
            HookEvent::Nat if self.state.is_answer => {
                self.translate_back(hook);
                Ok(None)
            }
            HookEvent::Nat => self.translate(hook),
        }
    }

    /// Runs a base chain of another program.
    fn run(&mut self, hook: Hook, chain: usize) -> Result<Option<WalkEnd>, PathError> {
        let ruleset = self.sources.ruleset;
        if ruleset.is_own(chain) {
            return Ok(None);
        }
        let (sources, state, record) = (&mut self.sources, &mut self.state, &mut self.record);
        Ok(match run_base_chain(sources, chain, hook, state, record)? {
            ChainEnd::Passed => {
                let passed = WalkStep::Passed(ruleset.chain_ref(chain));
                self.record.steps.push(passed);
                None
            }
            ChainEnd::Stopped { by, kind } => Some(WalkEnd::Stopped { by, kind }),
        })
    }

    /// An answer gets the addresses back that the first packet had.
    fn translate_back(&mut self, hook: Hook) {
        let connection = &self.state.connection;
        if connection.tracking != Tracking::Tracked || connection.is_new {
            return;
        }
        let (client, server) = connection.original;
        if self.state.is_size_error {
            // One of this node has the addresses that packets have while they are routed.
            if hook == Hook::Prerouting && self.state.destination == connection.reply.1 {
                self.state.destination = client;
            }
            return;
        }
        if [Hook::Prerouting, Hook::Output].contains(&hook) {
            self.state.destination = client;
        } else {
            self.state.source = server;
        }
    }

    /// The nat chains of a hook, until one of them has translated.
    fn translate(&mut self, hook: Hook) -> Result<Option<WalkEnd>, PathError> {
        let ruleset = self.sources.ruleset;
        let chains = ruleset.base_chains(hook, self.state.is_v4(), None);
        let chains: Vec<usize> = chains
            .into_iter()
            .filter(|chain| self.is_nat(*chain))
            .collect();
        let is_destination = [Hook::Prerouting, Hook::Output].contains(&hook);
        let is_tracked = self.state.connection.tracking == Tracking::Tracked;
        // A packet that this node sends to itself passes the hooks twice, but its connection has only one beginning.
        if is_tracked && self.is_decided(is_destination) {
            return Ok(None);
        }
        // The agent may have several chains at a hook. Its verdict is what all of them do.
        let mut is_own_passed = false;
        for chain in chains {
            let is_own = ruleset.is_own_translation(chain);
            if is_own && is_own_passed {
                continue;
            }
            is_own_passed |= is_own;
            if is_tracked && !self.is_decided(is_destination) {
                let end = if is_own {
                    self.translate_by_own_table(hook, is_destination)?
                } else {
                    self.run(hook, chain)?
                };
                if end.is_some() {
                    return Ok(end);
                }
            } else if is_own && self.has_own_translation(is_destination) {
                self.is_own_overruled = true;
                self.record.steps.push(WalkStep::OwnTable {
                    hook,
                    is_overruled: true,
                });
            }
        }
        if is_destination {
            self.state.connection.is_destination_decided = true;
        } else {
            self.state.connection.is_source_decided = true;
        }
        Ok(None)
    }

    fn is_decided(&self, is_destination: bool) -> bool {
        let connection = &self.state.connection;
        if is_destination {
            connection.is_destination_decided
        } else {
            connection.is_source_decided
        }
    }

    /// Whether the agent's table would do something at a hook.
    fn has_own_translation(&self, is_destination: bool) -> bool {
        match self.own {
            OwnVerdict::Untouched => false,
            OwnVerdict::Translated { is_masqueraded, .. } => {
                is_destination || (is_masqueraded && !self.is_own_overruled)
            }
            OwnVerdict::Masqueraded => !is_destination && !self.is_own_overruled,
            OwnVerdict::Rejected | OwnVerdict::Dropped => is_destination,
        }
    }

    fn translate_by_own_table(
        &mut self,
        hook: Hook,
        is_destination: bool,
    ) -> Result<Option<WalkEnd>, PathError> {
        if hook == Hook::Input || !self.has_own_translation(is_destination) {
            return Ok(None);
        }
        self.record.steps.push(WalkStep::OwnTable {
            hook,
            is_overruled: false,
        });
        match (self.own, is_destination) {
            (OwnVerdict::Rejected | OwnVerdict::Dropped, _) => return Ok(Some(WalkEnd::OwnTable)),
            (OwnVerdict::Translated { backend, .. }, true) => {
                self.state.translate_destination(backend);
            }
            _ => {
                let Sources {
                    network, lookups, ..
                } = &mut self.sources;
                let to: SocketAddr = masquerade_source(&self.state, *network, *lookups)?;
                self.state.translate_source(to);
            }
        }
        Ok(None)
    }
}
