//! The labels by which objects say whose they are.

use std::collections::BTreeMap;

/// Label of endpoint slices: which controller manages the slice. Kubernetes' name for it.
pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// What contiv's controller of external workloads writes there.
pub const EXTERNAL_WORKLOADS_CONTROLLER: &str = "contiv-external-workloads";

/// What linkerd's controller of external workloads writes there.
pub const LINKERD_EXTERNAL_WORKLOADS_CONTROLLER: &str = "linkerd-external-workloads-controller";

/// Whether the labels of an endpoint slice say that it holds external workloads: what backs a service besides its pods.
pub fn is_of_external_workloads(labels: &BTreeMap<String, String>) -> bool {
    labels.get(ENDPOINT_SLICE_MANAGED_BY).is_some_and(|manager| {
        [EXTERNAL_WORKLOADS_CONTROLLER, LINKERD_EXTERNAL_WORKLOADS_CONTROLLER].contains(&manager.as_str())
    })
}
