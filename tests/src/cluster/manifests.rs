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
        let manifests = Self {
            folder: scratch("manifests")?,
        };
        fs::create_dir_all(&manifests.folder)
            .map_err(|error| failed("make", &manifests.folder, error))?;
        for (host, pods) in [
            (lab.node.host, &ranges::PODS),
            (lab.node2.host, &ranges::PODS2),
        ] {
            manifests.put_node(&NodeManifest {
                host,
                pods: Some(pods),
                zone: None,
            })?;
        }
        Ok(manifests)
    }

    /// Creates or replaces a node.
    pub fn put_node(&self, node: &NodeManifest) -> Result<()> {
        self.write(&node_file(node.host), &node.text())
    }

    /// The path of the folder.
    pub fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    /// Creates or replaces a service and its endpoint slices.
    pub fn put_manifest(&self, manifest: &ServiceManifest) -> Result<()> {
        self.write(&format!("{}.yaml", manifest.service.name), &manifest.text())
    }

    /// Writes any file, for tests of invalid ones.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        // Written under a name that is ignored and then renamed, so that no partial file is read.
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

    fn delete_node(&self, node: &Host) -> Result<()> {
        let path = self.folder.join(node_file(node));
        fs::remove_file(&path).map_err(|error| failed("remove", &path, error))
    }
}

fn node_file(node: &Host) -> String {
    format!("{}-node.yaml", node.name)
}

fn failed(action: &str, path: &Path, error: std::io::Error) -> LabError {
    LabError::system(format!("{action} {}", path.display()), error)
}

/// A node as `kubectl` prints it.
#[derive(Debug, Clone, Copy)]
pub struct NodeManifest {
    /// Its name and addresses.
    pub host: &'static Host,
    /// The CIDRs of its pods, if it has any.
    pub pods: Option<&'static Range>,
    /// Its zone label.
    pub zone: Option<&'static str>,
}

impl NodeManifest {
    fn text(&self) -> String {
        let spec = self.pods.map_or_else(String::new, |pods| {
            let (v4, v6) = (pods.cidr(Family::V4), pods.cidr(Family::V6));
            format!("podCIDR: {v4}, podCIDRs: [{v4}, '{v6}']")
        });
        let labels = self.zone.map_or_else(String::new, |zone| {
            format!("topology.kubernetes.io/zone: {zone}")
        });
        format!(
            "apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{{labels}}}}}
spec: {{{spec}}}
status:
  addresses:
  - {{type: InternalIP, address: {v4}}}
  - {{type: InternalIP, address: '{v6}'}}
",
            name = self.host.name,
            v4 = self.host.v4,
            v6 = self.host.v6,
        )
    }
}
