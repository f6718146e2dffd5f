//! Test helpers: services, workloads, and an in-memory set of slices that applies writes.

use std::collections::{BTreeMap, BTreeSet};

use contiv_proto::message::endpointslice::{EndpointSlice, endpoint_slice::Endpoint};

use crate::{
    family::Family,
    plan::{Input, SliceWrite, plan},
    service::{Service, ServicePort, Target},
    workload::{Workload, WorkloadPort},
};

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The IPv4 service `shop/web`, whose port `http` targets the port `http` of workloads with `app=web`.
pub(crate) fn service() -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: 7,
        labels: map(&[("team", "a")]),
        selector: map(&[("app", "web")]),
        is_external_name: false,
        is_headless: false,
        families: vec![Family::Ipv4],
        ports: vec![port("http", Target::Name("http".to_owned()))],
    }
}

pub(crate) fn port(name: &str, target: Target) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol: "TCP".to_owned(),
        target,
    }
}

pub(crate) fn workload_port(name: &str, port: i32) -> WorkloadPort {
    WorkloadPort {
        name: name.to_owned(),
        port,
        protocol: "TCP".to_owned(),
    }
}

/// A ready workload with these addresses and the port `http` 8080.
pub(crate) fn workload(name: &str, ips: &[&str]) -> Workload {
    Workload {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: 1000,
        labels: map(&[("app", "web")]),
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ports: vec![workload_port("http", 8080)],
        is_ready: true,
    }
}

/// `count` workloads, each with its own address.
pub(crate) fn workloads(count: usize) -> Vec<Workload> {
    (0..count)
        .map(|i| {
            workload(
                &format!("w{i:04}"),
                &[&format!("192.0.{}.{}", 2 + i / 250, 1 + i % 250)],
            )
        })
        .collect()
}

/// Slices by name, like those of a store.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Slices(pub(crate) BTreeMap<String, EndpointSlice>);

impl Slices {
    /// Plans the writes for a service and its workloads.
    pub(crate) fn plan(&self, service: &Service, workloads: &[Workload]) -> Vec<SliceWrite> {
        self.plan_with(service, workloads, &[])
    }

    /// The same when the workloads with the names `unreadable` cannot be read.
    pub(crate) fn plan_with(
        &self,
        service: &Service,
        workloads: &[Workload],
        unreadable: &[&str],
    ) -> Vec<SliceWrite> {
        let unreadable: BTreeSet<String> =
            unreadable.iter().map(|name| (*name).to_owned()).collect();
        plan(&Input {
            service,
            workloads: &workloads.iter().collect::<Vec<_>>(),
            slices: &self.0.values().collect::<Vec<_>>(),
            unreadable: &unreadable,
            is_taken: &|name| self.0.contains_key(name),
        })
    }

    /// Applies the writes. Creating an existing slice, and updating or deleting a missing one, fails the test.
    pub(crate) fn apply(&mut self, writes: &[SliceWrite]) {
        for write in writes {
            let is_valid = match write {
                SliceWrite::Create(slice) => {
                    self.0.insert(slice.name.clone(), slice.clone()).is_none()
                }
                SliceWrite::Update(slice) => {
                    self.0.insert(slice.name.clone(), slice.clone()).is_some()
                }
                SliceWrite::Delete(name) => self.0.remove(name).is_some(),
            };
            assert!(is_valid, "{write:?}");
        }
    }

    /// Plans, applies, and returns the number of writes of each kind.
    pub(crate) fn sync(&mut self, service: &Service, workloads: &[Workload]) -> [usize; 3] {
        let writes = self.plan(service, workloads);
        self.apply(&writes);
        counts(&writes)
    }

    /// The number of endpoints of each slice, in descending order.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.0.values().map(|slice| slice.endpoints.len()).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }

    /// All endpoints with the slice they are in.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (&EndpointSlice, &Endpoint)> {
        self.0.values().flat_map(|slice| {
            slice
                .endpoints
                .iter()
                .map(move |endpoint| (slice, endpoint))
        })
    }

    /// The only slice.
    pub(crate) fn only(&self) -> &EndpointSlice {
        assert_eq!(self.0.len(), 1, "{self:?}");
        self.0.values().next().unwrap()
    }
}

/// The numbers of creates, updates and deletes.
pub(crate) fn counts(writes: &[SliceWrite]) -> [usize; 3] {
    let count =
        |is_kind: fn(&SliceWrite) -> bool| writes.iter().filter(|write| is_kind(write)).count();
    [
        count(|write| matches!(write, SliceWrite::Create(_))),
        count(|write| matches!(write, SliceWrite::Update(_))),
        count(|write| matches!(write, SliceWrite::Delete(_))),
    ]
}

/// The name of an endpoint's workload.
pub(crate) fn target(endpoint: &Endpoint) -> &str {
    &endpoint.target_ref.as_ref().unwrap().name
}
