//! The chains that an element needs. Pure.

use super::element::{Element, Key, Value};
use crate::nftables::layout::{BaseChain, DemandChain, SetKind};

/// The chains that an element needs: the target of its verdict, and the base chains without which it has no effect.
pub(crate) fn needed_chains(element: &Element) -> impl Iterator<Item = DemandChain> {
    let target = match element.value {
        Value::Goto(chain) => Some(chain),
        _ => None,
    };
    let bases = needed_base_chains(element)
        .iter()
        .copied()
        .map(DemandChain::Base);
    target.into_iter().chain(bases)
}

/// The base chains without which an element has no effect.
const fn needed_base_chains(element: &Element) -> &'static [BaseChain] {
    match element.set.kind {
        SetKind::Restricted => &[BaseChain::FirewallPrerouting, BaseChain::FirewallOutput],
        SetKind::Sticky => &[BaseChain::LearnPostrouting, BaseChain::LearnInput],
        SetKind::MasqueradeAlways | SetKind::MasqueradeLocal => &[BaseChain::ExternalPostrouting],
        SetKind::NonMasqueradeCidrs => &[BaseChain::EgressPostrouting],
        SetKind::ServiceInterfaces => &[BaseChain::InterfacesPrerouting],
        SetKind::NodeIps => match element.key {
            Key::Address(address) if address.is_loopback() => &[BaseChain::LoopbackPrerouting],
            _ => &[],
        },
        _ => &[],
    }
}
