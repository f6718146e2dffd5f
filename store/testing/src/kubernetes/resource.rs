//! The types of the server.

use serde_json::Value;

/// A type and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    /// The abbreviation for kubectl; empty if it has none.
    pub(super) short_name: &'static str,
    pub(super) is_namespaced: bool,
}

/// What a path names: the objects of a type, or one of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) resource: Resource,
    /// None for all namespaces, and for a type that has none.
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

impl Resource {
    pub(super) const ALL: [Self; 15] = [
        Self::PODS,
        Self::namespaced("v1", "Service", "services", "svc"),
        Self::namespaced("v1", "Endpoints", "endpoints", "ep"),
        Self::namespaced("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", ""),
        Self::NODES,
        Self::of_cluster("v1", "Namespace", "namespaces", "ns"),
        Self::EXTERNAL_WORKLOADS,
        Self::namespaced("v1", "ConfigMap", "configmaps", "cm"),
        Self::namespaced("v1", "Secret", "secrets", ""),
        Self::namespaced("v1", "ServiceAccount", "serviceaccounts", "sa"),
        Self::DAEMON_SETS,
        Self::namespaced("apps/v1", "Deployment", "deployments", "deploy"),
        Self::namespaced(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            "pdb",
        ),
        Self::of_cluster(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "clusterroles",
            "",
        ),
        Self::of_cluster(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
            "",
        ),
    ];
    pub(super) const PODS: Self = Self::namespaced("v1", "Pod", "pods", "po");
    pub(super) const NODES: Self = Self::of_cluster("v1", "Node", "nodes", "no");
    pub(super) const DAEMON_SETS: Self =
        Self::namespaced("apps/v1", "DaemonSet", "daemonsets", "ds");
    /// That of linkerd's custom resource definition, which is there with the first object.
    pub(super) const EXTERNAL_WORKLOADS: Self = Self::namespaced(
        "workload.linkerd.io/v1beta1",
        "ExternalWorkload",
        "externalworkloads",
        "",
    );

    const fn namespaced(
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        short_name: &'static str,
    ) -> Self {
        Self {
            api_version,
            kind,
            plural,
            short_name,
            is_namespaced: true,
        }
    }

    const fn of_cluster(
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        short_name: &'static str,
    ) -> Self {
        Self {
            api_version,
            kind,
            plural,
            short_name,
            is_namespaced: false,
        }
    }

    /// The type of an object with a name.
    pub(super) fn of_object(object: &Value) -> Option<Self> {
        object["metadata"]["name"].as_str()?;
        Self::ALL
            .into_iter()
            .find(|known| object["apiVersion"] == known.api_version && object["kind"] == known.kind)
    }

    /// The path of the version that it is in, as in `api/v1` and `apis/apps/v1`.
    pub(super) fn version_path(self) -> String {
        let root = if self.api_version == "v1" {
            "api"
        } else {
            "apis"
        };
        format!("{root}/{}", self.api_version)
    }
}

impl<'a> Target<'a> {
    /// None for a path that names no known type.
    pub(super) fn of_path(path: &'a str) -> Option<Self> {
        Resource::ALL.into_iter().find_map(|resource| {
            let rest = path
                .strip_prefix('/')?
                .strip_prefix(&resource.version_path())?
                .strip_prefix('/')?;
            let (namespace, rest) = match rest
                .strip_prefix("namespaces/")
                .and_then(|rest| rest.split_once('/'))
            {
                Some((namespace, rest)) if resource.is_namespaced => (Some(namespace), rest),
                _ => (None, rest),
            };
            let rest = rest.strip_prefix(resource.plural)?;
            let name = if rest.is_empty() {
                None
            } else {
                Some(rest.strip_prefix('/')?)
            };
            // Subresources are not known here.
            (!name.is_some_and(|name| name.is_empty() || name.contains('/'))).then_some(Self {
                resource,
                namespace,
                name,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_objects_of_type_or_one() {
        let parts = |path| {
            Target::of_path(path)
                .map(|target| (target.resource.plural, target.namespace, target.name))
        };
        assert_eq!(parts("/api/v1/pods"), Some(("pods", None, None)));
        assert_eq!(
            parts("/api/v1/namespaces/a/pods"),
            Some(("pods", Some("a"), None))
        );
        assert_eq!(
            parts("/api/v1/namespaces/a/pods/b"),
            Some(("pods", Some("a"), Some("b")))
        );
        assert_eq!(
            parts("/api/v1/namespaces/a"),
            Some(("namespaces", None, Some("a")))
        );
        assert_eq!(parts("/api/v1/nodes/n1"), Some(("nodes", None, Some("n1"))));
        assert_eq!(
            parts("/apis/apps/v1/namespaces/a/daemonsets/b"),
            Some(("daemonsets", Some("a"), Some("b")))
        );
        for path in [
            "/api/v1/nodes/n1/status",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/podss",
            "/apis/apps/v2",
        ] {
            assert_eq!(parts(path), None, "{path}");
        }
    }
}
