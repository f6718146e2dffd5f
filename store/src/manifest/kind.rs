//! Maps manifests to stored objects.

use contiv_proto::{Key, Kind};

/// The API group of kinds that Kubernetes does not have.
const OWN_API_VERSION: &str = "contiv.io/v1";

/// `apiVersion` and `kind` of a stored object's manifest.
pub(super) const fn manifest_of(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Pod => ("v1", "Pod"),
        Kind::Service => ("v1", "Service"),
        Kind::Endpoints => ("v1", "Endpoints"),
        Kind::EndpointSlice => ("discovery.k8s.io/v1", "EndpointSlice"),
        Kind::ExternalWorkload => ("workload.linkerd.io/v1beta1", "ExternalWorkload"),
        Kind::Node => ("v1", "Node"),
        Kind::Namespace => ("v1", "Namespace"),
        Kind::VppNode => (OWN_API_VERSION, "VppNode"),
        Kind::IpAllocation => (OWN_API_VERSION, "CustomIPAllocation"),
    }
}

/// The stored type of `apiVersion` and `kind`, in any version. Kinds of other groups do not match: Knative has a `Service`.
pub(super) fn lookup(api_version: &str, kind: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|known| {
        let (known_version, known_kind) = manifest_of(*known);
        kind == known_kind && group(api_version) == group(known_version)
    })
}

/// The group of an `apiVersion`; empty for that of `v1`.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// An object's title for people: `Service default/web`, `Node n1`.
pub(super) fn title(key: &Key) -> String {
    let (_, kind) = manifest_of(key.kind());
    title_of(kind, key.namespace(), key.name())
}

/// Like [`title`], for objects that may not have a key.
pub(super) fn title_of(kind: &str, namespace: &str, name: &str) -> String {
    match (namespace, name) {
        (_, "") => kind.to_owned(),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}
