//! The rows of the flow matrix: every combination of the properties of a flow.

use std::fmt;

use contiv_model::{InterfaceName, Protocol, trace::MixedFamilies};
use contiv_tests::{
    cluster::{Frontend, Service, ServiceManifest},
    lab::{self, Family, Host, Lab, Namespace},
};

/// The source of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A pod of this node that is not a backend.
    Pod,
    /// A pod of this node that is a backend if the service has a local one.
    Backend,
    /// This node itself.
    Node,
    /// An external client.
    External,
}

/// The traffic policies of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policies {
    /// Both are Cluster.
    Cluster,
    /// `externalTrafficPolicy: Local`.
    ExternalLocal,
    /// `internalTrafficPolicy: Local`.
    InternalLocal,
    /// Both are Local.
    BothLocal,
}

/// The endpoints of a service.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    words: &'static str,
    pub(crate) ready: Vec<&'static Host>,
    pub(crate) terminating: Vec<&'static Host>,
}

/// How the agent detects pods, and which clients it masquerades.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Pods by their CIDRs; the default.
    PodCidrs,
    /// Pods by their interfaces.
    Interfaces,
    /// Pods by their CIDRs, none of which is known.
    NoPodCidrs,
    /// Pods are not detected.
    NoDetection,
    /// Every client of a cluster IP is masqueraded.
    MasqueradeAll,
    /// Pods are masqueraded outside the cluster, and the pods of the other node are not known.
    Egress,
}

/// A row of the matrix.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) mode: Mode,
    pub(crate) source: Source,
    pub(crate) frontend: Frontend,
    pub(crate) policies: Policies,
    pub(crate) family: Family,
    pub(crate) protocol: Protocol,
    pub(crate) endpoints: Endpoints,
    /// The service with these policies and endpoints.
    pub(crate) service: Service,
}

impl Endpoints {
    /// All endpoints ready.
    pub(crate) fn ready(words: &'static str, ready: &[&'static Host]) -> Self {
        Self {
            words,
            ready: ready.to_vec(),
            terminating: Vec::new(),
        }
    }
}

impl Source {
    pub(crate) const ALL: [Self; 4] = [Self::Pod, Self::Backend, Self::Node, Self::External];

    /// The namespace of the source.
    pub(crate) const fn namespace(self, lab: &Lab) -> &Namespace {
        match self {
            Self::Pod => &lab.pod2,
            Self::Backend => &lab.pod1,
            Self::Node => &lab.node,
            Self::External => &lab.client,
        }
    }
}

/// The protocols of services.
const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

/// Names of the services: for each policy one for each state of the endpoints.
const SERVICES: [(Policies, [&str; 5]); 4] = [
    (
        Policies::Cluster,
        [
            "c-both",
            "c-remote",
            "c-draining",
            "c-terminating",
            "c-none",
        ],
    ),
    (
        Policies::ExternalLocal,
        [
            "e-both",
            "e-remote",
            "e-draining",
            "e-terminating",
            "e-none",
        ],
    ),
    (
        Policies::InternalLocal,
        [
            "i-both",
            "i-remote",
            "i-draining",
            "i-terminating",
            "i-none",
        ],
    ),
    (
        Policies::BothLocal,
        [
            "b-both",
            "b-remote",
            "b-draining",
            "b-terminating",
            "b-none",
        ],
    ),
];

/// Every state of the endpoints, in the order of the names in [`SERVICES`].
fn states(lab: &Lab) -> [Endpoints; 5] {
    let (local, remote) = (lab.pod1.host, lab.pod3.host);
    let state = |words, ready: &[&'static Host], terminating: &[&'static Host]| Endpoints {
        words,
        ready: ready.to_vec(),
        terminating: terminating.to_vec(),
    };
    [
        state(
            "a local and a remote backend, both ready",
            &[local, remote],
            &[],
        ),
        state("a remote backend only", &[remote], &[]),
        state(
            "a local backend that terminates and a remote one that is ready",
            &[remote],
            &[local],
        ),
        state(
            "a local and a remote backend, both terminating",
            &[],
            &[local, remote],
        ),
        state("no backend", &[], &[]),
    ]
}

/// A service of the matrix.
pub(crate) type Row = (Policies, Endpoints, Service);

/// All services of the matrix.
pub(crate) fn services(lab: &Lab) -> Vec<Row> {
    let named = SERVICES
        .into_iter()
        .flat_map(|(policies, names)| names.map(|name| (policies, name)));
    let states = states(lab);
    named
        .zip(states.iter().cycle())
        .zip(1..)
        .map(|(((policies, name), endpoints), number)| {
            (
                policies,
                endpoints.clone(),
                Service::new(name, number, &endpoints.ready),
            )
        })
        .collect()
}

/// The service as it is in the store.
pub(crate) fn manifest((policies, endpoints, service): &Row) -> ServiceManifest {
    ServiceManifest {
        terminating: endpoints.terminating.clone(),
        external_local: matches!(policies, Policies::ExternalLocal | Policies::BothLocal),
        internal_local: matches!(policies, Policies::InternalLocal | Policies::BothLocal),
        ..ServiceManifest::new(service.clone())
    }
}

/// Every row with this source.
pub(crate) fn flows_from(mode: Mode, source: Source, services: Vec<Row>) -> Vec<Flow> {
    let mut flows = Vec::new();
    for (policies, endpoints, service) in services {
        for frontend in Frontend::ALL {
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| PROTOCOLS.map(|p| (f, p)))
            {
                let (endpoints, service) = (endpoints.clone(), service.clone());
                flows.push(Flow {
                    mode,
                    source,
                    frontend,
                    policies,
                    family,
                    protocol,
                    endpoints,
                    service,
                });
            }
        }
    }
    flows
}

impl Flow {
    /// Its protocol in the lab's types.
    pub(crate) const fn lab_protocol(&self) -> lab::Protocol {
        match self.protocol {
            Protocol::Tcp => lab::Protocol::Tcp,
            Protocol::Udp => lab::Protocol::Udp,
            Protocol::Sctp => lab::Protocol::Sctp,
        }
    }

    /// The flow in the model's types.
    pub(crate) fn to_model(&self, lab: &Lab) -> Result<contiv_model::Flow, MixedFamilies> {
        let from = self.source.namespace(lab).host;
        let to = self.service.address(lab, self.frontend, self.family);
        let flow = contiv_model::Flow::new(from.address(self.family), to, self.protocol)?;
        // The node's end of a pod's link has the name of the pod.
        Ok(match self.source {
            Source::Pod | Source::Backend => flow.by_interface(InterfaceName::new(from.name)),
            Source::Node => flow,
            Source::External => flow.by_interface(InterfaceName::new("eth0")),
        })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Pod => "a pod of this node (pod2)",
            Source::Backend => "a pod of this node that may be a backend (pod1)",
            Source::Node => "this node",
            Source::External => "an external client",
        };
        let frontend = match self.frontend {
            Frontend::ClusterIp => "the cluster IP",
            Frontend::ExternalIp => "the external IP",
            Frontend::LoadBalancer => "the load-balancer IP",
            Frontend::NodePort => "the node port",
        };
        let policies = match self.policies {
            Policies::Cluster => "both policies Cluster",
            Policies::ExternalLocal => "external policy Local",
            Policies::InternalLocal => "internal policy Local",
            Policies::BothLocal => "both policies Local",
        };
        write!(
            f,
            "from {source} to {frontend} of {}, IP{:?} {:?}, with {policies} and {}",
            self.service.name, self.family, self.protocol, self.endpoints.words
        )
    }
}
