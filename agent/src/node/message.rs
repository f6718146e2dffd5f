//! What can happen to the core, and what it wants done: the only words between it and the drivers.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{ChangeSet, InterfaceName, PodId, Snapshot};
use contiv_renderer::{ForeignChange, Report, Verification};
use contiv_store::{Batch, MirrorSummary};
use jiff::Timestamp;
use thiserror::Error;

use super::decode::{Recalled, StoreEvent};
use crate::health::HealthUpdate;

/// What the driver gives the core with each input: the moment, by the clock that is never set and by the clock of people, and
/// chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// For durations and deadlines.
    pub instant: Instant,
    /// For people.
    pub time: Timestamp,
    /// From 0 to 1, another one each time: spreads pauses, so that many agents with one cause do not try at one moment.
    pub random: f64,
}

/// Names somebody who waits for an [`Output::Answer`]; whoever sends an input chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// The store said something, at this instant. The driver keeps the entries of a list until [`Output::Save`] says what
    /// becomes of them.
    Store(StoreEvent, Instant),
    /// How much the mirror had saved when the agent started.
    SavedSummary(MirrorSummary),
    /// The answer to [`Output::LoadSaved`]: what the mirror had saved; none if nothing, or it cannot be read.
    Saved(Option<Recalled>),
    /// The mirror has written something, or failed to.
    Mirror(MirrorEvent),
    /// A renderer has done its work.
    WorkDone(WorkDone),
    /// A renderer is gone with all it knew, outside of its work: it panicked over a description.
    RendererLost(Arc<str>, String),
    /// Somebody else has changed the dataplane of this renderer; or why such changes can no longer be noticed.
    ForeignChange(Arc<str>, Result<ForeignChange, String>),
    /// A verifier has read the dataplane of a renderer back.
    Verified(VerifierReport),
    /// The core's deadline has passed.
    Timer,
    /// The addresses of this node's interfaces are these now.
    LocalAddresses(BTreeSet<IpAddr>),
    /// The store is to be listed again, and every renderer to be given everything again.
    Resync {
        /// Who wants it, as in "SIGHUP".
        cause: &'static str,
    },
    /// Deletions that are held are to count. Answered by [`Answer::Flag`]: false if there are none.
    ConfirmDeletions(RequestId),
    /// A pod is attached to this node's dataplane by its main interface.
    AddPod {
        /// The pod.
        pod: PodId,
        /// Its interface on the node's side.
        interface: InterfaceName,
        /// Somebody waits for the result ([`Answer::Pod`]), for so long. Otherwise renderers that fail are tried again
        /// until they succeed.
        wait: Option<(Duration, RequestId)>,
    },
    /// A pod is detached. Answered by [`Answer::Flag`]: false if it was not attached.
    DeletePod(PodId, RequestId),
}

/// One thing to be done. Outputs are executed in their order.
#[derive(Debug)]
pub enum Output {
    /// Gives a renderer work; it has none at the moment. Ends in [`Input::WorkDone`].
    Render(Arc<str>, Work),
    /// Has the dataplane of a renderer read back and compared with this. Ends in [`Input::Verified`].
    Verify(Arc<str>, Arc<Snapshot>),
    /// Saves something in the mirror.
    Save(Saving),
    /// Asks the mirror for what was saved. Ends in [`Input::Saved`].
    LoadSaved,
    /// Has the store listed again.
    Relist,
    /// Tells the server of health checks what changes.
    HealthChecks(HealthUpdate),
    /// Counts something.
    Count(Metric),
    /// Answers whoever waits.
    Answer(RequestId, Answer),
}

/// What a renderer can be given to do.
#[derive(Debug, Clone)]
pub enum Work {
    /// Make the dataplane equal to this.
    Resync(Arc<Snapshot>),
    /// Apply these changes.
    Update(Arc<ChangeSet>),
    /// Undo what others did. With everything, in case it is needed.
    Heal(Arc<Snapshot>),
}

/// What a renderer made of its work.
#[derive(Debug)]
pub struct WorkDone {
    /// The name of the renderer.
    pub renderer: Arc<str>,
    /// What it did, or why it failed.
    pub result: Result<Report, String>,
    /// Changes of others to the dataplane are noticed.
    pub is_watched: bool,
    /// How long the call took.
    pub duration: Duration,
}

/// What one verification has shown.
#[derive(Debug)]
pub struct VerifierReport {
    /// The name of the renderer.
    pub renderer: Arc<str>,
    /// What was found, or why the kernel could not be read.
    pub result: Result<Verification, String>,
    /// How long it took.
    pub duration: Duration,
}

/// What is to be saved.
#[derive(Debug)]
pub enum Saving {
    /// The entries of the oldest list that is neither saved nor dropped, but for some: of these keys what was saved before
    /// stays.
    List {
        /// Of the list.
        revision: i64,
        /// The exceptions.
        keep: BTreeSet<String>,
    },
    /// Nothing of that list.
    DropList,
    /// Changes, all of them usable.
    Apply(Batch),
}

/// What the mirror reports.
#[derive(Debug)]
pub enum MirrorEvent {
    /// Everything up to this revision is saved.
    Written(i64),
    /// The disk was too slow and changes were dropped, or a write had failed and succeeds again: everything must be saved anew.
    NeedsList,
    /// Nothing is saved at the moment.
    Failed(String),
}

/// An answer to whoever waits.
#[derive(Debug)]
pub enum Answer {
    /// Whether something was there to be done.
    Flag(bool),
    /// What became of the addition of a pod.
    Pod(Result<(), PodNotAdded>),
}

/// So many pods can be attached. Kubernetes runs 110 on a node, and Linux has no more interfaces on a bridge than this.
pub const MOST_PODS: usize = 1024;

/// Why a pod is not attached.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PodNotAdded {
    /// Nothing is rendered before.
    #[error("the store has not been read yet; try again")]
    NotReady,
    /// There are too many.
    #[error("{MOST_PODS} pods are attached, and there can be no more; detach those that are gone")]
    TooMany,
    /// A renderer could not apply it.
    #[error("renderer {renderer} failed, so the pod is not attached: {error}")]
    Failed {
        /// Which one.
        renderer: Arc<str>,
        /// Why.
        error: String,
    },
    /// Some renderer is busy, or hangs.
    #[error("renderer {renderer} has not applied it in time, so the pod is not attached; see /renderers")]
    TooLate {
        /// The first of those that have not.
        renderer: Arc<str>,
    },
}

/// What is counted. Gauges are not among it: they are functions of the core's state.
#[derive(Debug, Clone, PartialEq)]
pub enum Metric {
    /// There is a renderer of this name.
    Renderer(Arc<str>),
    /// An event of this kind is in the history.
    Event(&'static str),
    /// A renderer has applied something, which took so long.
    Applied(Arc<str>, Duration),
    /// A change of the store is active so long after the store said it; and after its trigger, where that is stored.
    Programmed(Arc<str>, Duration, Option<Duration>),
    /// A renderer has failed.
    Failed(Arc<str>),
    /// Others have changed the dataplane of a renderer.
    ForeignChange(Arc<str>),
    /// That is undone.
    Repaired(Arc<str>),
    /// The dataplane of a renderer was verified, with so many deviations.
    Verified(Arc<str>, usize),
}
