//! Stored values, and the events of a store, for tests.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on fails"
)]

use std::net::IpAddr;

use contiv_proto::{Key, Kind};
use contiv_store::{Batch, Change, Entry, FeedEvent, Snapshot};
use serde_json::json;

fn entry(kind: Kind, name: &str, value: String) -> Entry {
    let key = Key::new(kind, "default", name)
        .expect("a good name")
        .to_path();
    Entry {
        key,
        value: value.into(),
        create_revision: 1,
        mod_revision: 1,
    }
}

/// A service on port 80 of 10.96.0.`last`.
pub fn service(name: &str, last: u8) -> Entry {
    let port = json!([{"name": "http", "protocol": "TCP", "port": 80}]);
    let value = json!({"cluster_ip": format!("10.96.0.{last}"), "port": port});
    entry(Kind::Service, name, value.to_string())
}

/// A load balancer with external policy Local, and this health-check node port.
pub fn load_balancer(name: &str, health_check_node_port: u16) -> Entry {
    let value = json!({
        "cluster_ip": "10.96.0.1", "port": [{"name": "http", "protocol": "TCP", "port": 80, "node_port": 30080}],
        "service_type": "LoadBalancer", "external_traffic_policy": "Local",
        "health_check_node_port": health_check_node_port,
    });
    entry(Kind::Service, name, value.to_string())
}

/// The only slice of a service, with one endpoint on node n1 for each of these: ready or not. The others are terminating and
/// still serve.
pub fn local_slice(name: &str, ready: &[bool]) -> Entry {
    let endpoint = |(last, ready): (usize, &bool)| {
        let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
        json!({"addresses": [format!("10.1.0.{last}")], "node_name": "n1", "conditions": conditions})
    };
    let value = json!({
        "service_name": name, "address_type": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": (1..).zip(ready).map(endpoint).collect::<Vec<_>>(),
    });
    entry(Kind::EndpointSlice, name, value.to_string())
}

/// The Node object of n1, with one address.
pub fn node(address: IpAddr) -> Entry {
    let key = Key::new(Kind::Node, "", "n1")
        .expect("a good name")
        .to_path();
    let value =
        json!({"name": "n1", "addresses": [{"type": "NodeInternalIP", "address": address}]});
    Entry {
        key,
        value: value.to_string().into(),
        create_revision: 1,
        mod_revision: 1,
    }
}

/// A service whose value cannot be read.
pub fn bad_service(name: &str) -> Entry {
    entry(Kind::Service, name, "{\"port\": 1}".to_owned())
}

/// The only slice of a service, with one endpoint 10.1.0.`last`.
pub fn slice(name: &str, last: u8) -> Entry {
    let value = json!({
        "service_name": name, "address_type": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": [format!("10.1.0.{last}")]}],
    });
    entry(Kind::EndpointSlice, name, value.to_string())
}

/// A complete list.
pub fn snapshot(revision: i64, entries: Vec<Entry>) -> FeedEvent {
    FeedEvent::Snapshot(Snapshot {
        revision,
        entries,
        problems: Vec::new(),
    })
}

/// The change that stores a value.
pub fn put(entry: Entry) -> Change {
    Change::Put(entry)
}

/// The deletion of a value.
pub fn delete(entry: Entry) -> Change {
    Change::Delete { key: entry.key }
}

/// Changes at one revision.
pub fn batch(revision: i64, changes: Vec<Change>) -> FeedEvent {
    FeedEvent::Changed(Batch { revision, changes })
}
