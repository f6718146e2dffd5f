//! What the loop is told at the start.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use contiv_model::ProcessorConfig;

use super::{GuardConfig, HistoryLimits, VerificationConfig};
use crate::metrics::{EventMetrics, RendererMetrics};

/// What the loop is told at the start.
#[derive(Debug, Clone)]
pub struct LoopConfig {
    /// The store, as the configuration names it.
    pub store: String,
    /// For the service processor.
    pub processor: ProcessorConfig,
    /// Where what the store says is saved; none for nowhere.
    pub(crate) mirror: Option<MirrorConfig>,
    /// The addresses that this node's interfaces have at the start.
    pub local_addresses: BTreeSet<IpAddr>,
    /// When deletions are held.
    pub guard: GuardConfig,
    /// When dataplanes are verified.
    pub verification: VerificationConfig,
    /// How much the history keeps.
    pub history: HistoryLimits,
}

/// Where the mirror is, and of what.
#[derive(Debug, Clone)]
pub(crate) struct MirrorConfig {
    /// The folder of its file.
    pub(crate) folder: PathBuf,
    /// The store, as the configuration names it.
    pub(crate) source: String,
}

/// The loop's part of the metrics.
#[derive(Debug, Clone)]
pub struct LoopMetrics {
    /// What happens.
    pub events: EventMetrics,
    /// What renderers do.
    pub renderers: RendererMetrics,
}
