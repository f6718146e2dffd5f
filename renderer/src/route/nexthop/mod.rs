//! Next-hop objects of the kernel, and groups of them. A route refers to one by its ID; the object can be replaced without
//! changing the route. Source: the kernel's `include/uapi/linux/nexthop.h`.
//!
//! `netlink-packet-route` does not have these messages.

mod message;
mod object;

pub(super) use message::{Action, NexthopMessage};
pub use object::Grouping;
pub(super) use object::{Hop, Member, Nexthop};

/// The first of our IDs. There are 2^24; IDs that other programs use are skipped.
pub(super) const FIRST_ID: u32 = 67 << 24;
/// One past the last ID.
pub(super) const END_ID: u32 = 68 << 24;
