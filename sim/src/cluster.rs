//! The objects of a small cluster, as clients of the store write them, and the traffic to expect from them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use bytes::Bytes;
use contiv_proto::{Key, Kind};
use rand::{RngExt as _, rngs::SmallRng};
use serde_json::json;

/// The name of the simulated node.
pub const NODE: &str = "n1";
/// How many services there can be.
const SERVICES: u16 = 24;

/// One write of a client.
#[derive(Debug, Clone)]
pub enum Write {
    /// Create or overwrite a key.
    Put(String, Bytes),
    /// Remove a key.
    Delete(String),
}

/// A service as clients have written it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Service {
    /// Its endpoints; none if the slice is not stored.
    endpoints: Option<Vec<Ipv4Addr>>,
    is_stored: bool,
    /// The stored value of the service, or of the slice, cannot be read.
    is_service_bad: bool,
    is_slice_bad: bool,
}

/// The objects that clients have written so far.
#[derive(Debug, Clone)]
pub struct Cluster {
    services: BTreeMap<u16, Service>,
    next_endpoint: u32,
    is_node_stored: bool,
    /// The last part of the node's IPv6 address; 0 without one.
    node_ipv6: u16,
}

/// The node port of a service, if it has one that external clients may use with any endpoints (policy Cluster).
pub fn node_port(service: u16) -> Option<u16> {
    (service % 4 == 1).then_some(30_000 + service)
}

/// The address of a service.
pub fn cluster_ip(service: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 0, 0)) + 1 + u32::from(service))
}

fn key(kind: Kind, name: &str) -> String {
    let namespace = if kind == Kind::Node { "" } else { "default" };
    Key::new(kind, namespace, name).map(|key| key.to_path()).unwrap_or_default()
}

fn service_key(service: u16) -> String {
    key(Kind::Service, &format!("s{service}"))
}

fn slice_key(service: u16) -> String {
    key(Kind::EndpointSlice, &format!("s{service}"))
}

impl Cluster {
    /// A cluster with only the Node object, and the write that creates it.
    pub fn new() -> (Self, Vec<Write>) {
        let cluster =
            Self { services: BTreeMap::new(), next_endpoint: 0, is_node_stored: true, node_ipv6: 0 };
        let writes = vec![cluster.put_node()];
        (cluster, writes)
    }

    fn put_node(&self) -> Write {
        let mut addresses = vec![json!({"type": "NodeInternalIP", "address": NODE_ADDRESS.to_string()})];
        if self.node_ipv6 > 0 {
            let address = format!("fd00::{:x}", self.node_ipv6);
            addresses.push(json!({"type": "NodeInternalIP", "address": address}));
        }
        let value = json!({"name": NODE, "addresses": addresses});
        Write::Put(key(Kind::Node, NODE), value.to_string().into())
    }

    /// The next writes of a client. The same endpoint is never written twice, so that an endpoint shows how old a state is.
    pub fn next_write(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let service = rng.random_range(0..SERVICES);
        match rng.random_range(0..100) {
            0..37 => self.put_endpoints(service, rng),
            37..40 => vec![Self::put_unselected_pod(service)],
            40..65 => self.put_service(service),
            65..75 => self.delete_service(service),
            75..85 => self.delete_endpoints(service),
            85..90 => self.put_bad(service, rng.random()),
            90..93 => self.toggle_node(),
            93 => self.move_node(rng),
            94 | 95 => self.delete_most(rng),
            _ => {
                // Service and slice in one transaction.
                let mut writes = self.put_service(service);
                writes.extend(self.put_endpoints(service, rng));
                writes
            }
        }
    }

    /// Writes that make the state regular again: every value valid, and the Node object stored.
    pub fn repair(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let mut writes = Vec::new();
        if !self.is_node_stored {
            writes.extend(self.toggle_node());
        }
        let bad: Vec<(u16, bool, bool)> = self
            .services
            .iter()
            .filter(|(_, service)| service.is_service_bad || service.is_slice_bad)
            .map(|(number, service)| (*number, service.is_service_bad, service.is_slice_bad))
            .collect();
        for (service, is_service_bad, is_slice_bad) in bad {
            if is_service_bad {
                writes.extend(self.put_service(service));
            }
            if is_slice_bad {
                writes.extend(self.put_endpoints(service, rng));
            }
        }
        writes
    }

    /// The services with endpoints, and these.
    pub fn served(&self) -> impl Iterator<Item = (u16, &[Ipv4Addr])> {
        self.services.iter().filter_map(|(number, service)| {
            let endpoints = service.endpoints.as_deref().filter(|endpoints| !endpoints.is_empty())?;
            let is_clear = service.is_stored && !service.is_service_bad && !service.is_slice_bad;
            is_clear.then_some((*number, endpoints))
        })
    }

    /// The services with an invalid stored value, with the endpoints of their last valid values.
    pub fn last_good(&self) -> impl Iterator<Item = (u16, &[Ipv4Addr])> {
        self.services.iter().filter_map(|(number, service)| {
            let is_bad = service.is_stored && (service.is_service_bad || service.is_slice_bad);
            Some((*number, service.endpoints.as_deref().filter(|_| is_bad)?))
        })
    }

    /// The state of a backup, with the current counter of endpoints, so that none is written twice.
    #[must_use]
    pub fn restored(&self, then: Self) -> Self {
        Self { next_endpoint: self.next_endpoint, ..then }
    }

    fn put_service(&mut self, service: u16) -> Vec<Write> {
        let entry = self.services.entry(service).or_default();
        (entry.is_stored, entry.is_service_bad) = (true, false);
        let mut port = json!({"name": "http", "protocol": "TCP", "port": 80});
        let mut value = json!({"cluster_ip": cluster_ip(service).to_string()});
        if service % 4 == 1 {
            port["node_port"] = json!(30_000 + service);
            value["service_type"] = json!("NodePort");
        }
        if service % 4 == 2 {
            port["node_port"] = json!(30_000 + service);
            value["service_type"] = json!("LoadBalancer");
            value["external_traffic_policy"] = json!("Local");
            value["health_check_node_port"] = json!(31_000 + service);
        }
        if service % 4 == 3 {
            value["session_affinity"] = json!("ClientIP");
        }
        value["port"] = json!([port]);
        vec![Write::Put(service_key(service), value.to_string().into())]
    }

    fn put_endpoints(&mut self, service: u16, rng: &mut SmallRng) -> Vec<Write> {
        let count = rng.random_range(0..5);
        let endpoints: Vec<Ipv4Addr> = (0..count)
            .map(|_| {
                self.next_endpoint += 1;
                Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 0)) + self.next_endpoint)
            })
            .collect();
        let endpoint = |address: &Ipv4Addr| {
            let on_node = if u32::from(*address) % 3 == 0 { NODE } else { "n2" };
            json!({"addresses": [address.to_string()], "node_name": on_node})
        };
        let value = json!({
            "service_name": format!("s{service}"), "address_type": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        });
        let entry = self.services.entry(service).or_default();
        (entry.endpoints, entry.is_slice_bad) = (Some(endpoints), false);
        vec![Write::Put(slice_key(service), value.to_string().into())]
    }

    fn delete_service(&mut self, service: u16) -> Vec<Write> {
        let entry = self.services.entry(service).or_default();
        (entry.is_stored, entry.is_service_bad) = (false, false);
        vec![Write::Delete(service_key(service))]
    }

    fn delete_endpoints(&mut self, service: u16) -> Vec<Write> {
        let entry = self.services.entry(service).or_default();
        (entry.endpoints, entry.is_slice_bad) = (None, false);
        vec![Write::Delete(slice_key(service))]
    }

    fn put_bad(&mut self, service: u16, is_slice: bool) -> Vec<Write> {
        let entry = self.services.entry(service).or_default();
        if is_slice && entry.endpoints.is_some() {
            entry.is_slice_bad = true;
            vec![Write::Put(slice_key(service), Bytes::from_static(b"{\"ports\": 7}"))]
        } else if entry.is_stored {
            entry.is_service_bad = true;
            vec![Write::Put(service_key(service), Bytes::from_static(b"{"))]
        } else {
            Vec::new()
        }
    }

    fn toggle_node(&mut self) -> Vec<Write> {
        self.is_node_stored = !self.is_node_stored;
        if self.is_node_stored { vec![self.put_node()] } else { vec![Write::Delete(key(Kind::Node, NODE))] }
    }

    /// Gives the node another IPv6 address, or none.
    fn move_node(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        self.node_ipv6 = rng.random_range(0..4);
        self.is_node_stored = true;
        vec![self.put_node()]
    }

    /// A pod that no service selects.
    fn put_unselected_pod(number: u16) -> Write {
        let value = json!({"name": format!("lonely{number}"), "namespace": "default"});
        Write::Put(key(Kind::Pod, &format!("lonely{number}")), value.to_string().into())
    }

    /// Deletes most services at once.
    fn delete_most(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let stored: Vec<u16> = self
            .services
            .iter()
            .filter(|(_, service)| service.is_stored)
            .map(|(number, _)| *number)
            .collect();
        stored
            .into_iter()
            .filter(|_| rng.random_bool(0.9))
            .collect::<Vec<_>>()
            .into_iter()
            .flat_map(|service| self.delete_service(service))
            .collect()
    }
}

/// The node's address, at which node ports answer.
pub const NODE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1));
