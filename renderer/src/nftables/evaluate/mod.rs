//! Evaluates the fixed rules for a new connection, with the elements of a table. Pure.
//!
//! The rules are those of `skeleton.nft`, in its order. [`Tables`] supplies the elements: rendered ones, or those of the
//! kernel. So the planner can be compared with [`contiv_model::trace`], and the kernel with both.

mod client;
mod differences;
mod evaluation;
#[cfg(test)]
mod rendered;
mod tables;
mod text;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use contiv_model::{Flow, InterfacePattern};

use self::{evaluation::SlotsByOutcome, tables::Lookup};
use super::{
    element::{FrontendKey, Key, Value},
    layout::{self, DemandChain, Family, PickChain, Set, SetKind},
};

#[cfg(test)]
pub(crate) use self::rendered::Rendered;
pub(crate) use self::tables::{SetLookup, Tables};
pub use self::{
    client::{Client, PodDetection},
    differences::differences,
    evaluation::{Choice, Evaluation, FlowOutcome, Share},
};

/// Evaluates a flow.
pub(crate) fn evaluate<T: Tables>(tables: &mut T, flow: &Flow) -> Result<Evaluation, T::Error> {
    let mut lookup = Lookup::new(tables, Family::of(&flow.to()));
    let client = Client::of(&mut lookup, flow)?;
    let mut walk = Walk { lookup, flow, client };
    let mut answer = Evaluation { client, choice: None, shares: Vec::new(), remembered: None };
    // The unspecified address is the key of node ports; no packet has it.
    let untouched = BTreeMap::from([(FlowOutcome::Untouched, 1)]);
    let outcomes = if flow.to().is_unspecified() { untouched } else { walk.outcomes(&mut answer)? };
    answer.shares = outcomes.into_iter().map(|(ending, slots)| Share { slots, ending }).collect();
    // With a foreign verdict or value the result would mean nothing.
    if let Some(set) = walk.lookup.foreign() {
        answer.shares = vec![Share { slots: 1, ending: FlowOutcome::Foreign { set: set.name() } }];
    }
    Ok(answer)
}

/// The evaluation of one flow.
struct Walk<'a, T> {
    lookup: Lookup<'a, T>,
    flow: &'a Flow,
    client: Client,
}

impl<T: Tables> Walk<'_, T> {
    fn outcomes(&mut self, answer: &mut Evaluation) -> Result<SlotsByOutcome, T::Error> {
        let to = SocketAddr::new(self.flow.to(), self.flow.port());
        if let Some(ending) = self.firewall(to)? {
            return Ok(BTreeMap::from([(ending, 1)]));
        }
        let Some((chain, key)) = self.services(to)? else {
            return Ok(BTreeMap::from([(self.untranslated(to)?, 1)]));
        };
        let is_outside = self.client.is_outside();
        let (backends, slots) = chain.slots_of(is_outside);
        if slots == 0 {
            return Ok(BTreeMap::from([(self.dropped(SetKind::Services), 1)]));
        }
        answer.choice = Some(self.choice(chain, to)?);
        if chain.choice == layout::Choice::Sticky {
            let value = self.lookup.value(SetKind::Affinity, Key::Client(key, self.flow.from()))?;
            if let Some(Value::Backend(backend)) = value {
                answer.remembered = Some(self.translated(to, backend.into())?);
            }
        }
        let mut outcomes = SlotsByOutcome::new();
        for (backend, slots) in self.lookup.slots(backends, key, slots)? {
            let ending = match backend {
                Some(backend) => self.translated(to, backend)?,
                None if backends.kind == SetKind::BackendsExternal => self.dropped(backends.kind),
                // The lookup fails, and the packet continues unchanged.
                None => self.untranslated(to)?,
            };
            *outcomes.entry(ending).or_default() += slots;
        }
        Ok(outcomes)
    }

    /// `loopback-prerouting`, `interfaces-prerouting`, and `firewall-v4` behind `firewall-prerouting` and `firewall-output`
    fn firewall(&mut self, to: SocketAddr) -> Result<Option<FlowOutcome>, T::Error> {
        // Packets of the node to itself arrive through loopback.
        if !self.client.is_own && self.lookup.has(SetKind::Loopback, Key::Address(to.ip()))? {
            return Ok(Some(self.dropped(SetKind::Loopback)));
        }
        if self.is_closed(to)? {
            return Ok(Some(self.dropped(SetKind::ServiceInterfaces)));
        }
        for key in self.keys(to)? {
            let is_restricted = self.lookup.has(SetKind::Restricted, Key::Frontend(key))?;
            let source = Key::Client(key, self.flow.from());
            if is_restricted && !self.lookup.has(SetKind::SourceRanges, source)? {
                return Ok(Some(self.dropped(SetKind::SourceRanges)));
            }
        }
        Ok(None)
    }

    /// `interfaces-v4` behind `interfaces-prerouting`
    fn is_closed(&mut self, to: SocketAddr) -> Result<bool, T::Error> {
        let Some(name) = self.flow.interface() else { return Ok(false) };
        // The chain exists while its set has elements: loopback is always among them.
        let Ok(loopback) = "lo".parse() else { return Ok(false) };
        if !self.lookup.has(SetKind::ServiceInterfaces, Key::Interface(loopback))? {
            return Ok(false);
        }
        if let Some(name) = name.0.parse().ok().filter(|it: &InterfacePattern| !it.is_prefix())
            && self.lookup.has(SetKind::ServiceInterfaces, Key::Interface(name))?
        {
            return Ok(false);
        }
        if self.lookup.has(SetKind::ClusterIps, Key::Address(to.ip()))? {
            return Ok(true);
        }
        for key in self.keys(to)? {
            for kind in [SetKind::MasqueradeAlways, SetKind::MasqueradeLocal] {
                if self.lookup.has(kind, Key::Frontend(key))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// `services-v4` and `node-ports-v4`: the chain that translates the packet, and its key; none if the packet continues
    /// unchanged.
    fn services(&mut self, to: SocketAddr) -> Result<Option<(PickChain, FrontendKey)>, T::Error> {
        for key in self.keys(to)? {
            let chain = self.chain(SetKind::Services, SetKind::PickChains, key)?;
            if let Some(DemandChain::Pick(chain)) = chain {
                let key = if chain.node_port { self.node_port(to) } else { self.frontend(to) };
                return Ok(Some((chain, key)));
            }
        }
        Ok(None)
    }

    /// The chain whose number a map has for the frontend; none if it has none, or if the number leads nowhere.
    fn chain(
        &mut self,
        numbers: SetKind,
        chains: SetKind,
        key: FrontendKey,
    ) -> Result<Option<DemandChain>, T::Error> {
        let Some(Value::Goto(chain)) = self.lookup.value(numbers, Key::Frontend(key))? else {
            return Ok(None);
        };
        let Some((_, number)) = chain.number() else { return Ok(None) };
        let led_to = self.lookup.value(chains, Key::Number(number))?;
        Ok(led_to.and_then(|value| if let Value::Goto(chain) = value { Some(chain) } else { None }))
    }

    /// How the chain chooses a slot, and whether `learn-v4` remembers it.
    fn choice(&mut self, chain: PickChain, to: SocketAddr) -> Result<Choice, T::Error> {
        Ok(match chain.choice {
            layout::Choice::Random => Choice::Random,
            layout::Choice::Client => Choice::ClientAddress,
            layout::Choice::Sticky => {
                let mut timeout = None;
                for key in self.keys(to)? {
                    let chain = self.chain(SetKind::Sticky, SetKind::LearnChains, key)?;
                    if let (None, Some(DemandChain::Learn(learn))) = (timeout, chain) {
                        timeout = Some(learn.timeout);
                    }
                }
                Choice::Sticky { timeout }
            }
        })
    }

    /// A packet to `to`, translated to `backend`: the filter chains accept it, then `masquerade-v4` decides.
    fn translated(&mut self, to: SocketAddr, backend: SocketAddr) -> Result<FlowOutcome, T::Error> {
        Ok(FlowOutcome::Served { backend, masqueraded: self.is_masqueraded(to, backend)? })
    }

    /// A packet without translation: the filter chains decide, then `masquerade-egress-v4`.
    fn untranslated(&mut self, to: SocketAddr) -> Result<FlowOutcome, T::Error> {
        Ok(match self.filter(to)? {
            Some(outcome) => outcome,
            None if self.is_egress(to.ip())? => FlowOutcome::Egress,
            None => FlowOutcome::Untouched,
        })
    }

    /// `check-v4`, `check-node-ports-v4` and `unknown-port`, for packets without translation.
    fn filter(&mut self, to: SocketAddr) -> Result<Option<FlowOutcome>, T::Error> {
        for key in self.keys(to)? {
            let key = Key::Frontend(key);
            if self.lookup.has(SetKind::NoEndpoints, key)? {
                return Ok(Some(self.rejected(SetKind::NoEndpoints)));
            }
            if self.lookup.has(SetKind::NoLocalEndpoints, key)? {
                return Ok(Some(self.dropped(SetKind::NoLocalEndpoints)));
            }
            // Routes carry the service: the chain ends here.
            if self.lookup.has(SetKind::RoutedFrontends, key)? {
                return Ok(None);
            }
        }
        // Packets for the node itself pass the input hook, where unknown ports are not checked.
        let is_input = !self.client.is_own && self.lookup.is_own(to.ip());
        if is_input {
            return Ok(None);
        }
        if self.lookup.has(SetKind::ClusterIps, Key::Address(to.ip()))? {
            return Ok(Some(self.rejected(SetKind::ClusterIps)));
        }
        let is_unallocated = self.lookup.has(SetKind::ServiceCidrs, Key::Address(to.ip()))?;
        Ok(is_unallocated.then(|| self.dropped(SetKind::ServiceCidrs)))
    }

    /// `masquerade-v4`; and behind `external-postrouting`, `masquerade-external-v4` and `masquerade-node-ports-v4`
    fn is_masqueraded(&mut self, to: SocketAddr, backend: SocketAddr) -> Result<bool, T::Error> {
        let from = self.flow.from();
        if from == backend.ip() && self.lookup.has(SetKind::Hairpin, Key::Pair(from))? {
            return Ok(true);
        }
        let keys = self.keys(to)?;
        for key in &keys {
            if self.lookup.has(SetKind::MasqueradeAlways, Key::Frontend(*key))? {
                return Ok(true);
            }
        }
        if !self.client.keeps_source && self.lookup.has(SetKind::ClusterIps, Key::Address(to.ip()))? {
            return Ok(true);
        }
        if self.is_egress(backend.ip())? {
            return Ok(true);
        }
        for key in keys {
            if self.client.is_node() && self.lookup.has(SetKind::MasqueradeLocal, Key::Frontend(key))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `masquerade-egress-v4` behind `egress-postrouting`, for a packet that is routed to this address
    fn is_egress(&mut self, to: IpAddr) -> Result<bool, T::Error> {
        // Packets to this node pass no such chain. The chain exists while its set has elements: one is always for this address.
        let enabled = Key::Address(link_local(self.lookup.family()));
        if self.client.pod.is_none()
            || self.lookup.is_own(to)
            || !self.lookup.has(SetKind::NonMasqueradeCidrs, enabled)?
        {
            return Ok(false);
        }
        for kind in [SetKind::NonMasqueradeCidrs, SetKind::Routed] {
            if self.lookup.has(kind, Key::Address(to))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The keys of a destination: itself, and the node port if it is an address of the node.
    fn keys(&mut self, to: SocketAddr) -> Result<Vec<FrontendKey>, T::Error> {
        let is_node_ip = self.lookup.has(SetKind::NodeIps, Key::Address(to.ip()))?;
        let node_port = is_node_ip.then(|| self.node_port(to));
        Ok([self.frontend(to)].into_iter().chain(node_port).collect())
    }

    const fn frontend(&self, to: SocketAddr) -> FrontendKey {
        FrontendKey { address: to.ip(), protocol: self.flow.protocol(), port: to.port() }
    }

    const fn node_port(&self, to: SocketAddr) -> FrontendKey {
        FrontendKey::node_port(Family::of(&to.ip()), self.flow.protocol(), to.port())
    }

    fn rejected(&self, kind: SetKind) -> FlowOutcome {
        FlowOutcome::Rejected { set: self.set(kind).name() }
    }

    fn dropped(&self, kind: SetKind) -> FlowOutcome {
        FlowOutcome::Dropped { set: self.set(kind).name() }
    }

    const fn set(&self, kind: SetKind) -> Set {
        Set::new(kind, self.lookup.family())
    }
}

/// A link-local address.
const fn link_local(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)),
    }
}

#[cfg(test)]
mod tests;
