//! The types of the server.

use serde_json::Value;

/// A type and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
}

impl Resource {
    pub(super) const ALL: [Self; 7] = [
        Self::PODS,
        Self::new("v1", "Service", "services"),
        Self::new("v1", "Endpoints", "endpoints"),
        Self::new("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
        Self::new("v1", "Node", "nodes"),
        Self::new("v1", "Namespace", "namespaces"),
        Self::EXTERNAL_WORKLOADS,
    ];
    pub(super) const PODS: Self = Self::new("v1", "Pod", "pods");
    /// That of linkerd's custom resource definition, which is there with the first object.
    pub(super) const EXTERNAL_WORKLOADS: Self =
        Self::new("workload.linkerd.io/v1beta1", "ExternalWorkload", "externalworkloads");

    const fn new(api_version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { api_version, kind, plural }
    }

    /// The type of an object with a name.
    pub(super) fn of_object(object: &Value) -> Option<Self> {
        object["metadata"]["name"].as_str()?;
        Self::ALL
            .into_iter()
            .find(|known| object["apiVersion"] == known.api_version && object["kind"] == known.kind)
    }

    /// The type of a path, and the namespace if the path has one.
    pub(super) fn of_path(path: &str) -> Option<(Self, Option<&str>)> {
        Self::ALL.into_iter().find_map(|known| {
            let root = if known.api_version == "v1" { "/api" } else { "/apis" };
            let rest = path.strip_prefix(root)?.strip_prefix('/')?.strip_prefix(known.api_version)?;
            let rest = rest.strip_prefix('/')?.strip_suffix(known.plural)?;
            if rest.is_empty() {
                return Some((known, None));
            }
            Some((known, Some(rest.strip_prefix("namespaces/")?.strip_suffix('/')?)))
        })
    }
}
