//! The resources that are read, and their paths at the API server.

use std::fmt::Write;

use contiv_proto::{Key, Kind};

use super::{KubeAddress, query::escape};

/// The label selector of endpoint slices, as kube-proxy's. It is none of services: a service with this label is served.
const NOT_HEADLESS: &str = "!service.kubernetes.io/headless";
/// The label of services that names their proxy. kube-proxy does not look for it in endpoint slices.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// One type of objects at the API server, or some of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) kind: Kind,
    /// The path at the API server.
    pub(super) path: &'static str,
    /// A `fieldSelector`. Empty: all.
    pub(super) fields: String,
    /// A `labelSelector`. Empty: all.
    pub(super) labels: String,
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
        Some(Self {
            kind,
            path,
            fields: String::new(),
            labels: String::new(),
        })
    }

    /// True if an API server may not have the type: it comes with a custom resource definition.
    pub(super) const fn is_optional(&self) -> bool {
        matches!(self.kind, Kind::ExternalWorkload)
    }

    /// Adds its selectors to a query.
    pub(super) fn add_selectors(&self, query: &mut String) {
        for (name, selector) in [
            ("fieldSelector", &self.fields),
            ("labelSelector", &self.labels),
        ] {
            if !selector.is_empty() {
                let _ = write!(query, "{name}={}&", escape(selector));
            }
        }
    }

    /// True if objects of this type can have keys with `prefix`.
    pub(super) fn has_keys_with(&self, prefix: &str) -> bool {
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
pub struct Scope {
    resources: Vec<Resource>,
    /// Whether lists may come from the API server's cache.
    is_cached: bool,
}

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
    /// Every type that Kubernetes has, and external workloads, each list with what was written last.
    pub fn cluster() -> Self {
        Self {
            resources: KINDS.into_iter().filter_map(Resource::of).collect(),
            is_cached: false,
        }
    }

    /// The resources of a node's agent: services, endpoint slices, external workloads, its own Node object or all, and pods if the
    /// URL says so. Lists come from the API server's cache, as those of kube-proxy: there are as many agents as nodes.
    ///
    /// Endpoint slices of headless services are left out, and services that name another proxy than `proxy_name`; if that is
    /// empty, those that name any. `Endpoints` are left out, since Kubernetes mirrors all of them to endpoint slices. Other
    /// nodes and pods are left out, since they change often and have no effect here, except for the weights of pods.
    pub fn node(name: &str, proxy_name: &str, address: &KubeAddress) -> Self {
        let is_needed = |resource: &Resource| match resource.kind {
            Kind::Node | Kind::Service | Kind::EndpointSlice | Kind::ExternalWorkload => true,
            Kind::Pod => address.scope.pods,
            _ => false,
        };
        let mut resources = Self::cluster().resources;
        resources.retain(is_needed);
        for resource in &mut resources {
            match resource.kind {
                Kind::Node if !address.scope.nodes => {
                    resource.fields = format!("metadata.name={name}");
                }
                Kind::Service if proxy_name.is_empty() => {
                    resource.labels = format!("!{PROXY_NAME}");
                }
                Kind::Service => resource.labels = format!("{PROXY_NAME}={proxy_name}"),
                Kind::EndpointSlice => NOT_HEADLESS.clone_into(&mut resource.labels),
                _ => {}
            }
        }
        Self {
            resources,
            is_cached: true,
        }
    }

    pub(super) fn resources(&self) -> Vec<Resource> {
        self.resources.clone()
    }

    pub(super) const fn is_cached(&self) -> bool {
        self.is_cached
    }
}

#[cfg(test)]
mod tests {
    use contiv_proto::key::ROOT;

    use super::*;
    use crate::AgentScope;

    fn names(scope: &Scope, prefix: &str) -> Vec<&'static str> {
        scope
            .resources
            .iter()
            .filter(|resource| resource.has_keys_with(prefix))
            .map(Resource::name)
            .collect()
    }

    #[test]
    fn prefix_selects_the_listed_types() {
        let cluster = Scope::cluster();
        assert_eq!(names(&cluster, ROOT).len(), 7);
        assert_eq!(
            names(&cluster, &Key::prefix(Kind::Endpoints)),
            ["endpoints"]
        );
        let key = Key::new(Kind::Service, "default", "web").unwrap().to_path();
        assert_eq!(names(&cluster, &key), ["services"]);
        assert_eq!(names(&cluster, "/elsewhere"), [""; 0]);
    }

    #[test]
    fn agent_reads_other_nodes_and_pods_only_if_configured() {
        let address = KubeAddress::default();
        let scope = Scope::node("n1", "", &address);
        assert_eq!(
            names(&scope, ROOT),
            ["nodes", "services", "endpointslices", "externalworkloads"]
        );
        assert_eq!(scope.resources[0].fields, "metadata.name=n1");
        let scope = Scope::node(
            "n1",
            "",
            &KubeAddress {
                scope: AgentScope {
                    pods: true,
                    nodes: true,
                },
                ..address
            },
        );
        assert_eq!(
            names(&scope, ROOT),
            [
                "nodes",
                "pods",
                "services",
                "endpointslices",
                "externalworkloads"
            ]
        );
        assert_eq!(scope.resources[0].fields, "", "all nodes");
    }

    #[test]
    fn agent_asks_for_services_of_its_proxy_alone() {
        let labels = |proxy_name: &str| {
            let scope = Scope::node("n1", proxy_name, &KubeAddress::default());
            [1, 2].map(|i| scope.resources[i].labels.clone())
        };
        let slices = "!service.kubernetes.io/headless";
        assert_eq!(
            labels(""),
            ["!service.kubernetes.io/service-proxy-name", slices]
        );
        assert_eq!(
            labels("contiv"),
            ["service.kubernetes.io/service-proxy-name=contiv", slices]
        );
    }
}
