//! Lists the pods and nodes of a cluster, and connects to ports of pods, for programs that query agents from outside.

mod objects;

use bytes::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1;
use kube::Api;
use serde::{Deserialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::io::DuplexStream;

use super::{
    KubeAddress,
    client::{Client, Upgrades},
    failure::{self, Failure},
    protobuf::ListMetadata,
    query::escape,
};
use crate::StoreError;
use objects::{NodeObject, PodObject};

pub use objects::{Node, Pod};

/// How many objects a page of a list has.
const PAGE_SIZE: usize = 500;
/// The form of a list of which only the metadata is used: a Node object is mostly its images.
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;q=0.9";
const JSON: &str = "application/json";

/// Why the cluster cannot be queried.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The kubeconfig cannot be used.
    #[error("{0}")]
    Kubeconfig(String),
    /// The user lacks a right.
    #[error("{message} ({endpoint}); that needs {right}")]
    Forbidden {
        /// The API server.
        endpoint: String,
        /// The resource and the verbs, as in `list on nodes`.
        right: &'static str,
        /// The answer of the API server.
        message: String,
    },
    /// The API server does not answer, or not as it should.
    #[error("the API server at {endpoint}: {reason}")]
    Unavailable {
        /// The API server.
        endpoint: String,
        /// What went wrong.
        reason: String,
    },
}

/// A connection to a port of a pod, through the API server and the kubelet: to its loopback address, as from within the pod.
pub struct PortForward {
    /// What is sent to the port, and what comes from it.
    pub stream: DuplexStream,
    /// Resolves with the kubelet's reason if the port cannot be reached, and with none otherwise.
    pub failure: BoxFuture<'static, Option<String>>,
}

impl std::fmt::Debug for PortForward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortForward").finish_non_exhaustive()
    }
}

/// A cluster, with the identity of a kubeconfig.
#[derive(Debug)]
pub struct KubeCluster {
    client: Client,
}

impl KubeCluster {
    /// Reads the kubeconfig. Nothing is sent yet.
    ///
    /// # Errors
    /// When it cannot be used: the file and the field.
    pub async fn open(address: &KubeAddress) -> Result<Self, ClusterError> {
        let client = Client::connect(address, Upgrades::Possible)
            .await
            .map_err(ClusterError::Kubeconfig)?;
        Ok(Self { client })
    }

    /// The address of the API server.
    pub fn endpoint(&self) -> &str {
        &self.client.endpoint
    }

    /// The pods with these labels (a selector in kubectl's syntax) in a namespace or in all, by namespace and name.
    ///
    /// # Errors
    /// When the API server does not answer, or does not let them be listed.
    pub async fn pods(
        &self,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Pod>, ClusterError> {
        let path = match namespace {
            Some(namespace) => format!("/api/v1/namespaces/{}/pods", escape(namespace)),
            None => "/api/v1/pods".to_owned(),
        };
        let query = format!("labelSelector={}", escape(selector));
        let items: Vec<PodObject> = self
            .list("pods", "list on pods", &path, &query, JSON)
            .await?;
        Ok(items.into_iter().map(Pod::from).collect())
    }

    /// All nodes, by name.
    ///
    /// # Errors
    /// When the API server does not answer, or does not let them be listed.
    pub async fn nodes(&self) -> Result<Vec<Node>, ClusterError> {
        let items: Vec<NodeObject> = self
            .list("nodes", "list on nodes", "/api/v1/nodes", "", METADATA)
            .await?;
        Ok(items.into_iter().map(Node::from).collect())
    }

    /// Connects to a port of a pod. Each connection is one WebSocket.
    ///
    /// # Errors
    /// When the API server does not answer, or does not forward.
    pub async fn forward(&self, pod: &Pod, port: u16) -> Result<PortForward, ClusterError> {
        let pods: Api<v1::Pod> = Api::namespaced(self.client.current().await, &pod.namespace);
        let mut forward =
            pods.portforward(&pod.name, &[port])
                .await
                .map_err(|error| match error {
                    kube::Error::Api(status) if status.code == 403 => ClusterError::Forbidden {
                        endpoint: self.endpoint().to_owned(),
                        right: "get and create on pods/portforward",
                        message: status.message,
                    },
                    kube::Error::Api(status) => self.unavailable(status.message),
                    error => self.unavailable(failure::chain(&error)),
                })?;
        let stream = forward
            .take_stream(port)
            .ok_or_else(|| self.unavailable("no stream of the port"))?;
        let failure = forward
            .take_error(port)
            .ok_or_else(|| self.unavailable("no errors of the port"))?;
        Ok(PortForward {
            stream,
            failure: Box::pin(failure),
        })
    }

    /// A list, page by page.
    async fn list<T: DeserializeOwned>(
        &self,
        resource: &str,
        right: &'static str,
        path: &str,
        query: &str,
        form: &'static str,
    ) -> Result<Vec<T>, ClusterError> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let place = if next.is_empty() {
                String::new()
            } else {
                format!("&continue={}", escape(&next))
            };
            let page = format!("{path}?{query}&limit={PAGE_SIZE}{place}");
            let page =
                self.client
                    .get(resource, &page, form)
                    .await
                    .map_err(|failure| match failure {
                        Failure::Denied(denial) if !denial.is_missing => ClusterError::Forbidden {
                            endpoint: self.endpoint().to_owned(),
                            right,
                            message: denial.message,
                        },
                        Failure::Denied(denial) => self.unavailable(denial.message),
                        Failure::Gone | Failure::TooNew => {
                            self.unavailable("the list changed too fast; try again")
                        }
                        Failure::Store(
                            StoreError::Unavailable { reason, .. }
                            | StoreError::Refused { reason, .. },
                        ) => self.unavailable(reason),
                        Failure::Store(error) => self.unavailable(error.to_string()),
                    })?;
            let page: Page<T> = self.decode(resource, &page)?;
            items.extend(page.items);
            next = page.metadata.next;
            if next.is_empty() {
                return Ok(items);
            }
        }
    }

    fn decode<T: DeserializeOwned>(&self, resource: &str, json: &Bytes) -> Result<T, ClusterError> {
        let mut json = serde_json::Deserializer::from_slice(json);
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            self.unavailable(format!(
                "its list of {resource}: {}: {}",
                error.path(),
                error.inner()
            ))
        })
    }

    fn unavailable(&self, reason: impl Into<String>) -> ClusterError {
        ClusterError::Unavailable {
            endpoint: self.endpoint().to_owned(),
            reason: reason.into(),
        }
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<T>,
}
