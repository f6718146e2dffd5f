//! The trait that every renderer implements.

use std::time::Instant;

use contiv_model::{ChangeSet, ServiceId, Snapshot};
use serde::Serialize;

use crate::{RenderError, Verifier, Watch};

/// Brings one kind of dataplane to the desired state, and keeps it there.
///
/// The first call is always [`Renderer::resync`], or [`Renderer::prepare`] before it. Calls are blocking and never concurrent. After an error from [`Renderer::update`] the caller resyncs. Both are idempotent.
pub trait Renderer: Send {
    /// The name under which it is registered, as in `--renderers nftables`.
    fn name(&self) -> &'static str;

    /// Reads what is there while it is not known yet what is wanted, so that the first resync takes less time. Called before
    /// it at most; what goes wrong here goes wrong there too, and is reported then.
    fn prepare(&mut self) {}

    /// Makes the dataplane equal to `snapshot`, whatever was there before; what is right already is left alone.
    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError>;

    /// Applies what changed since the last successful call.
    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError>;

    /// Starts to listen to what others do to this dataplane; none where nothing can be heard. Called before the first
    /// resync, so that no change is missed, and before another one when a watch has ended.
    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        Ok(None)
    }

    /// Undoes what others did, as the watch has heard. `snapshot` is what a resync would be given now; what was given in
    /// updates may be older.
    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.resync(snapshot)
    }

    /// What reads this dataplane back from the kernel and shares nothing with this renderer; none where there is nothing
    /// to read.
    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        None
    }

    /// What is applied now, for people and for tests.
    fn describe(&self) -> Description;

    /// Removes everything this renderer ever put in place, and nothing else. Works without a resync before it.
    fn cleanup(&mut self) -> Result<Report, RenderError>;
}

/// What one call did.
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
    /// When the first transaction was handed to the kernel; none if there was none, or the renderer has no kernel.
    #[serde(skip)]
    pub sent: Option<Instant>,
    /// What the administrator should know about this machine, for people; the renderer changes nothing about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// All objects that are left out at present because they cannot be rendered; the rest is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejected>,
}

/// An object that could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// Which service.
    pub service: ServiceId,
    /// Why.
    pub reason: String,
    /// What is used meanwhile: `last good`, `nothing`, or [`LEFT_TO_NFTABLES`].
    pub in_force: &'static str,
}

/// In force is what the renderer `nftables` does: the renderer `route` cannot carry the service at present.
pub const LEFT_TO_NFTABLES: &str = "nftables";

/// What a renderer has applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Services that are applied.
    pub services: usize,
    /// Sizes by name of the thing counted, in a fixed order.
    pub sizes: Vec<(String, usize)>,
    /// The whole state as text in the renderer's own language, deterministic.
    pub text: String,
}
