//! State as a folder of Kubernetes manifests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    NAMESPACE, PORT, Service, State, TARGET_PORT,
    service::{address_type, slice_name},
};
use crate::lab::{Family, Host, Lab, LabError, Range, Result, ranges, scratch};

/// A folder of manifests on the lab's own file system.
#[derive(Debug)]
pub struct Manifests {
    folder: PathBuf,
}

impl Manifests {
    /// An empty cluster: only its nodes.
    pub fn new(lab: &Lab) -> Result<Self> {
        let manifests = Self { folder: scratch("manifests")? };
        fs::create_dir_all(&manifests.folder).map_err(|error| failed("make", &manifests.folder, error))?;
        let nodes = [(lab.node.host, &ranges::PODS), (lab.node2.host, &ranges::PODS2)]
            .map(|(node, pods)| node_text(node, pods));
        manifests.write("nodes.yaml", &nodes.join("---\n"))?;
        Ok(manifests)
    }

    /// Where the manifests are.
    pub fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    /// Writes any file, as a test of broken ones needs.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        // First under a name that is no manifest's, so that nobody sees half a file.
        let (new, path) = (self.folder.join(".new"), self.folder.join(name));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| failed("write", &path, error))
    }
}

impl State for Manifests {
    fn url(&self) -> String {
        format!("dir:{}", self.folder())
    }

    fn put(&self, service: &Service) -> Result<()> {
        let slices = Family::BOTH.map(|family| slice_text(service, family)).join("---\n");
        self.write(&format!("{}.yaml", service.name), &format!("{}---\n{slices}", service_text(service)))
    }

    fn delete(&self, service: &Service) -> Result<()> {
        let slices = Family::BOTH.map(|family| slice_text(service, family)).join("---\n");
        self.write(&format!("{}.yaml", service.name), &slices)
    }
}

fn failed(action: &str, path: &Path, error: std::io::Error) -> LabError {
    LabError::system(format!("{action} {}", path.display()), error)
}

fn node_text(node: &Host, pods: &Range) -> String {
    let (v4, v6) = (pods.cidr(Family::V4), pods.cidr(Family::V6));
    format!(
        "apiVersion: v1
kind: Node
metadata: {{name: {name}}}
spec: {{podCIDR: {v4}, podCIDRs: [{v4}, '{v6}']}}
status:
  addresses:
  - {{type: InternalIP, address: {address4}}}
  - {{type: InternalIP, address: '{address6}'}}
",
        name = node.name,
        address4 = node.v4,
        address6 = node.v6,
    )
}

fn service_text(service: &Service) -> String {
    let [cluster4, cluster6] = service.addresses(&ranges::SERVICES);
    let [external4, external6] = service.addresses(&ranges::EXTERNAL_IPS);
    let [balancer4, balancer6] = service.addresses(&ranges::LOAD_BALANCERS);
    let node_port = service.node_port();
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  type: LoadBalancer
  clusterIP: {cluster4}
  clusterIPs: [{cluster4}, '{cluster6}']
  ipFamilies: [IPv4, IPv6]
  externalIPs: [{external4}, '{external6}']
  ports:
  - {{name: web, protocol: TCP, port: {PORT}, targetPort: {TARGET_PORT}, nodePort: {node_port}}}
  - {{name: web-udp, protocol: UDP, port: {PORT}, targetPort: {TARGET_PORT}, nodePort: {node_port}}}
status:
  loadBalancer:
    ingress: [{{ip: {balancer4}}}, {{ip: '{balancer6}'}}]
",
        name = service.name,
    )
}

fn slice_text(service: &Service, family: Family) -> String {
    let endpoint = |host: &&Host| {
        format!(
            "\n- {{addresses: ['{}'], nodeName: {}, conditions: {{ready: true}}}}",
            host.address(family),
            host.node
        )
    };
    let endpoints: String = match service.backends.as_slice() {
        [] => " []".to_owned(),
        backends => backends.iter().map(endpoint).collect(),
    };
    format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {slice}
  namespace: {NAMESPACE}
  labels: {{kubernetes.io/service-name: {name}}}
addressType: {address_type}
ports:
- {{name: web, protocol: TCP, port: {TARGET_PORT}}}
- {{name: web-udp, protocol: UDP, port: {TARGET_PORT}}}
endpoints:{endpoints}
",
        slice = slice_name(service, family),
        name = service.name,
        address_type = address_type(family),
    )
}
