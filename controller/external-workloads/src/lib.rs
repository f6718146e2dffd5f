//! Endpoint slices of services that select external workloads: linkerd's external-workload `EndpointsController`, with etcd
//! in the place of the Kubernetes API server.
//!
//! An external workload is a machine or process outside of every pod network, described by an `ExternalWorkload` object.
//! It stands behind each service of its namespace whose selector matches its labels, as a pod would.
//!
//! | module | what it has |
//! |---|---|
//! | [`service`], [`workload`], [`slice`](mod@slice) | what is read and written, as far as it matters here |
//! | [`plan`](mod@plan) | pure: one service, its workloads and its slices become the fewest writes |
//! | [`controller`](mod@controller) | the control loop around it |

pub mod controller;
pub mod plan;
mod reconciler;
pub mod service;
pub mod slice;
mod tracker;
mod watches;
pub mod workload;

#[cfg(test)]
mod test_support;

pub use controller::controller;
pub use plan::{SliceWrite, plan};
