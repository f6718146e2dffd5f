//! Shared by tests of this crate: a renderer that fails on demand, and a node core with scripted events.

mod harness;
mod http;
mod renderer;
mod values;

pub(crate) use harness::{Harness, LIMIT, STORE, core_config};
pub(crate) use http::{Answer, get, loopback};
pub(crate) use renderer::{Call, Mode, Scripted};
pub(crate) use values::{
    bad_service, batch, delete, load_balancer, local_slice, node, put, service, slice, snapshot,
};
