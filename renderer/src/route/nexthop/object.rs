//! Next hops, and groups of them.

use std::{fmt, net::IpAddr};

/// A next hop: the content of a single object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::route) struct Hop {
    pub(in crate::route) gateway: IpAddr,
    pub(in crate::route) interface: u32,
}

/// How a group distributes flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Each flow has a bucket, and a bucket moves to another next hop only if necessary: its own one is gone; or another one
    /// has too few buckets and this one was idle for so many seconds.
    Resilient {
        /// Seconds.
        idle: u32,
    },
    /// By ranges of the hash: when a next hop is added or removed, flows of the others move too.
    Plain,
}

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::route) struct Member {
    /// Of a next hop.
    pub(in crate::route) id: u32,
    /// From 1 to 255.
    pub(in crate::route) weight: u8,
}

/// The content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::route) enum Nexthop {
    Hop(Hop),
    Group {
        grouping: Grouping,
        members: Vec<Member>,
    },
    /// Anything that we never create.
    Other,
}

impl fmt::Display for Hop {
    /// In the format of `ip nexthop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "via {} dev if{} onlink", self.gateway, self.interface)
    }
}

impl fmt::Display for Nexthop {
    /// In the format of `ip nexthop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hop(hop) => hop.fmt(f),
            Self::Group { grouping, members } => {
                let member = |Member { id, weight }: &Member| format!("{id},{weight}");
                write!(
                    f,
                    "group {}",
                    members.iter().map(member).collect::<Vec<_>>().join("/")
                )?;
                match grouping {
                    Grouping::Plain => Ok(()),
                    Grouping::Resilient { idle } => write!(f, " type resilient idle_timer {idle}"),
                }
            }
            Self::Other => f.write_str("of an unknown kind"),
        }
    }
}
