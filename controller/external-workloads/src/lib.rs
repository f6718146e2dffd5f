//! Endpoint slices of services that select external workloads: linkerd's external-workload `EndpointsController`, with etcd in
//! place of the Kubernetes API server.
//!
//! An external workload is a machine or process outside all pod networks, described by an `ExternalWorkload` object. It is a
//! backend of each service of its namespace whose selector matches its labels, as a pod would be.
//!
//! | module | content |
//! |---|---|
//! | [`service`], [`workload`], [`slice`](mod@slice), [`family`] | the relevant parts of the objects read and written |
//! | [`plan`](mod@plan) | pure: the fewest writes for one service, its workloads and its slices |
//! | [`controller`](mod@controller) | the control loop |
//! | [`unserved`] | the workloads of which no controller has written slices; pure |
//! | [`derived`] | the same slices where no controller writes them: of folders, API servers and files; pure |

pub mod controller;
pub mod derived;
pub mod family;
pub mod plan;
mod reconciler;
pub mod service;
pub mod slice;
mod tracker;
pub mod unserved;
mod watches;
pub mod workload;

#[cfg(test)]
mod test_support;

pub use controller::controller;
pub use derived::{DerivedList, DerivedSlices};
pub use plan::{SliceWrite, plan};
pub use unserved::UnservedWorkloads;
