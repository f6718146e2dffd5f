//! Addresses that several services may share: their elements belong to no single frontend.

use std::net::IpAddr;

use contiv_model::ContivService;

use super::{
    element::{Element, Key, Value},
    plan,
};
use crate::nftables::layout::{Family, Form, Set, SetKind};

/// An address that several services may share, and the set that it is in. Takes a third of the memory of an [`Element`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedAddress {
    kind: SetKind,
    address: IpAddr,
}

impl SharedAddress {
    pub(crate) const fn new(kind: SetKind, address: IpAddr) -> Self {
        Self { kind, address }
    }

    pub(crate) const fn cluster_ip(address: IpAddr) -> Self {
        Self::new(SetKind::ClusterIps, address)
    }

    /// A local backend, which may connect to itself.
    pub(crate) const fn hairpin(address: IpAddr) -> Self {
        Self::new(SetKind::Hairpin, address)
    }

    /// An address that routes carry.
    pub(crate) const fn routed(address: IpAddr) -> Self {
        Self::new(SetKind::Routed, address)
    }

    pub(crate) const fn set(self) -> Set {
        Set::new(self.kind, Family::of(&self.address))
    }

    pub(crate) const fn element(self) -> Element {
        let key = match self.kind.form() {
            Form::Pairs => Key::Pair(self.address),
            _ => Key::Address(self.address),
        };
        Element {
            set: self.set(),
            key,
            value: Value::None,
        }
    }
}

/// The addresses of a service that other services may have too. One can occur twice.
pub(crate) fn shared_addresses(service: &ContivService) -> impl Iterator<Item = SharedAddress> {
    let cluster_ips = plan::cluster_ips(service).map(SharedAddress::cluster_ip);
    let hairpins = plan::hairpins(service)
        .into_iter()
        .map(SharedAddress::hairpin);
    let routed = plan::routed(service).map(SharedAddress::routed);
    cluster_ips.chain(hairpins).chain(routed)
}
