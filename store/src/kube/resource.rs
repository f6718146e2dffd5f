//! The resources that are read, and their paths at the API server.

use contiv_proto::{Key, Kind};

use super::KubeAddress;

/// One type of objects at the API server, or some of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) kind: Kind,
    /// The path at the API server.
    pub(super) path: &'static str,
    /// A `fieldSelector`. Empty: all.
    pub(super) selector: String,
}

impl Resource {
    /// None for types that Kubernetes does not have.
    fn of(kind: Kind) -> Option<Self> {
        let path = match kind {
            Kind::Pod => "/api/v1/pods",
            Kind::Service => "/api/v1/services",
            Kind::Endpoints => "/api/v1/endpoints",
            Kind::EndpointSlice => "/apis/discovery.k8s.io/v1/endpointslices",
            Kind::ExternalWorkload => "/apis/workload.linkerd.io/v1beta1/externalworkloads",
            Kind::Node => "/api/v1/nodes",
            Kind::Namespace => "/api/v1/namespaces",
            _ => return None,
        };
        Some(Self { kind, path, selector: String::new() })
    }

    /// True if an API server may not have the type: it comes with a custom resource definition.
    pub(super) const fn is_optional(&self) -> bool {
        matches!(self.kind, Kind::ExternalWorkload)
    }

    /// True if objects of this type can have keys with `prefix`.
    pub(super) fn meets(&self, prefix: &str) -> bool {
        let own = Key::prefix(self.kind);
        own.starts_with(prefix) || prefix.starts_with(&own)
    }

    /// The path of its objects in one namespace; for a cluster-scoped type, all of them.
    pub(super) fn path_of(&self, namespace: &str) -> String {
        match self.path.rsplit_once('/') {
            Some((root, plural)) if !namespace.is_empty() => {
                format!("{root}/namespaces/{namespace}/{plural}")
            }
            _ => self.path.to_owned(),
        }
    }

    /// The name in RBAC, for errors.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

/// The resources of a cluster to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope(Vec<Resource>);

/// The types of a cluster that are read, in the order of lists: a service before its endpoint slices.
pub const KINDS: [Kind; 7] = [
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::Service,
    Kind::Endpoints,
    Kind::EndpointSlice,
    Kind::ExternalWorkload,
];

impl Scope {
    /// Every type that Kubernetes has, and external workloads.
    pub fn cluster() -> Self {
        Self(KINDS.into_iter().filter_map(Resource::of).collect())
    }

    /// The resources of a node's agent: services, endpoint slices, external workloads, its own Node object or all, and pods if the
    /// URL says so.
    ///
    /// `Endpoints` are left out: Kubernetes mirrors all of them to endpoint slices. Other nodes and pods change often and have
    /// no effect here, except for the weights of pods.
    pub fn node(name: &str, address: &KubeAddress) -> Self {
        let is_needed = |resource: &Resource| match resource.kind {
            Kind::Node | Kind::Service | Kind::EndpointSlice | Kind::ExternalWorkload => true,
            Kind::Pod => address.pods,
            _ => false,
        };
        let mut resources = Self::cluster().0;
        resources.retain(is_needed);
        let is_own = |resource: &&mut Resource| resource.kind == Kind::Node && !address.nodes;
        for resource in resources.iter_mut().filter(is_own) {
            resource.selector = format!("metadata.name={name}");
        }
        Self(resources)
    }

    pub(super) fn resources(&self) -> Vec<Resource> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use contiv_proto::key::ROOT;

    use super::*;

    fn names(scope: &Scope, prefix: &str) -> Vec<&'static str> {
        scope.0.iter().filter(|resource| resource.meets(prefix)).map(Resource::name).collect()
    }

    #[test]
    fn prefix_selects_the_listed_types() {
        let cluster = Scope::cluster();
        assert_eq!(names(&cluster, ROOT).len(), 7);
        assert_eq!(names(&cluster, &Key::prefix(Kind::Endpoints)), ["endpoints"]);
        let key = Key::new(Kind::Service, "default", "web").unwrap().to_path();
        assert_eq!(names(&cluster, &key), ["services"]);
        assert_eq!(names(&cluster, "/elsewhere"), [""; 0]);
    }

    #[test]
    fn agent_reads_other_nodes_and_pods_only_if_configured() {
        let address = KubeAddress::default();
        let scope = Scope::node("n1", &address);
        assert_eq!(names(&scope, ROOT), ["nodes", "services", "endpointslices", "externalworkloads"]);
        assert_eq!(scope.0[0].selector, "metadata.name=n1");
        let scope = Scope::node("n1", &KubeAddress { pods: true, nodes: true, ..address });
        assert_eq!(names(&scope, ROOT), ["nodes", "pods", "services", "endpointslices", "externalworkloads"]);
        assert_eq!(scope.0[0].selector, "", "all nodes");
    }
}
