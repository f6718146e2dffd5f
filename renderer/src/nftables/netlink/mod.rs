//! nf_tables over netlink: batches and dumps. Independent of services.

mod batch;
mod commit;
pub(crate) mod constants;
mod dump;
mod get;

pub(crate) use batch::Batch;

pub(crate) use crate::netlink::{Attributes, NetlinkError, Refusal, Socket, Writer};
