//! A Kubernetes cluster on the lab's node: an API server in memory, over real HTTP.

use std::fs;

use contiv_store_testing::ApiServer;
use contiv_tests::{
    cluster::{Frontend, NAMESPACE, PORT, Service, TARGET_PORT},
    lab::{Family, Host, Lab, LabError, Process, Range, Result, ranges, scratch},
};
use serde_json::{Value, json};

pub(crate) struct Kubernetes<'lab> {
    lab: &'lab Lab,
    pub(crate) server: ApiServer,
}

impl<'lab> Kubernetes<'lab> {
    /// Starts the API server inside the node's namespace; both nodes are in it.
    pub(crate) fn start(lab: &'lab Lab) -> Result<Self> {
        let server = lab.node.run(|| {
            ApiServer::start()
                .map_err(|error| LabError::system("start the API server".to_owned(), error))
        })?;
        let kubernetes = Self { lab, server };
        for (host, pods) in [
            (lab.node.host, &ranges::PODS),
            (lab.node2.host, &ranges::PODS2),
        ] {
            kubernetes.put_object(node(host, pods))?;
        }
        Ok(kubernetes)
    }

    /// The URL by which an agent reads it.
    pub(crate) fn url(&self) -> Result<String> {
        Ok(format!("kube:{}", self.kubeconfig()?))
    }

    pub(crate) fn kubeconfig(&self) -> Result<String> {
        let path = self.server.kubeconfig();
        path.map(|path| path.display().to_string()).map_err(failed)
    }

    /// Writes a service and its endpoint slices, as the controllers of a cluster do.
    pub(crate) fn put(&self, service: &Service) -> Result<()> {
        self.put_object(service_object(self.lab, service))?;
        for family in Family::BOTH {
            self.put_object(slice_object(service, family))?;
        }
        Ok(())
    }

    /// Writes a service with these labels, and leaves its endpoint slices alone, as `kubectl label` does.
    pub(crate) fn label(&self, service: &Service, labels: Value) -> Result<()> {
        let mut object = service_object(self.lab, service);
        object["metadata"]["labels"] = labels;
        self.put_object(object)
    }

    /// Removes a service and its endpoint slices.
    pub(crate) fn delete(&self, service: &Service) {
        self.server.delete("services", NAMESPACE, service.name);
        for family in Family::BOTH {
            self.server
                .delete("endpointslices", NAMESPACE, &slice_name(service, family));
        }
    }

    pub(crate) fn put_object(&self, object: Value) -> Result<()> {
        self.server.put(object).map(drop).map_err(failed)
    }
}

/// Runs `contiv controller --enable reflector` on the node.
pub(crate) fn start_reflector(
    lab: &Lab,
    kubernetes: &Kubernetes<'_>,
    etcd: &str,
) -> Result<Process> {
    let config = scratch("controller.toml")?;
    fs::write(&config, "").map_err(failed)?;
    let mut command = std::process::Command::new(contiv_tests::agent::binary()?);
    command.env_clear().env("RUST_BACKTRACE", "1");
    command.args([
        "controller",
        "--enable",
        "reflector",
        "--store",
        etcd,
        "--identity",
        "lab",
    ]);
    command.args(["--reflector-kubeconfig", &kubernetes.kubeconfig()?]);
    command.arg("--config").arg(config);
    Process::start(&lab.node, "controller", &mut command)
}

fn failed(error: std::io::Error) -> LabError {
    LabError::system("use the API server".to_owned(), error)
}

fn node(host: &Host, pods: &Range) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": host.name },
        "spec": {
            "podCIDR": pods.cidr(Family::V4),
            "podCIDRs": Family::BOTH.map(|family| pods.cidr(family)),
        },
        "status": {
            "addresses": Family::BOTH.map(|family| json!({ "type": "InternalIP", "address": host.address(family) })),
            "images": [{ "names": ["an image that nobody asks for"], "sizeBytes": 1 }],
        },
    })
}

fn service_object(lab: &Lab, service: &Service) -> Value {
    let addresses =
        |frontend| Family::BOTH.map(|family| service.address(lab, frontend, family).ip());
    let cluster_ips = addresses(Frontend::ClusterIp);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": service.name, "namespace": NAMESPACE },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": cluster_ips[0],
            "clusterIPs": cluster_ips,
            "externalIPs": addresses(Frontend::ExternalIp),
            "ports": [{ "name": "web", "protocol": "TCP", "port": PORT, "targetPort": TARGET_PORT,
                "nodePort": service.node_port() }],
        },
        "status": { "loadBalancer": {
            "ingress": addresses(Frontend::LoadBalancer).map(|ip| json!({ "ip": ip, "ipMode": "VIP" })),
        } },
    })
}

fn slice_object(service: &Service, family: Family) -> Value {
    let endpoint = |host: &&Host| {
        json!({
            "addresses": [host.address(family)], "nodeName": host.node,
            "conditions": { "ready": true, "serving": true, "terminating": false },
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(service, family), "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": service.name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": match family { Family::V4 => "IPv4", Family::V6 => "IPv6" },
        "endpoints": service.backends.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "web", "protocol": "TCP", "port": TARGET_PORT }],
    })
}

fn slice_name(service: &Service, family: Family) -> String {
    format!("{}-{family:?}", service.name).to_lowercase()
}
