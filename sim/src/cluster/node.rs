//! The simulated node and its Node object.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::{RngExt as _, rngs::SmallRng};
use serde_json::{Value, json};

/// The zones that there are.
pub(crate) const ZONES: [&str; 2] = ["z1", "z2"];
/// The name of the simulated node.
pub(crate) const NODE: &str = "n1";
/// The node's addresses, at which node ports answer; the Node object has the IPv6 one at times.
pub(crate) const NODE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1));
/// The ranges of the node's pods. Endpoints have addresses outside of them, since a range alone would make them local.
const POD_CIDRS: [&str; 2] = ["10.244.1.0/24", "fd44:1::/64"];
/// The facts of the simulated node's Node object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// The last part of the node's IPv6 address; 0 without one.
    ipv6: u16,
    /// The zone of [`ZONES`]; none without the label.
    pub(crate) zone: Option<usize>,
    /// The ranges of its pods are known.
    pub(crate) has_pod_cidrs: bool,
}

impl NodeFacts {
    /// Gives the node another IPv6 address, zone or range of pods, or takes it away.
    pub(crate) fn change(&mut self, rng: &mut SmallRng) {
        match rng.random_range(0..3) {
            0 => self.ipv6 = rng.random_range(0..4),
            1 => {
                self.zone =
                    Some(rng.random_range(0..=ZONES.len())).filter(|zone| *zone < ZONES.len());
            }
            _ => self.has_pod_cidrs ^= true,
        }
    }

    /// The stored value.
    pub(crate) fn value(&self) -> Value {
        let mut addresses =
            vec![json!({"type": "NodeInternalIP", "address": NODE_ADDRESS.to_string()})];
        if let Some(address) = self.ipv6() {
            addresses.push(json!({"type": "NodeInternalIP", "address": address.to_string()}));
        }
        let mut value = json!({"name": NODE, "addresses": addresses});
        if let Some(zone) = self.zone {
            value["labels"] = json!({"topology.kubernetes.io/zone": ZONES[zone]});
        }
        if self.has_pod_cidrs {
            value["pod_cidrs"] = json!(POD_CIDRS);
        }
        value
    }

    /// The address on which node ports of IPv6 answer.
    pub(crate) fn ipv6(&self) -> Option<IpAddr> {
        (self.ipv6 > 0).then(|| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.ipv6).into())
    }
}
