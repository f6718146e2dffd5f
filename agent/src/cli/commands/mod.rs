//! One file or folder for each subcommand.

pub(crate) mod actions;
pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod backends;
pub(crate) mod cleanup;
pub(crate) mod completions;
pub(crate) mod controller;
pub(crate) mod delete;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod health_checks;
pub(crate) mod kubectl_plugin;
pub(crate) mod list_query;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod reference;
pub(crate) mod refused;
pub(crate) mod render;
pub(crate) mod service_query;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod support_bundle;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod version;
