//! The result of following a packet.

use std::{fmt, net::SocketAddr};

use contiv_model::InterfaceName;
use serde::Serialize;

use super::Route;

/// The way of a packet: what happened to it, in order, and its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Walk {
    /// What happened.
    pub steps: Vec<WalkStep>,
    /// What may happen, and cannot be evaluated.
    pub doubts: Vec<Doubt>,
    /// The end.
    pub end: WalkEnd,
    /// The mark of its connection at the end: `ct mark`.
    pub connection_mark: u32,
}

impl Walk {
    /// Whether the rule that stops the packet certainly does so: no rule that is not evaluated could have let it pass the chain before.
    pub fn is_end_certain(&self) -> bool {
        match &self.end {
            WalkEnd::Stopped { by, .. } => {
                let of_chain = |doubt: &Doubt| doubt.rule.base == by.base;
                !self.doubts.iter().any(of_chain)
            }
            _ => !self.doubts.iter().any(|doubt| doubt.is_harmful),
        }
    }
}

/// One thing that happens to a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WalkStep {
    /// A base chain of another program lets it pass.
    Passed(ChainRef),
    /// A rule of another program changes its destination.
    DestinationChanged {
        /// The rule.
        by: RuleRef,
        /// The new destination.
        to: SocketAddr,
    },
    /// A rule of another program changes its source. The address is none if it depends on the interface (masquerade).
    SourceChanged {
        /// The rule.
        by: RuleRef,
        /// The new source.
        to: Option<SocketAddr>,
    },
    /// A rule keeps conntrack from seeing it: nothing translates it, here or in the agent's table.
    Untracked(RuleRef),
    /// A rule marks it, which may change its route.
    Marked {
        /// The rule.
        by: RuleRef,
        /// The new mark.
        mark: u32,
    },
    /// The agent's own table translates it, or would have and did not since `is_overruled`: it was translated before, or is untracked.
    OwnTable {
        /// The hook.
        hook: Hook,
        /// The agent's verdict had no effect.
        is_overruled: bool,
    },
    /// A rule lowers the size of the segments of TCP that the other side may send.
    SegmentsClamped(RuleRef),
    /// It is routed.
    Routed(Route),
}

/// How a packet ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WalkEnd {
    /// A process of this node gets it.
    Local {
        /// Its source then.
        source: SocketAddr,
        /// Its destination then.
        destination: SocketAddr,
    },
    /// It leaves this node.
    Sent {
        /// By this interface.
        interface: InterfaceName,
        /// To this neighbour; none if the destination is one.
        gateway: Option<std::net::IpAddr>,
        /// Its source then.
        source: SocketAddr,
        /// Its destination then.
        destination: SocketAddr,
    },
    /// The agent's own table refuses or drops it.
    OwnTable,
    /// A rule, or a policy, of another program stops it.
    Stopped {
        /// The rule; for a policy the number is none.
        by: RuleRef,
        /// How.
        kind: StopKind,
    },
    /// Routing stops it.
    NotRouted(Route),
}

/// What a rule does with a packet that it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopKind {
    /// It drops it.
    Drops,
    /// It refuses it.
    Rejects,
    /// It leaves it to a program of user space: nfqueue, which drops it if there is none.
    Queues,
    /// It answers it itself, or passes it to a local socket: synproxy, tproxy.
    Diverts,
}

/// A rule that may concern the packet, with a condition that cannot be evaluated. It is taken as one that does not match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// The rule.
    pub rule: RuleRef,
    /// What cannot be evaluated, as in "limit", "match recent of iptables".
    pub condition: String,
    /// What the rule would do, as in "drop", "dnat to 10.0.0.1:80", "jump BLOCK".
    pub effect: String,
    /// True if the rule would stop the packet, change its addresses or keep conntrack from seeing it.
    pub is_harmful: bool,
}

/// A base chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainRef {
    /// Family and name of its table, as nft takes them: "ip filter".
    pub table: String,
    /// Its name.
    pub chain: String,
    /// Its hook.
    pub hook: Hook,
    /// Its priority: lower ones come first.
    pub priority: i32,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleRef {
    /// The base chain from which it was reached.
    pub base: ChainRef,
    /// The name of its own chain.
    pub chain: String,
    /// Its handle, as `nft -a list chain` shows it; none for the policy of the base chain.
    pub handle: Option<u64>,
    /// Its comment; empty without one.
    pub comment: String,
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            base,
            chain,
            handle,
            comment,
        } = self;
        match handle {
            Some(handle) => write!(f, "rule {handle} of chain {chain} of table {}", base.table)?,
            None => write!(f, "the policy of chain {chain} of table {}", base.table)?,
        }
        if !comment.is_empty() {
            write!(f, " ({comment:?})")?;
        }
        write!(f, ", at {} {}", base.hook, base.priority)
    }
}

/// A hook of the network stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Of the interface, before all others.
    Ingress,
    /// Before routing.
    Prerouting,
    /// To this node.
    Input,
    /// Through this node.
    Forward,
    /// From this node.
    Output,
    /// After routing.
    Postrouting,
    /// Of the interface, after all others.
    Egress,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Egress => "egress",
        })
    }
}
