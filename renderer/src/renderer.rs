//! The trait that every renderer implements.

use std::time::Instant;

use contiv_model::{ChangeSet, ServiceId, Snapshot};
use serde::Serialize;

use crate::{RenderError, Verifier, Watch};

/// Brings one kind of dataplane to the desired state, and keeps it there.
///
/// The first call is always [`Renderer::resync`], or [`Renderer::prepare`] before it. Calls are blocking and never concurrent.
/// After an error from [`Renderer::update`] the caller resyncs. Both are idempotent.
pub trait Renderer: Send {
    /// The name under which it is registered, as in `--renderers nftables`.
    fn name(&self) -> &'static str;

    /// Reads the existing state before the desired state is known, so that the first resync takes less time. At most called
    /// before that; an error occurs again in the resync, and is reported there.
    fn prepare(&mut self) {}

    /// Makes the dataplane equal to `snapshot`, from any state; correct objects are not touched.
    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError>;

    /// Applies the changes since the last successful call.
    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError>;

    /// Starts to watch for foreign changes of this dataplane; none if that is not possible. Called before the first resync, so
    /// that no change is missed, and again after a watch has ended.
    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        Ok(None)
    }

    /// Undoes foreign changes that the watch has reported. `snapshot` is the current desired state; that of earlier updates may
    /// be older.
    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.resync(snapshot)
    }

    /// A verifier that reads this dataplane back from the kernel and shares nothing with this renderer; none if there is
    /// nothing to read.
    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        None
    }

    /// The applied state, for people and for tests.
    fn describe(&self) -> Description;

    /// Removes everything that this renderer programmed, and nothing else. Works without a resync before it.
    fn cleanup(&mut self) -> Result<Report, RenderError>;
}

/// The result of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Things added (elements, rules, routes).
    pub added: usize,
    /// Things removed.
    pub removed: usize,
    /// Kernel transactions.
    pub transactions: usize,
    /// Bytes sent to the kernel.
    pub bytes: usize,
    /// When the first transaction was sent to the kernel; none without a transaction or a kernel.
    #[serde(skip)]
    pub sent: Option<Instant>,
    /// Advice to the administrator about this machine; the renderer changes nothing about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// All objects that are currently left out because they cannot be rendered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejected>,
}

/// An object that could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// The service.
    pub service: ServiceId,
    /// Why.
    pub reason: String,
    /// The state that is used instead: `last good`, `nothing`, or [`LEFT_TO_NFTABLES`].
    pub active_state: &'static str,
}

/// The renderer `nftables` serves it instead: the renderer `route` cannot carry the service at present.
pub const LEFT_TO_NFTABLES: &str = "nftables";

/// The state that a renderer has applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Services that are applied.
    pub services: usize,
    /// Sizes by the name of the counted objects, in a fixed order.
    pub sizes: Vec<(String, usize)>,
    /// The whole state as text in the renderer's own language, deterministic.
    pub text: String,
}
