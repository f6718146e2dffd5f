//! The generated services of all measurements: a cluster as Kubernetes would write it, of any size, always the same.
//!
//! A separate crate, so that `contiv-instructions` builds without an async stack.

mod services;
mod single_change;

pub use services::{
    PORT, ServiceVariant, TARGET_PORT, UndecodableValue, Variant, Workload, cluster_ip,
    marker_address, marker_number,
};
pub use single_change::{SingleChange, Write};
