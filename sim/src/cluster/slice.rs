//! An `EndpointSlice` object, and its stored form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::{RngExt as _, rngs::SmallRng};
use serde_json::{Value, json};

use super::{
    node::{NODE, ZONES},
    service::{KnownPort, PORTS},
};

/// The number of a port of an endpoint, beyond that of the service.
pub(crate) const TARGET_PORT_OFFSET: u16 = 8000;
/// The most endpoints in a slice.
const MAX_ENDPOINTS: usize = 4;

/// What an endpoint can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// For all connections.
    Ready,
    /// Where there is no ready one: it terminates, and still serves.
    Terminating,
    /// For none: its probes fail, or it has stopped serving.
    Unusable,
}

/// An endpoint. Its number is never given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) number: u32,
    pub(crate) condition: Condition,
    /// The zone of [`ZONES`] that its hint names.
    pub(crate) hint: Option<usize>,
}

/// A slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) is_ipv4: bool,
    /// Which of [`PORTS`] it has.
    pub(crate) ports: [bool; 2],
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Endpoint {
    /// Its address.
    pub(crate) fn address(&self, is_ipv4: bool) -> IpAddr {
        if is_ipv4 {
            Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 0)) + self.number).into()
        } else {
            Ipv6Addr::from(
                u128::from(Ipv6Addr::new(0xfd0b, 0, 0, 0, 0, 0, 0, 0)) + u128::from(self.number),
            )
            .into()
        }
    }

    /// The number of the endpoint with this address.
    pub(crate) fn number_of(address: IpAddr) -> u32 {
        let last = match address {
            IpAddr::V4(address) => u128::from(u32::from(address) & 0x00ff_ffff),
            IpAddr::V6(address) => u128::from(address) & 0x00ff_ffff,
        };
        u32::try_from(last).unwrap_or_default()
    }

    /// Whether it is on the simulated node. An endpoint does not move.
    pub(crate) const fn is_local(&self) -> bool {
        self.number.is_multiple_of(3)
    }

    fn random(next: &mut u32, rng: &mut SmallRng) -> Self {
        *next += 1;
        let condition = match rng.random_range(0..10) {
            0..7 => Condition::Ready,
            7 | 8 => Condition::Terminating,
            _ => Condition::Unusable,
        };
        Self {
            number: *next,
            condition,
            hint: None,
        }
    }

    fn value(&self, is_ipv4: bool) -> Value {
        let hints = self.hint.map(|zone| json!({"for_zones": [ZONES[zone]]}));
        let conditions = match self.condition {
            Condition::Ready => json!({"ready": true, "serving": true, "terminating": false}),
            Condition::Terminating => json!({"ready": false, "serving": true, "terminating": true}),
            Condition::Unusable => json!({"ready": false, "serving": false, "terminating": false}),
        };
        json!({
            "addresses": [self.address(is_ipv4).to_string()],
            "node_name": if self.is_local() { NODE } else { "n2" },
            "conditions": conditions,
            "hints": hints,
            "target_ref": {"kind": "Pod", "namespace": "default", "name": pod_name(self.number)},
        })
    }
}

/// The name of an endpoint's pod.
pub(crate) fn pod_name(endpoint: u32) -> String {
    format!("p{endpoint}")
}

impl Slice {
    /// An empty slice.
    pub(crate) const fn new(is_ipv4: bool) -> Self {
        Self {
            is_ipv4,
            ports: [true, true],
            endpoints: Vec::new(),
        }
    }

    /// Changes it: all endpoints are replaced, or one comes, goes or changes its condition, or hints or ports change.
    pub(crate) fn change(&mut self, next: &mut u32, rng: &mut SmallRng) {
        let count = self.endpoints.len();
        match rng.random_range(0..12) {
            0..3 => {
                let count = rng.random_range(0..=MAX_ENDPOINTS);
                self.endpoints = (0..count).map(|_| Endpoint::random(next, rng)).collect();
            }
            3..6 if count < MAX_ENDPOINTS => self.endpoints.push(Endpoint::random(next, rng)),
            6 | 7 if count > 0 => drop(self.endpoints.remove(rng.random_range(0..count))),
            8 | 9 if count > 0 => {
                let endpoint = &mut self.endpoints[rng.random_range(0..count)];
                endpoint.condition = Endpoint::random(&mut 0, rng).condition;
            }
            10 => self.ports = [[true, true], [true, false], [false, true]][rng.random_range(0..3)],
            _ => {
                let has_hints = rng.random_bool(0.7);
                for endpoint in &mut self.endpoints {
                    endpoint.hint = has_hints.then(|| rng.random_range(0..ZONES.len()));
                }
            }
        }
    }

    /// Whether it has the port of this name.
    pub(crate) fn has_port(&self, name: &str) -> bool {
        PORTS
            .iter()
            .zip(self.ports)
            .any(|(known, is_present)| is_present && known.name == name)
    }

    /// The stored value.
    pub(crate) fn value(&self, service: &str) -> Value {
        let ports = PORTS
            .iter()
            .zip(self.ports)
            .filter(|(_, is_present)| *is_present);
        let ports = ports.map(|(KnownPort { name, number, transport }, _)| {
            json!({"name": name, "protocol": transport.name(), "port": number + TARGET_PORT_OFFSET})
        });
        json!({
            "service_name": service,
            "address_type": if self.is_ipv4 { "IPv4" } else { "IPv6" },
            "ports": ports.collect::<Vec<_>>(),
            "endpoints": self.endpoints.iter().map(|endpoint| endpoint.value(self.is_ipv4)).collect::<Vec<_>>(),
        })
    }
}
