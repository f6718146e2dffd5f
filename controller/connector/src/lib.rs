//! Services of other registries become services and endpoints in the store, so that every node's agent serves them.
//!
//! ```text
//!  registry (file, Consul, DNS) ─► catalog ─► aggregator ─► plan ─► writer ─► store ─► agents
//!                                    │ content of the registry  │ pure: desired and stored
//!                                    └──────── sink ────────────┘ quiet 1 s, at most 5 s
//! ```
//!
//! It does what flomesh's connector does with its `Sink` and `Aggregator` for a Kubernetes API server. Three rules hold
//! throughout: only objects with this connector's label are written or deleted; a registry that fails, or has not answered yet,
//! deletes nothing; the same answers give the same services in any order.
//!
//! | module | content |
//! |---|---|
//! | [`config`] | the section `connector` of the configuration |
//! | [`catalog`] | the content of a registry: source services and their instances |
//! | [`registry`] | the trait of registries and its implementations: [`registry::file`], [`registry::consul`], and `registry::dns` with the feature `dns` |
//! | [`host_names`] | looks up the addresses of instances that are registered by a host name |
//! | [`aggregator`] | from one source service to the micro services it yields |
//! | [`stored`] | the content of the store: our objects and foreign ones |
//! | [`plan`] | from desired and stored objects to ordered writes; pure |
//! | [`sink`] | receives catalogs and updates the store |
//! | [`connector`] | combines them into one controller |
//! | [`metrics`] | the metrics |

pub mod aggregator;
pub mod catalog;
pub mod cluster_address;
pub mod config;
pub mod connector;
pub mod endpoint_annotation;
pub mod host_names;
pub mod metrics;
pub mod name;
pub mod plan;
pub mod registry;
pub mod sink;
pub mod stored;

pub use aggregator::{Aggregator, HostNames, MicroService};
pub use catalog::{AppProtocol, Catalog, Instance, Protocol, SourceService};
pub use config::{ConnectorConfig, RegistryConfig};
pub use connector::{Parts, controller};
pub use metrics::ConnectorMetrics;
pub use registry::{NamedRegistry, Publisher, Registry, RegistryError};
pub use sink::Sink;
