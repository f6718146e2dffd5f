//! The service processor as renderers see it: objects and pod events in, snapshots and change sets out.

// The lint's exception for tests does not reach helpers and builders.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot build its input has failed"
)]
#![allow(
    clippy::wildcard_imports,
    reason = "the builders are the vocabulary of every test"
)]

mod assignment;
mod builders;
mod claims;
mod contiv_defects;
mod contiv_scenarios;
mod decoded;
mod endpoints;
mod failing;
mod interfaces;
mod introspection;
mod laws;
mod node_facts;
mod placement;
mod reasons;
mod resync;
mod services;
mod topology;
mod weights;
