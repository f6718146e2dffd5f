//! The configuration of the agent, and that of the controllers in [`controller`]: every key, its default, and the sources of
//! its value.
//!
//! Flags override the environment, which overrides the file, which overrides the defaults. One struct serves all of them, so
//! that a key has the same name and form everywhere.

mod agent;
mod agent_settings;
pub(crate) mod check;
pub mod controller;
mod controller_name;
mod defaults;
mod error;
mod etcd;
pub(crate) mod file;
mod flags;
mod host_name;
mod optional_address;
mod renderer_name;
mod settings;
mod text;

#[cfg(test)]
mod tests;

pub use agent::{Config, NexthopGrouping};
pub(crate) use controller_name::list;
pub use controller_name::{ControllerName, UnknownController};
pub use error::ConfigError;
pub use etcd::EtcdFlags;
pub use flags::ConfigFlags;
pub(crate) use host_name::default_node_name;
pub use optional_address::OptionalAddress;
pub use renderer_name::{RendererName, UnknownRenderer};
pub use settings::Settings;
