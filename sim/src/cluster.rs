//! The objects of a small cluster, as clients of the store write them.

mod node;
mod pool;
mod service;
mod slice;

use std::collections::BTreeMap;

use bytes::Bytes;
use contiv_proto::{Key, Kind};
use rand::{RngExt as _, rngs::SmallRng, seq::SliceRandom as _};
use serde_json::json;

pub(crate) use self::{
    node::{NODE, NODE_ADDRESS, NodeFacts},
    service::{Port, ServiceSpec, Transport},
    slice::{Condition, Endpoint, Slice, TARGET_PORT_OFFSET},
};
use self::{pool::Pools, slice::pod_name};

/// How many services there can be.
pub(crate) const SERVICES: u16 = 24;
/// Whether the slices that a service can have are of IPv4.
const SLICES: [bool; 3] = [true, true, false];

/// One write of a client.
#[derive(Debug, Clone)]
pub enum Write {
    /// Create or overwrite a key.
    Put(String, Bytes),
    /// Remove a key.
    Delete(String),
}

/// A stored object: its last valid value, and whether the stored one is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored<T> {
    last_good: T,
    is_bad: bool,
}

impl<T> Stored<T> {
    const fn good(value: T) -> Self {
        Self {
            last_good: value,
            is_bad: false,
        }
    }
}

/// The objects of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Objects {
    service: Option<Stored<ServiceSpec>>,
    slices: [Option<Stored<Slice>>; SLICES.len()],
}

/// The number of a service, and the place of one of its slices.
pub(crate) type SliceId = (u16, usize);

/// What decides where the connections to a service go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedService {
    pub(crate) spec: ServiceSpec,
    pub(crate) slices: Vec<Slice>,
}

/// The objects that clients have written so far.
#[derive(Debug, Clone)]
pub struct Cluster {
    services: BTreeMap<u16, Objects>,
    last_endpoint: u32,
    is_node_stored: bool,
    node: NodeFacts,
}

fn key(kind: Kind, name: &str) -> String {
    let namespace = if kind == Kind::Node { "" } else { "default" };
    Key::new(kind, namespace, name)
        .map(|key| key.to_path())
        .unwrap_or_default()
}

/// The name of a service.
pub(crate) fn service_name(service: u16) -> String {
    format!("s{service}")
}

fn service_key(service: u16) -> String {
    key(Kind::Service, &service_name(service))
}

fn slice_key(service: u16, slice: usize) -> String {
    key(Kind::EndpointSlice, &format!("s{service}-{slice}"))
}

impl Cluster {
    /// A cluster with only the Node object, and the write that creates it.
    pub fn new() -> (Self, Vec<Write>) {
        let cluster = Self {
            services: BTreeMap::new(),
            last_endpoint: 0,
            is_node_stored: true,
            node: NodeFacts::default(),
        };
        let writes = vec![cluster.put_node()];
        (cluster, writes)
    }

    /// The next writes of a client. No two endpoints ever have the same address, so an endpoint shows how old a state is.
    pub fn next_write(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let service = rng.random_range(0..SERVICES);
        match rng.random_range(0..100) {
            0..42 => self.change_slice(service, rng),
            42..45 => vec![Self::put_unselected_pod(service)],
            45..48 => self.put_pod(service, rng),
            48..62 => self.put_service(service, rng),
            62..66 => self.move_addresses(rng),
            66..72 => self.delete_service(service),
            72..78 => self.delete_slice(service, rng.random_range(0..SLICES.len())),
            78..83 => self.put_bad(service, rng),
            83..86 => self.toggle_node(),
            86..90 => self.change_node(rng),
            90 | 91 => self.delete_most(rng),
            92 => self.put_most(rng),
            _ => {
                // Service and slices in one transaction.
                let mut writes = self.put_service(service, rng);
                writes.extend(self.change_slice(service, rng));
                writes.extend(self.change_slice(service, rng));
                writes
            }
        }
    }

    /// Writes that make the state regular again: every value valid, and the Node object stored.
    pub fn repair(&mut self) -> Vec<Write> {
        let mut writes = Vec::new();
        if !self.is_node_stored {
            writes.extend(self.toggle_node());
        }
        for (number, objects) in &mut self.services {
            if let Some(service) = objects.service.as_mut().filter(|service| service.is_bad) {
                service.is_bad = false;
                writes.push(put_service(*number, &service.last_good));
            }
            for (at, slice) in objects.slices.iter_mut().enumerate() {
                if let Some(slice) = slice.as_mut().filter(|slice| slice.is_bad) {
                    slice.is_bad = false;
                    writes.push(put_slice(*number, at, &slice.last_good));
                }
            }
        }
        writes
    }

    /// The stored services with their slices. With an invalid value of one the last valid one counts; then it is `false`.
    pub(crate) fn served(&self) -> impl Iterator<Item = (u16, ServedService, bool)> {
        self.services.iter().filter_map(|(number, objects)| {
            let service = objects.service.as_ref()?;
            let slices = || objects.slices.iter().flatten();
            let is_valid = !service.is_bad && slices().all(|slice| !slice.is_bad);
            let slices = slices().map(|slice| slice.last_good.clone()).collect();
            Some((
                *number,
                ServedService {
                    spec: service.last_good.clone(),
                    slices,
                },
                is_valid,
            ))
        })
    }

    /// The facts of the stored Node object.
    pub(crate) fn node(&self) -> Option<NodeFacts> {
        self.is_node_stored.then_some(self.node)
    }

    /// The services whose stored Service object is invalid.
    pub(crate) fn invalid_services(&self) -> impl Iterator<Item = u16> {
        let is_invalid = |objects: &Objects| objects.service.as_ref().is_some_and(|it| it.is_bad);
        let services = self.services.iter();
        services.filter_map(move |(number, objects)| is_invalid(objects).then_some(*number))
    }

    /// The stored slices, each with its last valid value, and whether that is the stored one.
    pub(crate) fn slices(&self) -> impl Iterator<Item = (SliceId, &Slice, bool)> {
        self.services.iter().flat_map(|(number, objects)| {
            let slices = objects.slices.iter().enumerate();
            slices.filter_map(|(at, slice)| {
                let slice = slice.as_ref()?;
                Some(((*number, at), &slice.last_good, !slice.is_bad))
            })
        })
    }

    /// The state of a backup, with the current counter of endpoints, so that none is written twice.
    #[must_use]
    pub fn restored(&self, then: Self) -> Self {
        Self {
            last_endpoint: self.last_endpoint,
            ..then
        }
    }

    fn put_node(&self) -> Write {
        Write::Put(key(Kind::Node, NODE), self.node.value().to_string().into())
    }

    fn pools(&self) -> Pools {
        let mut pools = Pools::default();
        for service in self
            .services
            .values()
            .filter_map(|objects| objects.service.as_ref())
        {
            service.last_good.add_to(&mut pools);
        }
        pools
    }

    /// Creates a service, changes an aspect of one, or writes it once more.
    fn put_service(&mut self, number: u16, rng: &mut SmallRng) -> Vec<Write> {
        let pools = self.pools();
        let objects = self.services.entry(number).or_default();
        let spec = match objects.service.take() {
            Some(Stored {
                last_good: mut spec,
                ..
            }) => {
                if rng.random_bool(0.8) {
                    spec.change(&pools, rng);
                }
                Some(spec)
            }
            None => ServiceSpec::random(&pools, rng),
        };
        let Some(spec) = spec else { return Vec::new() };
        let write = put_service(number, &spec);
        objects.service = Some(Stored::good(spec));
        vec![write]
    }

    /// Two services exchange their addresses and node ports, or one gets those of another that is deleted, in one transaction.
    fn move_addresses(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let is_valid = |(number, objects): (&u16, &Objects)| {
            objects
                .service
                .as_ref()
                .filter(|service| !service.is_bad)
                .map(|_| *number)
        };
        let mut numbers: Vec<u16> = self.services.iter().filter_map(is_valid).collect();
        numbers.shuffle(rng);
        let [one, other, ..] = numbers[..] else {
            return Vec::new();
        };
        let spec = |number: u16| {
            self.services
                .get(&number)?
                .service
                .as_ref()
                .map(|service| service.last_good.clone())
        };
        let (Some(mut first), Some(mut second)) = (spec(one), spec(other)) else {
            return Vec::new();
        };
        std::mem::swap(&mut first.cluster_ip, &mut second.cluster_ip);
        std::mem::swap(&mut first.ports, &mut second.ports);
        std::mem::swap(&mut first.external_ip, &mut second.external_ip);
        // The address of a load balancer belongs to that type.
        if first.kind == second.kind {
            std::mem::swap(&mut first.ingress_ip, &mut second.ingress_ip);
        }
        let mut writes = vec![put_service(one, &first)];
        self.services.entry(one).or_default().service = Some(Stored::good(first));
        if rng.random_bool(0.3) {
            writes.extend(self.delete_service(other));
        } else {
            writes.push(put_service(other, &second));
            self.services.entry(other).or_default().service = Some(Stored::good(second));
        }
        writes.shuffle(rng);
        writes
    }

    fn change_slice(&mut self, number: u16, rng: &mut SmallRng) -> Vec<Write> {
        let at = rng.random_range(0..SLICES.len());
        let slice = &mut self.services.entry(number).or_default().slices[at];
        let mut next = slice
            .take()
            .map_or_else(|| Slice::new(SLICES[at]), |slice| slice.last_good);
        next.change(&mut self.last_endpoint, rng);
        let write = put_slice(number, at, &next);
        *slice = Some(Stored::good(next));
        vec![write]
    }

    fn delete_service(&mut self, number: u16) -> Vec<Write> {
        self.services.entry(number).or_default().service = None;
        vec![Write::Delete(service_key(number))]
    }

    fn delete_slice(&mut self, number: u16, at: usize) -> Vec<Write> {
        self.services.entry(number).or_default().slices[at] = None;
        vec![Write::Delete(slice_key(number, at))]
    }

    /// Overwrites the service or one of its slices with an invalid value.
    fn put_bad(&mut self, number: u16, rng: &mut SmallRng) -> Vec<Write> {
        let objects = self.services.entry(number).or_default();
        let at = rng.random_range(0..SLICES.len());
        match (&mut objects.service, &mut objects.slices[at]) {
            (_, Some(slice)) if rng.random() => {
                slice.is_bad = true;
                vec![Write::Put(
                    slice_key(number, at),
                    Bytes::from_static(b"{\"ports\": 7}"),
                )]
            }
            (Some(service), _) => {
                service.is_bad = true;
                vec![Write::Put(service_key(number), Bytes::from_static(b"{"))]
            }
            _ => Vec::new(),
        }
    }

    fn toggle_node(&mut self) -> Vec<Write> {
        self.is_node_stored = !self.is_node_stored;
        if self.is_node_stored {
            vec![self.put_node()]
        } else {
            vec![Write::Delete(key(Kind::Node, NODE))]
        }
    }

    /// Gives the node another IPv6 address, zone or range of pods, or takes it away.
    fn change_node(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        self.node.change(rng);
        self.is_node_stored = true;
        vec![self.put_node()]
    }

    /// The pod of an endpoint, with a weight; or its deletion.
    fn put_pod(&self, service: u16, rng: &mut SmallRng) -> Vec<Write> {
        let slices = self
            .services
            .get(&service)
            .into_iter()
            .flat_map(|objects| objects.slices.iter().flatten());
        let endpoints: Vec<Endpoint> = slices
            .flat_map(|slice| slice.last_good.endpoints.clone())
            .collect();
        if endpoints.is_empty() {
            return Vec::new();
        }
        let name = pod_name(endpoints[rng.random_range(0..endpoints.len())].number);
        if rng.random_bool(0.3) {
            return vec![Write::Delete(key(Kind::Pod, &name))];
        }
        let weight = rng.random_range(1..5_u8).to_string();
        let value = json!({"name": name, "namespace": "default", "annotations": {"contiv.io/weight": weight}});
        vec![Write::Put(key(Kind::Pod, &name), value.to_string().into())]
    }

    /// A pod that no service selects.
    fn put_unselected_pod(number: u16) -> Write {
        let value = json!({"name": format!("lonely{number}"), "namespace": "default"});
        Write::Put(
            key(Kind::Pod, &format!("lonely{number}")),
            value.to_string().into(),
        )
    }

    /// Creates most services that are missing, at once, as a restored namespace does.
    fn put_most(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let is_missing = |number: &u16| {
            self.services
                .get(number)
                .is_none_or(|objects| objects.service.is_none())
        };
        let missing: Vec<u16> = (0..SERVICES)
            .filter(is_missing)
            .filter(|_| rng.random_bool(0.9))
            .collect();
        missing
            .into_iter()
            .flat_map(|service| self.put_service(service, rng))
            .collect()
    }

    /// Deletes most services at once.
    fn delete_most(&mut self, rng: &mut SmallRng) -> Vec<Write> {
        let stored = self
            .services
            .iter()
            .filter(|(_, objects)| objects.service.is_some());
        let stored: Vec<u16> = stored.map(|(number, _)| *number).collect();
        let deleted = stored
            .into_iter()
            .filter(|_| rng.random_bool(0.9))
            .collect::<Vec<_>>();
        deleted
            .into_iter()
            .flat_map(|service| self.delete_service(service))
            .collect()
    }
}

fn put_service(number: u16, spec: &ServiceSpec) -> Write {
    Write::Put(
        service_key(number),
        spec.value(31_000 + number).to_string().into(),
    )
}

fn put_slice(number: u16, at: usize, slice: &Slice) -> Write {
    Write::Put(
        slice_key(number, at),
        slice.value(&service_name(number)).to_string().into(),
    )
}
