//! How the rules classify the client of a flow.

use contiv_model::{Flow, InterfacePattern, trace};
use serde::Serialize;

use super::{Tables, tables::Lookup};
use crate::nftables::{desired::element::Key, layout::SetKind};

/// How the rules classify the client of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Client {
    /// How it is identified as a pod of this node. None if it is no such pod.
    pub pod: Option<PodDetection>,
    /// True if its address is one of this node: `fib saddr type local`.
    #[serde(rename = "is_own")]
    pub is_node: bool,
    /// True if its address or interface is in one of the `no-masquerade…` sets: its connections to cluster IPs are not masqueraded.
    #[serde(rename = "keeps_source")]
    pub is_exempt_from_masquerade: bool,
}

/// How a pod is identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodDetection {
    /// Its address is in `pods4`, or `pods6`.
    Address,
    /// Its packets arrive at an interface in `pod-interfaces4`, or `pod-interfaces6`.
    Interface,
}

impl Client {
    pub(super) fn of<T: Tables>(lookup: &mut Lookup<'_, T>, flow: &Flow) -> Result<Self, T::Error> {
        let address = Key::Address(flow.from());
        // An invalid name matches no interface.
        let name = flow
            .interface()
            .and_then(|name| name.0.parse().ok())
            .filter(|it: &InterfacePattern| !it.is_prefix());
        let mut has = |addresses, interfaces| {
            let by_address = lookup.has(addresses, address)?;
            let by_interface = name
                .map(|name| lookup.has(interfaces, Key::Interface(name)))
                .transpose()?;
            Ok((by_address, by_interface == Some(true)))
        };
        let pod = match has(SetKind::Pods, SetKind::PodInterfaces)? {
            (true, _) => Some(PodDetection::Address),
            (false, true) => Some(PodDetection::Interface),
            (false, false) => None,
        };
        let exempt = has(SetKind::NoMasquerade, SetKind::NoMasqueradeInterfaces)?;
        let is_node = lookup.is_local_address(flow.from());
        Ok(Self {
            pod,
            is_node,
            is_exempt_from_masquerade: exempt.0 || exempt.1,
        })
    }

    /// The corresponding class in the model's trace.
    pub(super) const fn kind(self) -> trace::Client {
        match self {
            Self { pod: Some(_), .. } => trace::Client::LocalPod,
            Self { is_node: true, .. } => trace::Client::Node,
            Self { .. } => trace::Client::External,
        }
    }
}
