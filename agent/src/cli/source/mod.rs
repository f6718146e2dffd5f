//! Where answers come from: a running agent, a store, manifests, the kernel, other programs.

pub(crate) mod agent_absence;
pub(crate) mod agent_argument;
pub(crate) mod agents_argument;
pub(crate) mod balance;
pub(crate) mod config_arguments;
pub(crate) mod decoded;
pub(crate) mod http_client;
pub(crate) mod input;
pub(crate) mod latency;
pub(crate) mod listener_process;
pub(crate) mod nft;
pub(crate) mod node_settings;
pub(crate) mod offline;
pub(crate) mod program;
pub(crate) mod store;
pub(crate) mod unserved;
pub(crate) mod views;
