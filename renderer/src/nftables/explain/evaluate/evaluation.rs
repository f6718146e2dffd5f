//! The result of evaluating a flow.

use std::net::SocketAddr;

use serde::Serialize;

use super::Client;

/// The outcome of a new connection, according to the elements of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    /// The class of its client.
    pub client: Client,
    /// How a slot is chosen; none if no element sends the flow to a backend.
    pub choice: Option<Choice>,
    /// The possible outcomes, with their number of slots; never empty.
    pub shares: Vec<Share>,
    /// The outcome of a client with an affinity entry, as long as that exists; no slot is drawn then.
    pub remembered: Option<FlowOutcome>,
}

/// One possible outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// How many slots lead to it.
    pub slots: u32,
    /// The outcome.
    pub ending: FlowOutcome,
}

/// How a slot is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// At random.
    Random,
    /// At random, unless the client has an affinity entry.
    Sticky {
        /// Timeout of the entry in seconds; none if no rule writes it.
        timeout: Option<u32>,
    },
    /// By the client's address.
    ClientAddress,
}

/// The outcome of a flow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOutcome {
    /// It reaches a backend.
    Served {
        /// The backend.
        backend: SocketAddr,
        /// The backend sees the node's address instead of the client's.
        masqueraded: bool,
    },
    /// It is rejected at once.
    Rejected {
        /// The set of the element that decides.
        set: String,
    },
    /// It is dropped without an answer.
    Dropped {
        /// The set of the element that decides; for source ranges, the set without one.
        set: String,
    },
    /// No element of a service matches it, and it leaves the cluster with the address of this node.
    Egress,
    /// No element matches it.
    Untouched,
    /// The matching element has a value that the agent never writes.
    Foreign {
        /// In this set.
        set: String,
    },
}

impl Evaluation {
    /// All slots.
    pub(super) fn slots(&self) -> u32 {
        self.shares.iter().map(|share| share.slots).sum()
    }

    /// The percentage of new connections with this outcome.
    pub(super) fn percent(&self, slots: u32) -> f64 {
        100.0 * f64::from(slots) / f64::from(self.slots().max(1))
    }
}
