//! The real binary, on folders of manifests and on a real etcd.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod agent;
mod ask;
mod cluster;
mod config;
mod contiv;
mod diff;
mod documented;
mod documents;
mod etcd;
mod help;
mod kube;
mod kubernetes_guide;
mod otlp;
mod render;
mod service_manager;
mod settings;
mod store;
mod support_bundle;
mod trace;
mod verify_store;
