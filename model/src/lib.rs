//! The pure domain of contiv: the cache, the service processor, [`ContivService`], change sets. No I/O, no clock.

pub mod addresses;
pub mod assignment;
pub mod backend;
pub mod carrier;
pub mod change;
pub mod contiv_service;
pub mod failover;
pub mod families;
pub mod flow_end;
pub mod frontend;
pub mod id;
pub mod interface_pattern;
pub mod node_facts;
pub mod not_served;
pub mod object;
pub mod parallel;
pub mod processor;
pub mod selection;
pub mod trace;
pub mod wire;

pub use addresses::Addresses;
pub use backend::{Backend, BackendState};
pub use carrier::{Assignment, Carrier, DirectRoutingBlocker};
pub use change::{ChangeSet, InterfaceChange, ServiceChange, Snapshot};
pub use contiv_service::{Balance, ContivService, ServicePort, TrafficPolicy};
pub use failover::FailoverMode;
pub use families::Families;
pub use flow_end::{FlowEnd, VerdictKind, client_examples};
pub use frontend::{Frontend, Protocol};
pub use id::{EndpointSliceId, InterfaceName, NodeName, PodId, ServiceId};
pub use interface_pattern::InterfacePattern;
pub use node_facts::{ClusterIpMasquerade, NodeFacts};
pub use not_served::{NotServed, UnservedService};
pub use object::{Object, ObjectKey};
pub use processor::{
    Event, LocalDetect, LocalInterface, LocalInterfaces, NodePortAddresses, Processor,
    ProcessorConfig, Resync, ServiceInterfaces,
};
pub use trace::{Flow, Trace, trace};
