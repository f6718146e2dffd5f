//! nf_tables over netlink: batches and dumps. Independent of services.

mod batch;
mod commit;
pub(crate) mod constants;
mod dump;
mod elements;
mod get;
mod remove;

pub(crate) use batch::Batch;
pub(crate) use elements::{counted_packets, set_elements, write_set_request};
pub(crate) use remove::{remove_table, write_removal};

pub(crate) use crate::netlink::{Attributes, NetlinkError, Refusal, Socket, Writer};
