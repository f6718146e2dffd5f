//! External workloads and their services in etcd, as `contiv apply` would write them.

use contiv_tests::{
    cluster::{EtcdClient, NAMESPACE, ROOT, TARGET_PORT},
    lab::Result,
};
use serde_json::{Value, json};

/// An external workload.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) app: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) is_ready: bool,
}

impl Workload {
    pub(crate) fn key(&self) -> String {
        format!(
            "{ROOT}/externalworkload/{}/namespace/{NAMESPACE}",
            self.name
        )
    }

    pub(crate) fn value(&self) -> Value {
        json!({
            "name": self.name,
            "namespace": NAMESPACE,
            "labels": {"app": self.app},
            "mesh_tls": {"identity": self.name, "server_name": self.name},
            "workload_ips": self.addresses,
            "ports": [{"name": "web", "port": TARGET_PORT, "protocol": "TCP"}],
            "conditions": [{"type": "Ready", "status": if self.is_ready { "True" } else { "False" }}],
        })
    }

    pub(crate) fn put(&self, etcd: &EtcdClient<'_>) -> Result<()> {
        etcd.put_value(&self.key(), &self.value().to_string())
    }
}

/// The key of a service.
pub(crate) fn service_key(name: &str) -> String {
    format!("{ROOT}/service/{name}/namespace/{NAMESPACE}")
}

/// A service that selects the workloads of one app.
pub(crate) fn service(name: &str, app: &str, cluster_ips: &[&str]) -> Value {
    json!({
        "name": name,
        "namespace": NAMESPACE,
        "selector": {"app": app},
        "cluster_ip": cluster_ips[0],
        "cluster_ips": cluster_ips,
        "service_type": "ClusterIP",
        "port": [{"name": "http", "port": 80, "protocol": "TCP",
                  "target_port": {"type": "STRING", "string_val": "web"}}],
    })
}
