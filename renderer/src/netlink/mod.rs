//! Netlink to the netfilter subsystems of the kernel: attributes, messages, the socket. Independent of the content of messages.

mod attributes;
mod error;
mod linux;
mod listener;
pub(crate) mod message;
mod socket;

pub(crate) use attributes::{Attributes, Writer};
pub(crate) use error::{NetlinkError, Refusal};
pub(crate) use linux::LinuxSocket;
pub(crate) use listener::{Listener, Membership};
pub(crate) use socket::Socket;

/// Requested as receive buffer for answers; without CAP_NET_ADMIN in the first user namespace it stays smaller.
pub(crate) const ANSWER_BUFFER: usize = 4 << 20;
/// The kernel sends at most 32 KiB in one piece of a dump.
pub(crate) const PIECE_CAPACITY: usize = 64 << 10;
