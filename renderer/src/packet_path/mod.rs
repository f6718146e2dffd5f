//! The way of a connection's first packet and of its answer through the network stack of this node: the rules of all tables in the
//! order of the hooks, and the routing between them.
//!
//! The agent's own tables are not evaluated here: what they do is known ([`OwnVerdict`]), and whether the kernel has what they should hold
//! is another question ([`crate::nftables::Inspector`]). Only [`ProgrammedTable`] evaluates the agent's rules, to compare versions.

mod effect;
mod evaluate;
mod fields;
mod flow_events;
mod flow_fates;
mod flows;
mod follow;
mod inspector;
mod ip_sets;
mod kernel_network;
mod kernel_socket;
mod kube_proxy;
mod links;
mod listeners;
mod lookups;
mod neighbours;
mod network;
mod packet;
mod path_inspector;
mod probe;
mod programmed_table;
mod registers;
mod ruleset;
mod settings;
mod state;
mod stored_rules;
#[cfg(test)]
mod tests;
mod traffic_filters;
mod walk;
mod xt_match;

pub use flow_events::{
    EventsRead, FlowEvent, FlowEventKind, FlowEvents, SampleRate, Traffic, counts_traffic,
    list_flows,
};
pub use flow_fates::{FlowFate, FlowFates};
pub use flows::{
    BackendFlows, KnownFlow, KnownFlows, MAX_FLOWS, MAX_UNANSWERED, TcpState, UnansweredFlow,
};
pub use inspector::{MASQUERADE_PORTS, NodeInspector};
pub use kernel_network::{ClientOrigin, DownLink, KernelNetwork, NextHop};
pub use kube_proxy::{KubeProxy, ProxyCluster};
pub use links::{Link, LinkState, LinkedInterface};
pub use listeners::{Listener, Listening};
pub use neighbours::{InterfaceAddress, Neighbour, NeighbourState};
pub use network::{AddressKind, Network, PathError, Route, RouteQuery};
pub use packet::{OwnVerdict, Packet, SizeError};
pub use path_inspector::PathInspector;
pub use probe::{PROBE_TIMEOUT, ProbeResult, probe, probe_datagram};
pub use programmed_table::ProgrammedTable;
pub use ruleset::Ruleset;
pub use settings::{KernelSettings, ReversePathFilter};
pub use stored_rules::{ProxyFrontend, ReadProgress};
pub use traffic_filters::TrafficFilters;
pub use walk::{ChainRef, Doubt, Hook, RuleRef, StopKind, Walk, WalkEnd, WalkStep};
