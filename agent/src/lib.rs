//! The `contiv` binary: command line, configuration, event loop, debug HTTP.
//!
//! - [`cli`] has one file for each subcommand.
//! - [`config`] is the agent's configuration: file, environment, flags.
//! - [`agent`] assembles the running agent.
//! - [`controllers`] assembles the cluster-wide controllers.
//! - [`event_loop`] owns all state, and passes changes to the renderers.
//! - [`health`] reports this node's health to load balancers.
//! - [`counters`] are the kernel's connection counters, by service.
//! - [`service_manager`] reports the agent's state to systemd.
//! - [`http`] answers requests; [`metrics`] counts; `otlp` sends a trace of each change.

pub mod agent;
pub mod cli;
pub mod config;
mod connections;
pub mod controllers;
pub mod counters;
pub mod event_loop;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod health;
pub mod http;
mod local_addresses;
pub mod logging;
pub mod metrics;
mod mirror;
mod otlp;
mod process;
pub mod service_manager;
pub mod state_dir;

#[cfg(test)]
mod test_support;
