//! The reflector between an API server over real HTTP and a store.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod cluster;
mod equal_sources;
mod etcd;
mod faults;
mod mark_and_sweep;
mod standby;
