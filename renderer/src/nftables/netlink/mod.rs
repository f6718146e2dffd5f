//! nf_tables over netlink: messages, batches, dumps. Knows the kernel's language, and nothing of services.

mod attributes;
mod batch;
pub(crate) mod constants;
mod socket;

pub(crate) use attributes::{Attributes, Writer};
pub(crate) use batch::Batch;
pub(crate) use socket::{NetlinkError, Socket};
