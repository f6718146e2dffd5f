//! What the table makes of a flow.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::Serialize;

use super::Client;

/// What becomes of a new connection, by the elements of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    /// Who its client is to the rules.
    pub client: Client,
    /// How a slot is chosen; none where no element sends the flow to any.
    pub choice: Option<Choice>,
    /// How it may end, and by how many of the slots; never empty.
    pub shares: Vec<Share>,
    /// How it ends because this client is remembered, and for as long as it is; no slot is drawn then.
    pub remembered: Option<FlowOutcome>,
}

/// One way in which a flow may end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// How many slots lead there.
    pub slots: u32,
    /// Where.
    pub ending: FlowOutcome,
}

/// How a slot is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// By chance.
    Random,
    /// By chance, unless the client is remembered.
    Sticky {
        /// For how many seconds it then is; none if nothing remembers it.
        timeout: Option<u32>,
    },
    /// By the client's address.
    ClientAddress,
}

/// How a flow ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOutcome {
    /// It reaches a backend.
    Served {
        /// Which.
        backend: SocketAddr,
        /// The backend sees the node's address instead of the client's.
        masqueraded: bool,
    },
    /// It is refused at once.
    Rejected {
        /// The set whose element says so.
        set: String,
    },
    /// It gets no answer.
    Dropped {
        /// The set whose element, or for source ranges the lack of one, says so.
        set: String,
    },
    /// No element concerns it.
    Untouched,
    /// There is an element, but it says something that the agent never writes.
    Foreign {
        /// In this set.
        set: String,
    },
}

/// Slots by how they end.
pub(super) type SlotsByOutcome = BTreeMap<FlowOutcome, u32>;

impl Evaluation {
    /// All slots.
    pub(super) fn slots(&self) -> u32 {
        self.shares.iter().map(|share| share.slots).sum()
    }

    /// The part of new connections that end so, in percent.
    pub(super) fn percent(&self, slots: u32) -> f64 {
        100.0 * f64::from(slots) / f64::from(self.slots().max(1))
    }
}
