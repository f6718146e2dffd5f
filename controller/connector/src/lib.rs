//! Services of other registries become services and endpoints in the store, so that every node's agent serves them.
//!
//! ```text
//!  registry (file, Consul, DNS) ─► catalog ─► aggregator ─► plan ─► writer ─► store ─► agents
//!                                    │ what the registry says   │ pure: wanted and stored
//!                                    └──────── sink ────────────┘ quiet 1 s, at most 5 s
//! ```
//!
//! It is what flomesh's connector does with its `Sink` and `Aggregator` for a Kubernetes API server. Three rules hold
//! throughout: only what carries this connector's label is ever written or deleted; a registry that fails, or has not
//! answered yet, deletes nothing; the same answers give the same services, whatever their order.
//!
//! | module | what it has |
//! |---|---|
//! | [`config`] | the section `connector` of the configuration |
//! | [`catalog`] | what a registry says: source services and their instances |
//! | [`registry`] | the trait of registries, and those that are there: [`registry::file`], [`registry::consul`], [`registry::dns`] |
//! | [`aggregator`] | from one source service to the micro services it yields |
//! | [`stored`] | what the store holds: ours, and what is foreign |
//! | [`plan`] | from what is wanted and what is stored to ordered writes; pure |
//! | [`sink`] | takes in catalogs, and brings the store to what they say |
//! | [`connector`] | puts it together as one controller |
//! | [`metrics`] | what can be seen of it |

pub mod aggregator;
pub mod catalog;
pub mod cluster_address;
pub mod config;
pub mod connector;
pub mod endpoint_annotation;
pub mod metrics;
pub mod name;
pub mod plan;
pub mod registry;
pub mod sink;
pub mod stored;
#[cfg(feature = "testing")]
pub mod testing;

pub use aggregator::{Aggregator, MicroService};
pub use catalog::{AppProtocol, Catalog, Instance, Protocol, SourceService};
pub use config::{ConnectorConfig, RegistryConfig};
pub use connector::{Parts, controller};
pub use metrics::ConnectorMetrics;
pub use registry::{NamedRegistry, Publisher, Registry, RegistryError};
pub use sink::Sink;
