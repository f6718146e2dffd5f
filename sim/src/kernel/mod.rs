//! A model of the kernel's nf_tables, conntrack and routing at their netlink interfaces: it applies the messages that renderers
//! encode, and answers as Linux does.
//!
//! ```text
//! Nftables (real) ─ netlink ─► socket ─► batch ─► apply ─► ruleset ─┬─► dump, get ─► netlink
//!                                                                  ├─► notifications
//!                                                                  └─► evaluate ─► where a flow goes
//! ```
//!
//! It shares no code with the renderer: numbers and rules are those of the kernel's `include/uapi/linux/netfilter/nf_tables.h`,
//! `net/netfilter/nfnetlink.c` and `nf_tables_api.c`. [`compare`] compares it with a real kernel.
//!
//! Not modelled: objects other than tables, chains, rules, sets and elements; the families besides `inet`, `ip` and `ip6`;
//! catch-all elements; and all expressions that neither the renderer nor [`compare`] writes.

mod apply;
mod attributes;
mod batch;
mod caller;
pub mod compare;
mod conntrack;
mod data;
mod dump;
mod element;
mod elements;
mod errno;
mod evaluate;
mod expression;
mod expression_dump;
mod fault;
mod foreign_change;
mod init;
mod message;
mod model;
mod notify;
mod process;
mod routing;
mod ruleset;
mod set;
mod socket;
mod state;
mod uapi;
mod validate;

pub use self::{
    conntrack::{Connection, status},
    errno::Errno,
    evaluate::{Fate, NewConnection},
    fault::Fault,
    foreign_change::ForeignChange,
    model::ModelKernel,
    process::Process,
    routing::{Forwarding, RoutingChange, router},
};
