//! The real binary, on folders of manifests.

mod agent;
mod config;
mod contiv;
mod render;
mod store;
