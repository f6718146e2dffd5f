//! Flows that go on while services change. The agent must end those whose next packet would go wrong, and no other: a flow to a
//! backend that still serves its frontend stays, and so does an established connection, unless its service wants it reset.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt as _, rngs::SmallRng};

use crate::{
    cluster::Transport,
    expected::{ExpectedConnection, ServedFrontends},
    kernel::{Connection, Fate, ModelKernel},
};

/// The most flows at once.
const MAX_FLOWS: usize = 40;
/// Their clients have ports above those of all others.
pub(crate) const FIRST_PORT: u16 = 60_000;

/// All flows that go on, by their ids in conntrack.
#[derive(Debug, Default)]
pub(crate) struct LongFlows {
    flows: BTreeMap<u32, LongFlow>,
    last_port: u16,
}

#[derive(Debug)]
struct LongFlow {
    connection: Connection,
    /// Its backend has served its frontend since it began, and the agent can know nothing else.
    is_served: bool,
    /// The agent that ran when its frontend went may not run any more: the next one finds no trace of the frontend.
    is_forgotten: bool,
}

impl LongFlows {
    /// Whether it matters what the frontends are.
    pub(crate) fn has_served(&self) -> bool {
        self.flows.values().any(|flow| flow.is_served)
    }

    /// A port for the client of the next flow.
    pub(crate) fn next_port(&mut self) -> u16 {
        self.last_port = self.last_port.wrapping_add(1) % (u16::MAX - FIRST_PORT);
        FIRST_PORT + self.last_port
    }

    /// Whether there can be one more.
    pub(crate) fn has_space(&self) -> bool {
        self.flows.len() < MAX_FLOWS
    }

    /// Opens a flow, with a reply to half of them.
    pub(crate) fn open(
        &mut self,
        kernel: &ModelKernel,
        expected: &ExpectedConnection,
        rng: &mut SmallRng,
    ) {
        let new = expected.connection();
        let known: BTreeSet<u32> = kernel
            .connections()
            .iter()
            .map(|connection| connection.id)
            .collect();
        let fate = kernel.open(new, &mut |bound| rng.random_range(0..bound));
        let opened = kernel
            .connections()
            .into_iter()
            .find(|connection| !known.contains(&connection.id));
        if let (Fate::Delivered { .. }, Some(connection)) = (fate, opened) {
            if rng.random() {
                kernel.answer(connection.id);
            }
            let flow = LongFlow {
                connection: connection.clone(),
                is_served: true,
                is_forgotten: false,
            };
            self.flows.insert(connection.id, flow);
        }
    }

    /// The store has changed, or a flow has begun: these frontends are served now.
    pub(crate) fn note_served(&mut self, served: &ServedFrontends) {
        for flow in self.flows.values_mut().filter(|flow| flow.is_served) {
            let frontend = served.get(&flow.connection);
            flow.is_served = frontend.is_some_and(|frontend| {
                frontend.is_certain && frontend.servers.contains(&flow.connection.server)
            });
        }
    }

    /// From now on the agent may end any of the present flows: the store has gone back to an earlier state.
    pub(crate) fn note_uncertain(&mut self) {
        for flow in self.flows.values_mut() {
            flow.is_served = false;
        }
    }

    /// The agent has stopped.
    pub(crate) fn note_stop(&mut self) {
        for flow in self.flows.values_mut() {
            flow.is_forgotten = true;
        }
    }

    /// The machine has lost power.
    pub(crate) fn forget(&mut self) {
        self.flows.clear();
    }

    /// Checks the flows of an agent at rest, and forgets those that have ended.
    pub(crate) fn check(
        &mut self,
        kernel: &ModelKernel,
        served: &ServedFrontends,
    ) -> Result<(), String> {
        let present: BTreeMap<u32, Connection> = kernel
            .connections()
            .into_iter()
            .map(|connection| (connection.id, connection))
            .collect();
        for flow in self.flows.values().filter(|flow| flow.is_served) {
            if !present.contains_key(&flow.connection.id) {
                return Err(format!(
                    "a flow to a backend that serves it was deleted: {:?}",
                    flow.connection
                ));
            }
        }
        self.flows.retain(|id, _| present.contains_key(id));
        for (id, flow) in &self.flows {
            let connection = &present[id];
            let has_to_go = match served.get(connection) {
                Some(frontend) => {
                    !frontend.servers.contains(&connection.server)
                        && (frontend.has_reset || !is_established(connection))
                }
                None => !flow.is_forgotten && !is_established(connection),
            };
            if has_to_go {
                return Err(format!("a stale flow has stayed: {connection:?}"));
            }
        }
        Ok(())
    }
}

/// Whether both ends may think that they are connected.
fn is_established(connection: &Connection) -> bool {
    connection.protocol == Transport::Tcp.number() && connection.was_answered()
}
