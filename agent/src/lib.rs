//! The `contiv` binary: command line, configuration, node core, debug HTTP.
//!
//! - [`cli`] has one file for each subcommand.
//! - [`config`] is the agent's configuration: file, environment, flags.
//! - [`agent`] assembles the running agent from the parts below.
//! - [`controller`] assembles the running `contiv controller`, of the cluster-wide [`controllers`].
//! - [`drivers`] wait and do I/O for the pure core, the crate `contiv-node`, which owns all state.
//! - [`health`] answers the health checks of load balancers.
//! - [`counters`] are those of the kernel, by service.
//! - `flows` tells of connections through services.
//! - `kernel_evidence` reads from the kernel what concerns one connection.
//! - `self_check` connects through the rules to itself.
//! - [`service_manager`] reports the agent's state to systemd.
//! - [`http`] answers questions about it; [`metrics`] counts; `otlp` sends a trace of each change.

pub mod agent;
mod balance;
mod capabilities;
pub mod cli;
pub mod config;
mod connections;
pub mod controller;
pub mod controllers;
pub mod counters;
pub mod drivers;
mod environment;
mod flows;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod health;
pub mod http;
mod kernel_evidence;
mod local_addresses;
pub mod logging;
pub mod metrics;
mod mirror;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
#[cfg(any(test, fuzzing))]
mod round_trip;
mod self_check;
pub mod service_manager;
mod shared_tables;
pub mod state_dir;
mod tls;

#[cfg(test)]
mod test_support;
