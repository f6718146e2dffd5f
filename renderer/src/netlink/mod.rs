//! Netlink: attributes, messages, sockets, mostly for the netfilter subsystems of the kernel. Independent of the content of messages.

mod attributes;
mod capability_sets;
mod error;
mod linux;
mod listener;
pub(crate) mod message;
mod socket;

pub(crate) use attributes::{Attributes, Writer};
pub(crate) use error::{NetlinkError, Refusal};
pub(crate) use linux::LinuxSocket;
pub(crate) use listener::Listener;
pub(crate) use socket::Socket;
