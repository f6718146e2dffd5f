//! Shared by tests of this crate: a renderer that a test controls, and a node core with scripted events.

mod harness;
mod http;
mod renderer;

pub(crate) use contiv_store_testing::stored::{
    bad_service, batch, delete, load_balancer, local_slice, node, put, service, slice, snapshot,
};
pub(crate) use harness::{Harness, STORE, TEST_TIMEOUT, core_config};
pub(crate) use http::{Answer, get, loopback};
pub(crate) use renderer::{Call, Mode, TestRenderer};
