//! Labels of Kubernetes that say who manages an object, and for whom it is.

use std::collections::BTreeMap;

/// Label of endpoint slices: which controller manages the slice. Kubernetes' name for it.
pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The value of contiv's controller of external workloads.
pub const EXTERNAL_WORKLOADS_CONTROLLER: &str = "contiv-external-workloads";

/// The value of linkerd's controller of external workloads.
pub const LINKERD_EXTERNAL_WORKLOADS_CONTROLLER: &str = "linkerd-external-workloads-controller";

/// Label of endpoint slices and Endpoints: proxies ignore one that has it, whatever its value. It means nothing at a service.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// Whether an endpoint slice with these labels holds external workloads rather than pods.
pub fn is_of_external_workloads(labels: &BTreeMap<String, String>) -> bool {
    labels
        .get(ENDPOINT_SLICE_MANAGED_BY)
        .is_some_and(|manager| {
            [
                EXTERNAL_WORKLOADS_CONTROLLER,
                LINKERD_EXTERNAL_WORKLOADS_CONTROLLER,
            ]
            .contains(&manager.as_str())
        })
}
