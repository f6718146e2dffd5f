//! The rules of a kube-proxy, as its source and its tests have them, loaded into the kernel of the lab.

pub(crate) mod iptables;
pub(crate) mod nftables;
mod service;

pub(crate) use service::{Condition, Endpoint, Port, Service, ZONE};
