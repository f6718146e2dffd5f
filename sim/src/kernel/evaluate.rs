//! Evaluates the first packet of a connection against the rules of all tables: hook by hook in the order of the network stack,
//! and in a chain expression by expression, as `nft_do_chain` does.

mod interpreter;
mod jhash;
mod packet;

use std::net::{IpAddr, SocketAddr};

pub use self::packet::NewConnection;
use self::{
    interpreter::{Effect, Interpreter},
    packet::{HookVerdict, Packet},
};
use super::{
    conntrack::{Connection, status},
    model::ModelKernel,
    ruleset::{Base, Chain, ChainType, Ruleset, Table, hook},
    state::State,
    uapi::{NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, table},
};

/// The interface by which packets leave to other hosts, and to pods.
const EXTERNAL: &str = "eth0";

/// What happens to a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is delivered.
    Delivered {
        /// The backend, or another host.
        server: SocketAddr,
        /// The server sees an address of the node instead of the client's.
        is_masqueraded: bool,
        /// The server is this node.
        is_local: bool,
    },
    /// It is dropped silently.
    Dropped,
    /// It is rejected: the client gets an error at once.
    Rejected,
}

impl ModelKernel {
    /// Evaluates a connection without changing counters, affinity entries or conntrack. `draw` returns the random numbers for
    /// `numgen random`; each is below its argument.
    pub fn evaluate(&self, connection: &NewConnection, draw: &mut dyn FnMut(u32) -> u32) -> Fate {
        let state = self.0.lock();
        evaluate(&state, connection, draw).fate
    }

    /// Opens a connection: evaluates its first packet and makes all changes that the packet causes: counters, affinity entries,
    /// conntrack. A connection that conntrack already has keeps its destination.
    pub fn open(&self, connection: &NewConnection, draw: &mut dyn FnMut(u32) -> u32) -> Fate {
        let mut state = self.0.lock();
        let is_same = |known: &&Connection| {
            known.protocol == connection.protocol
                && known.client == connection.client
                && known.destination == connection.destination
        };
        if let Some(known) = state.connections.iter().find(is_same) {
            let is_local = state.is_local_address(known.server.ip());
            let is_masqueraded = known.source != known.client;
            return Fate::Delivered {
                server: known.server,
                is_masqueraded,
                is_local,
            };
        }
        let Evaluation {
            fate,
            status,
            effects,
        } = evaluate(&state, connection, draw);
        let now = state.now;
        for (table, effects) in effects {
            for effect in effects {
                effect.apply(&mut state.ruleset.tables[table], now);
            }
        }
        if let Fate::Delivered {
            server,
            is_masqueraded,
            ..
        } = fate
        {
            let own = state
                .addresses
                .iter()
                .find(|own| own.is_ipv4() == server.is_ipv4())
                .copied();
            let masqueraded = own.map(|own| SocketAddr::new(own, connection.client.port()));
            let source = masqueraded
                .filter(|_| is_masqueraded)
                .unwrap_or(connection.client);
            let (protocol, client, destination) = (
                connection.protocol,
                connection.client,
                connection.destination,
            );
            let status = status | status::CONFIRMED;
            state.add_connection(&Connection {
                protocol,
                client,
                destination,
                server,
                source,
                status,
                id: 0,
            });
        }
        fate
    }

    /// Sets the addresses of the node's interfaces. Loopback addresses can be omitted.
    pub fn set_addresses(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut state = self.0.lock();
        state.addresses = addresses.into_iter().collect();
        let addresses = state.addresses.clone();
        let notices = state.routing.set_addresses(&addresses);
        state.tell_routing(0, notices);
    }
}

impl State {
    /// True if the address is one of this node: `fib daddr type local`.
    fn is_local_address(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.contains(&address)
    }
}

/// The result of an evaluation, with the effects of the connection's first packet.
struct Evaluation {
    fate: Fate,
    /// Bits of the connection's status.
    status: u32,
    /// Each with the index of its table.
    effects: Vec<(usize, Vec<Effect>)>,
}

fn evaluate(
    state: &State,
    connection: &NewConnection,
    draw: &mut dyn FnMut(u32) -> u32,
) -> Evaluation {
    let mut packet = Packet::new(connection);
    let is_local_address = |address: IpAddr| state.is_local_address(address);
    let mut traversal = Traversal {
        ruleset: &state.ruleset,
        is_local_address: &is_local_address,
        now: state.now,
        draw,
        effects: Vec::new(),
    };
    let fate = match traversal.run(&mut packet) {
        HookVerdict::Drop => Fate::Dropped,
        HookVerdict::Reject => Fate::Rejected,
        // Nobody can have port 0: the network stack rejects the packet.
        HookVerdict::Accept if packet.destination.port() == 0 => Fate::Rejected,
        HookVerdict::Accept => {
            let (server, is_masqueraded) = (packet.destination, packet.is_masqueraded);
            Fate::Delivered {
                server,
                is_masqueraded,
                is_local: state.is_local_address(server.ip()),
            }
        }
    };
    Evaluation {
        fate,
        status: packet.status,
        effects: traversal.effects,
    }
}

/// The traversal of the hooks by a packet.
struct Traversal<'a> {
    ruleset: &'a Ruleset,
    is_local_address: &'a dyn Fn(IpAddr) -> bool,
    now: u64,
    draw: &'a mut dyn FnMut(u32) -> u32,
    effects: Vec<(usize, Vec<Effect>)>,
}

impl Traversal<'_> {
    fn run(&mut self, packet: &mut Packet) -> HookVerdict {
        let is_sent_by_node = packet.interface.is_none();
        let first_hook = if is_sent_by_node {
            hook::OUTPUT
        } else {
            hook::PREROUTING
        };
        let output = |is_local| if is_local { "lo" } else { EXTERNAL };
        if is_sent_by_node {
            // Translation routes the packet again, but only for the hooks after this one.
            packet.output = output((self.is_local_address)(packet.destination.ip()));
        }
        let verdict = self.pass(packet, &[first_hook]);
        if verdict != HookVerdict::Accept {
            return verdict;
        }
        // Routing: the next hooks depend on the destination, which the first hook may have changed.
        let is_local = (self.is_local_address)(packet.destination.ip());
        packet.output = output(is_local);
        let next_hooks: &[u32] = match (is_sent_by_node, is_local) {
            (false, true) => {
                packet.output = "";
                &[hook::INPUT]
            }
            (false, false) => &[hook::FORWARD, hook::POSTROUTING],
            (true, false) => &[hook::POSTROUTING],
            (true, true) => {
                let verdict = self.pass(packet, &[hook::POSTROUTING]);
                if verdict != HookVerdict::Accept {
                    return verdict;
                }
                // A packet that the node sends to itself is received again, on `lo`.
                (packet.interface, packet.output) = (Some("lo".to_owned()), "");
                &[hook::PREROUTING, hook::INPUT]
            }
        };
        self.pass(packet, next_hooks)
    }

    /// Runs all base chains at these hooks, until one drops or rejects the packet.
    fn pass(&mut self, packet: &mut Packet, hooks: &[u32]) -> HookVerdict {
        for hook in hooks {
            for (table, chain, base) in self.chains(packet, *hook) {
                if base.kind == ChainType::Nat && packet.is_nat_decided_at(*hook) {
                    continue;
                }
                let policy = base.policy.cast_signed();
                let mut effects = Vec::new();
                let mut interpreter = Interpreter {
                    table: &self.ruleset.tables[table],
                    effects: &mut effects,
                    is_local_address: self.is_local_address,
                    now: self.now,
                    draw: &mut *self.draw,
                };
                let verdict = interpreter.run(packet, chain, policy);
                if !effects.is_empty() {
                    self.effects.push((table, effects));
                }
                match verdict {
                    HookVerdict::Accept => {}
                    verdict => return verdict,
                }
            }
            packet.on_hook_passed(*hook);
        }
        HookVerdict::Accept
    }

    /// The base chains at a hook, in the order in which they are called.
    fn chains(&self, packet: &Packet, hook: u32) -> Vec<(usize, u64, Base)> {
        let family = if packet.source.is_ipv4() {
            NFPROTO_IPV4
        } else {
            NFPROTO_IPV6
        };
        let is_active = |table: &Table| {
            [NFPROTO_INET, family].contains(&table.family) && table.flags & table::F_DORMANT == 0
        };
        let tables = self
            .ruleset
            .tables
            .iter()
            .enumerate()
            .filter(|(_, table)| is_active(table));
        let of_table = |(at, table): (usize, &Table)| {
            let base = |chain: &std::sync::Arc<Chain>| Some((at, chain.handle, chain.base?));
            table.chains.values().filter_map(base).collect::<Vec<_>>()
        };
        let mut chains: Vec<_> = tables
            .flat_map(of_table)
            .filter(|(.., base)| base.hook == hook)
            .collect();
        // Among chains of the same priority the newest is called first.
        chains.reverse();
        chains.sort_by_key(|(.., base)| base.priority);
        chains
    }
}
