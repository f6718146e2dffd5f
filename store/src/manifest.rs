//! Kubernetes manifests to stored objects, and back.
//!
//! Read are YAML (several documents in one file) and JSON, single objects and lists, as people write them and as
//! `kubectl get -o yaml` prints them. Fields that contiv does not use are accepted and dropped; fields that do not exist are a
//! warning. Kinds it does not know are skipped, unless one is a slip of a kind that it knows. What an API server would refuse
//! in a field that contiv uses is a [`crate::Problem`] which names file, object and field; the other objects are used. What an
//! API server would fill in (protocol TCP, namespace `default`) is filled in.

mod annotation;
mod check;
mod conversion;
mod document;
mod endpoint_slice;
mod endpoints;
mod external_workload;
mod ip_allocation;
mod kind;
mod load;
mod metadata;
mod namespace;
mod node;
mod object;
mod parse;
mod parsed;
mod pod;
mod port;
mod received;
mod reference;
mod service;
mod strict;
mod vpp_node;
pub(crate) mod walk;
mod write;

pub use crate::url::Links;
pub use load::load_path;
pub(crate) use load::unreadable;
pub use parse::parse_file;
pub(crate) use parse::{FOLDER_NODES, parse_file_within};
pub(crate) use parsed::duplicate;
pub use parsed::{ManifestObject, ParsedManifests};
pub(crate) use received::parse_object;
pub use write::{to_value, to_yaml};

#[cfg(test)]
mod tests;
