//! The pure domain of contiv: the cache, the service processor, [`ContivService`], change sets. No I/O, no clock.

pub mod change;
pub mod contiv_service;
pub mod frontend;
pub mod id;
pub mod object;
pub mod processor;
pub mod selection;
pub mod wire;

pub use change::{ChangeSet, InterfaceChange, ServiceChange, Snapshot};
pub use contiv_service::{Backend, BackendState, ContivService, NodeFacts, ServicePort, TrafficPolicy};
pub use frontend::{Frontend, Protocol};
pub use id::{EndpointSliceId, InterfaceName, NodeName, PodId, ServiceId};
pub use object::{Object, ObjectKey};
pub use processor::{Event, Processor, ProcessorConfig, Resync};
