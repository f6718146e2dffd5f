//! State as a folder of Kubernetes manifests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Service, ServiceManifest, State};
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

    /// Writes a service and its endpoint slices, whether they are there or not.
    pub fn put_manifest(&self, manifest: &ServiceManifest) -> Result<()> {
        self.write(&format!("{}.yaml", manifest.service.name), &manifest.text())
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
        self.put_manifest(&ServiceManifest::new(service.clone()))
    }

    fn delete(&self, service: &Service) -> Result<()> {
        let slices = ServiceManifest::new(service.clone()).slices_text();
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
