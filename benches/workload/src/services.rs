//! Services with the same number of backends each, and variants of them.

use std::net::Ipv4Addr;

use contiv_model::{Event, NodeName, Object, Processor, ProcessorConfig, Resync, ServiceId, wire};
use contiv_proto::{Key, Kind};
use serde_json::{Value, json};
use thiserror::Error;

/// The namespace of all objects.
const NAMESPACE: &str = "default";

/// The port of every service.
pub const PORT: u16 = 80;
/// The port of the backends.
pub const TARGET_PORT: u16 = 8080;
/// Kubernetes' maximum number of endpoints in a slice.
const ENDPOINTS_PER_SLICE: usize = 100;
/// The number of nodes with pods; none of them is the measured one.
const NODES: usize = 100;
/// The first cluster IP; lower ones are for services of the lab.
const CLUSTER_IPS: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 0);
/// The first address of a backend.
const BACKENDS: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
/// The first address of backends that a change adds. The high bits distinguish them from all others.
const MARKERS: Ipv4Addr = Ipv4Addr::new(10, 192, 0, 0);

/// A generated value that the product cannot decode, because its stored form has changed.
#[derive(Debug, Error)]
#[error("{key}: {problem}")]
pub struct UndecodableValue {
    key: String,
    problem: String,
}

type Result<T> = std::result::Result<T, UndecodableValue>;

/// Services with the same number of backends each, IPv4, one TCP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Services.
    pub services: usize,
    /// Backends of each.
    pub backends: usize,
}

/// A variant of the first slice of a service, which has all its backends if there are at most a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Unchanged.
    Original,
    /// Its first backend is replaced by one at the marker address of this number.
    Replaced(u32),
    /// Its last backend is removed.
    OneLess,
    /// A backend at the marker address of this number is added as the last one.
    OneMore(u32),
    /// It has no endpoints.
    NoneLeft,
}

/// A variant of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceVariant {
    /// Unchanged.
    Original,
    /// With session affinity.
    Affinity,
    /// With a node port.
    NodePort(u16),
}

impl Workload {
    /// All keys and values, as they are in etcd.
    pub fn values(self) -> impl Iterator<Item = (String, String)> {
        (0..self.services).flat_map(move |service| {
            let slices =
                (0..self.slices()).map(move |slice| self.slice(service, slice, Variant::Original));
            std::iter::once(Self::service(service, ServiceVariant::Original)).chain(slices)
        })
    }

    /// Everything as the processor's input.
    ///
    /// # Errors
    /// When a value cannot be decoded because the product has changed.
    pub fn resync(self) -> Result<Resync> {
        Self::decode(&self.values().collect::<Vec<_>>())
    }

    /// Decodes these values.
    ///
    /// # Errors
    /// As [`Self::resync`].
    pub fn decode(values: &[(String, String)]) -> Result<Resync> {
        let objects = values
            .iter()
            .map(|(key, value)| decode(key, value.as_bytes()));
        Ok(Resync {
            objects: objects.collect::<Result<_>>()?,
            ..Resync::default()
        })
    }

    /// A processor with this state.
    ///
    /// # Errors
    /// As [`Self::resync`].
    pub fn processor(self) -> Result<Processor> {
        let mut processor = Processor::new(ProcessorConfig::new(NodeName::new("node")));
        processor.resync(self.resync()?);
        Ok(processor)
    }

    /// The event of a change of one service.
    ///
    /// # Errors
    /// As [`Self::resync`].
    pub fn change(self, service: usize, variant: Variant) -> Result<Event> {
        let (key, value) = self.slice(service, 0, variant);
        decode(&key, value.as_bytes()).map(Event::Put)
    }

    /// Key and value of one endpoint slice.
    pub fn slice(self, service: usize, slice: usize, variant: Variant) -> (String, String) {
        let name = name(service);
        let first = slice * ENDPOINTS_PER_SLICE;
        let all = (first + ENDPOINTS_PER_SLICE).min(self.backends);
        let end = match variant {
            Variant::Original | Variant::Replaced(_) => all,
            Variant::OneLess => all - 1,
            Variant::OneMore(_) => all + 1,
            Variant::NoneLeft => first,
        };
        let endpoint = |number: usize| -> Value {
            let address = match variant {
                Variant::Replaced(marker) if number == 0 => marker_address(marker),
                Variant::OneMore(marker) if number == all => marker_address(marker),
                _ => nth(BACKENDS, service * self.backends + number),
            };
            json!({
                "addresses": [address],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "node_name": format!("worker-{}", (service + number) % NODES),
                "target_ref": {
                    "kind": "Pod", "namespace": NAMESPACE, "name": format!("{name}-7c9d8f6b5-{number:05}"),
                },
            })
        };
        let value = json!({
            "name": format!("{name}-{slice}"), "namespace": NAMESPACE,
            "service_name": name, "address_type": "IPv4",
            "endpoints": (first..end).map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
        });
        (
            format!(
                "{}{name}-{slice}/namespace/{NAMESPACE}",
                Key::prefix(Kind::EndpointSlice)
            ),
            value.to_string(),
        )
    }

    /// Key and value of a service.
    pub fn service(service: usize, variant: ServiceVariant) -> (String, String) {
        let name = name(service);
        let mut value = json!({
            "name": name, "namespace": NAMESPACE, "cluster_ip": cluster_ip(service),
            "port": [{
                "name": "http", "protocol": "TCP", "port": PORT, "target_port": {"int_val": TARGET_PORT},
            }],
        });
        match variant {
            ServiceVariant::Original => {}
            ServiceVariant::Affinity => value["session_affinity"] = json!("ClientIP"),
            ServiceVariant::NodePort(port) => {
                value["service_type"] = json!("NodePort");
                value["port"][0]["node_port"] = json!(port);
            }
        }
        (
            format!("{}{name}/namespace/{NAMESPACE}", Key::prefix(Kind::Service)),
            value.to_string(),
        )
    }

    const fn slices(self) -> usize {
        self.backends.div_ceil(ENDPOINTS_PER_SLICE)
    }
}

/// The address of a service.
pub fn cluster_ip(service: usize) -> Ipv4Addr {
    nth(CLUSTER_IPS, service)
}

/// The address of a backend that a change adds: it encodes the number of the change.
pub fn marker_address(number: u32) -> Ipv4Addr {
    nth(MARKERS, number as usize)
}

/// The number that a marker address encodes; none for other addresses.
pub fn marker_number(address: Ipv4Addr) -> Option<u32> {
    address
        .to_bits()
        .checked_sub(MARKERS.to_bits())
        .filter(|number| *number < 1 << 22)
}

fn name(service: usize) -> String {
    format!("service-{service:06}")
}

fn nth(first: Ipv4Addr, number: usize) -> Ipv4Addr {
    // No workload reaches the end of the range.
    Ipv4Addr::from_bits(first.to_bits() + u32::try_from(number).unwrap_or(u32::MAX))
}

pub(crate) fn decode(key: &str, value: &[u8]) -> Result<Object> {
    let unexpected = |problem: String| UndecodableValue {
        key: key.to_owned(),
        problem,
    };
    let parsed = Key::parse(key).map_err(|error| unexpected(error.to_string()))?;
    let parsed = parsed.ok_or_else(|| unexpected("is not a key of ours".to_owned()))?;
    let object = wire::decode(&parsed, value, 1).map_err(|error| unexpected(error.to_string()))?;
    object.ok_or_else(|| unexpected("is of no consequence".to_owned()))
}

pub(crate) fn service_id(service: usize) -> ServiceId {
    ServiceId::new(NAMESPACE, name(service).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_service_is_complete_and_a_change_affects_only_one() {
        let workload = Workload {
            services: 3,
            backends: 250,
        };
        let mut processor = workload.processor().unwrap();
        let snapshot = processor.snapshot();
        assert_eq!(snapshot.services.len(), 3);
        assert!(
            snapshot
                .services
                .values()
                .all(|service| service.ports[0].backends.len() == 250)
        );
        assert_eq!(
            processor
                .apply([workload.change(1, Variant::Original).unwrap()])
                .services
                .len(),
            0
        );
        assert_eq!(
            processor
                .apply([workload.change(1, Variant::Replaced(7)).unwrap()])
                .services
                .len(),
            1
        );
    }

    #[test]
    fn added_backends_are_recognized_by_their_address() {
        assert_eq!(marker_number(marker_address(70_000)), Some(70_000));
        assert_eq!(marker_number(nth(BACKENDS, 1_000_000)), None);
    }
}
