//! The content of the page.

use std::sync::Arc;

use contiv_model::{ContivService, UnservedService};

use crate::{
    counters::ServiceConnections,
    metrics::ServiceSizes,
    node::{Quarantined, Record, RendererView, Status},
};

/// The content of the page.
pub(super) struct Content {
    pub(super) status: Status,
    pub(super) sizes: ServiceSizes,
    pub(super) renderers: Vec<RendererView>,
    pub(super) services: Vec<Arc<ContivService>>,
    /// Stored services that are not served.
    pub(super) unserved: Vec<UnservedService>,
    /// None if nothing is counted.
    pub(super) connections: Option<Vec<ServiceConnections>>,
    pub(super) quarantine: Vec<Quarantined>,
    pub(super) history: Vec<Record>,
}
