//! The content of etcd: workloads, and services that select them.

use std::net::Ipv4Addr;

use contiv_proto::{Key, Kind};
use contiv_store::{Operation, Store};
use contiv_tests::lab::{LabError, Result};
use serde_json::json;

use crate::cluster::Client;

/// How many services there are.
pub(super) const SERVICES: usize = 10_000;
/// The number of workloads; each is selected by the same number of services.
pub(super) const WORKLOADS: usize = 5000;
/// How many services select a workload.
pub(super) const SERVICES_PER_WORKLOAD: usize = SERVICES / WORKLOADS;

const NAMESPACE: &str = "bench";
const CLUSTER_IPS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const ADDRESSES: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
const BATCH: usize = 128;

/// The prefix of all endpoint slices.
pub(super) fn slices_prefix() -> String {
    Key::prefix(Kind::EndpointSlice)
}

/// An address for a change of a workload that no other change uses.
pub(super) fn address(workload: usize, change: usize) -> Ipv4Addr {
    nth(ADDRESSES, 1 + change * WORKLOADS + workload)
}

fn nth(first: Ipv4Addr, number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits() + u32::try_from(number).unwrap_or_default())
}

/// Puts a workload with this address.
pub(super) fn put_workload(number: usize, address: Ipv4Addr) -> Result<Operation> {
    let name = format!("vm-{number}");
    let value = json!({
        "name": name, "namespace": NAMESPACE, "labels": {"app": format!("app-{number}")},
        "mesh_tls": {"identity": name, "server_name": name}, "workload_ips": [address.to_string()],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    put(Kind::ExternalWorkload, &name, &value)
}

fn put_service(number: usize) -> Result<Operation> {
    let name = format!("service-{number}");
    let ip = nth(CLUSTER_IPS, 1 + number).to_string();
    let value = json!({
        "name": name, "namespace": NAMESPACE, "selector": {"app": format!("app-{}", number % WORKLOADS)},
        "cluster_ip": ip, "cluster_ips": [ip], "service_type": "ClusterIP",
        "port": [{"name": "http", "protocol": "TCP", "port": 80,
                  "target_port": {"type": "STRING", "string_val": "http"}}],
    });
    put(Kind::Service, &name, &value)
}

fn put(kind: Kind, name: &str, value: &serde_json::Value) -> Result<Operation> {
    let key =
        Key::new(kind, NAMESPACE, name).map_err(|error| LabError::Unexpected(error.to_string()))?;
    Ok(Operation::Put {
        key: key.to_path(),
        value: value.to_string().into(),
    })
}

/// Writes everything. Must be called in the namespace of the node.
pub(super) fn fill(client: &Client) -> Result<()> {
    let workloads = (0..WORKLOADS).map(|number| put_workload(number, address(number, 0)));
    let all = workloads
        .chain((0..SERVICES).map(put_service))
        .collect::<Result<Vec<_>>>()?;
    for batch in all.chunks(BATCH) {
        let commit = client.store.commit(batch.to_vec());
        client
            .runtime
            .block_on(commit)
            .map_err(|error| LabError::Unexpected(error.to_string()))?;
    }
    Ok(())
}
