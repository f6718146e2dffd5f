//! The input of a plan.

use std::{collections::BTreeSet, fmt};

use contiv_proto::message::endpointslice::EndpointSlice;

use crate::{service::Service, workload::Workload};

/// The input of a plan. Everything is in the service's namespace.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The service.
    pub service: &'a Service,
    /// The selected workloads.
    pub workloads: &'a [&'a Workload],
    /// The slices of the service managed by this controller.
    pub slices: &'a [&'a EndpointSlice],
    /// Names of workloads that exist but cannot be read. Their endpoints stay as they are.
    pub unreadable: &'a BTreeSet<String>,
    /// Whether any slice has this name already.
    pub is_taken: &'a dyn Fn(&str) -> bool,
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("service", self.service)
            .field("workloads", &self.workloads)
            .field("slices", &self.slices)
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}
