//! The inputs and outputs of the core: the only types between it and the drivers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{ChangeSet, Families, InterfaceName, LocalInterfaces, PodId, Snapshot};
use contiv_renderer::{ForeignChange, Report, Verification};
use contiv_store::{Batch, Entry, Inconsistency, MirrorSummary, PackedEntries, Saved, SavedStart};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::decode::StoreEvent;
use crate::health::HealthUpdate;

/// The time of an input, by the monotonic clock and by the wall clock, and a random number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// The monotonic clock, for durations and deadlines.
    pub instant: Instant,
    /// The wall clock, for people.
    pub time: Timestamp,
    /// A random number from 0 to 1, different for each input: it spreads retries of many agents after a common cause.
    pub random: f64,
}

/// The id of a request that waits for an [`Output::Answer`], chosen by the sender of the input. The core answers each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An input.
#[derive(Debug)]
pub enum Input {
    /// An event of the store, with the time of its receipt.
    Store(StoreEvent, Instant),
    /// A report of the mirror.
    Mirror(MirrorReport),
    /// A renderer has finished its work.
    WorkDone(WorkDone),
    /// A renderer has panicked while it described its state, and has lost it.
    RendererLost(Arc<str>, String),
    /// Another process has changed the dataplane of this renderer; or why such changes can no longer be detected.
    ForeignChange(Arc<str>, Result<ForeignChange, String>),
    /// A verifier has read the dataplane of a renderer back.
    Verified(VerifierReport),
    /// The core's deadline has passed. Handling it moves or clears every expired deadline; otherwise it would be sent for ever.
    Timer,
    /// The current addresses of this node's interfaces.
    LocalAddresses(BTreeSet<IpAddr>),
    /// The current interfaces of this node.
    LocalInterfaces(LocalInterfaces),
    /// List the store again and resync every renderer.
    Resync {
        /// The source of the request, as in "SIGHUP".
        cause: &'static str,
    },
    /// Apply held deletions. The answer is false if there are none.
    ConfirmDeletions(RequestId),
    /// A pod is attached to this node's dataplane by its main interface.
    AddPod {
        /// The pod.
        pod: PodId,
        /// Its interface on the node's side.
        interface: InterfaceName,
        /// If the caller waits for the result: for how long. Otherwise renderers that fail retry until they succeed.
        wait: Option<(Duration, RequestId)>,
    },
    /// A pod is detached. The answer is false if it was not attached.
    DeletePod(PodId, RequestId),
    /// These backends refused an attempt just now, by a reset or an ICMP error.
    BackendsRefused(BTreeSet<SocketAddr>),
    /// The backends that are silent now: several connections have tried them, and none was answered for the set time. Sent when
    /// the set changes.
    BackendsSilent(BTreeSet<SocketAddr>),
    /// The result of a probe.
    Probed {
        /// The backend.
        backend: SocketAddr,
        /// Whether it accepted the connection.
        is_answered: bool,
    },
    /// Whether the kernel counts attempts and answers by backend, or what it lacks for that.
    FailoverState(Result<(), String>),
    /// Whether the agent reached itself through its rules: the step that failed, if not.
    SelfChecked(Option<String>),
}

/// An output. Outputs are executed in order.
#[derive(Debug)]
pub enum Output {
    /// Gives work to an idle renderer. Ends in [`Input::WorkDone`].
    Render(Arc<str>, Work),
    /// Reads the dataplane of a renderer back and compares it with this. Ends in [`Input::Verified`].
    Verify(Arc<str>, Arc<Snapshot>),
    /// Saves something in the mirror.
    Save(Saving),
    /// Saves which pods are attached, for the next start.
    SavePods(BTreeMap<PodId, InterfaceName>),
    /// Loads the mirror's saved state. Ends in [`MirrorReport::Loaded`].
    LoadSaved,
    /// Lists the store again.
    Relist,
    /// Reads these keys again.
    Reread(BTreeSet<String>),
    /// Updates the server of health checks.
    HealthChecks(HealthUpdate),
    /// Updates a metric.
    Count(Metric),
    /// Answers a waiting request.
    Answer(RequestId, Answer),
    /// Changes of the backends whose attempts and answers are counted; none for those that no longer are.
    WatchBackends(BTreeMap<SocketAddr, Option<Watch>>),
    /// Tries whether a backend accepts a connection. Ends in [`Input::Probed`].
    Probe(SocketAddr),
}

/// Why a backend is no longer chosen, or would not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCause {
    /// It refused a connection.
    Refused,
    /// Several connections had no answer.
    Silent,
}

impl FailureCause {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Silent => "silent",
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused a connection",
            Self::Silent => "does not answer",
        })
    }
}

/// How the attempts at a backend are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Some service with failover chooses it now.
    pub is_chosen: bool,
    /// Its refusals need not reach the client: wherever it is chosen, failover is on, and another backend works.
    pub has_second_chance: bool,
}

/// Work of a renderer.
#[derive(Debug, Clone)]
pub enum Work {
    /// Make the dataplane equal to this snapshot.
    Resync(Arc<Snapshot>),
    /// Apply these changes.
    Update(Arc<ChangeSet>),
    /// Undo foreign changes. The snapshot is for a full repair.
    Heal(Arc<Snapshot>),
}

impl Work {
    /// Its name for people.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Resync(_) => "resync",
            Self::Update(_) => "update",
            Self::Heal(_) => "heal",
        }
    }

    /// What it concerns.
    pub fn extent(&self) -> Extent {
        match self {
            Self::Resync(_) => Extent {
                is_full: true,
                families: Families::ALL,
            },
            Self::Update(changes) => Extent {
                is_full: false,
                families: changes.families(),
            },
            Self::Heal(_) => Extent {
                is_full: false,
                families: Families::ALL,
            },
        }
    }
}

/// The part of a dataplane that some work concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// All of it, rather than changes.
    pub is_full: bool,
    /// The address families.
    pub families: Families,
}

/// The result of a renderer's work.
#[derive(Debug)]
pub struct WorkDone {
    /// The name of the renderer.
    pub renderer: Arc<str>,
    /// The report, or the error.
    pub result: Result<Report, String>,
    /// Whether foreign changes of the dataplane are detected.
    pub is_watched: bool,
    /// How long the call took.
    pub duration: Duration,
}

/// The result of one reading of a verification.
#[derive(Debug)]
pub struct VerifierReport {
    /// The name of the renderer.
    pub renderer: Arc<str>,
    /// The comparison, or why the kernel could not be read.
    pub result: Result<Verification, String>,
    /// How long it took.
    pub duration: Duration,
}

/// An answer to a waiting request: whether there was something to do; or why a pod is not attached.
pub type Answer = Result<bool, PodNotAdded>;

/// The most pods that can be attached. Kubernetes runs 110 on a node, and Linux allows no more interfaces on a bridge than
/// this.
pub const MAX_PODS: usize = 1024;

/// Why a pod is not attached.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PodNotAdded {
    /// The store has not been read, so nothing is rendered yet.
    #[error("the store has not been read yet; try again")]
    NotReady,
    /// The limit of pods is reached.
    #[error("{MAX_PODS} pods are attached, and there can be no more; detach those that are gone")]
    TooManyPods,
    /// A renderer could not apply it.
    #[error("renderer {renderer} failed, so the pod is not attached: {error}")]
    Failed {
        /// The renderer.
        renderer: Arc<str>,
        /// The error.
        error: String,
    },
    /// A renderer has not applied it in time.
    #[error(
        "renderer {renderer} has not applied it in time, so the pod is not attached; see /renderers"
    )]
    Timeout {
        /// The first renderer that has not applied it.
        renderer: Arc<str>,
    },
}

/// An update of a metric. Gauges are not among them: they are computed from the core's state.
#[derive(Debug, Clone, PartialEq)]
pub enum Metric {
    /// A renderer with this name exists.
    Renderer(Arc<str>),
    /// An event of this kind was recorded.
    Event(&'static str),
    /// The store has said something that cannot be, and is listed again.
    StoreRepair(Inconsistency),
    /// The renderer of this node's traffic has new work, which concerns these families.
    Queued(Families),
    /// A renderer has applied work of this extent, which took this long.
    Applied(Arc<str>, Duration, Extent),
    /// A renderer has applied a change of the store.
    Programmed {
        /// The renderer.
        renderer: Arc<str>,
        /// How long after its receipt, if it was applied as a change and not by a resync.
        since_receipt: Option<Duration>,
        /// How long after its trigger time, if known.
        since_trigger: Option<Duration>,
        /// The families that it concerned.
        families: Families,
    },
    /// A renderer has failed at work for these families.
    Failed(Arc<str>, Families),
    /// Another process has changed the dataplane of a renderer.
    ForeignChange(Arc<str>),
    /// Such a change was repaired.
    Repaired(Arc<str>),
    /// The dataplane of a renderer was verified, with this many deviations.
    Verified(Arc<str>, usize),
    /// A backend of a service is no longer chosen, for this cause.
    BackendLeft(FailureCause),
    /// A backend of a service is chosen again.
    BackendReturned,
}

/// What the mirror is to save.
#[derive(Debug)]
pub enum Saving {
    /// All entries of a list, except for those of the keys in `keep`: their earlier saved values stay.
    List {
        /// The revision of the list.
        revision: i64,
        /// All of them. They are logged in the order of their keys.
        entries: PackedEntries,
        /// The exceptions: the store has unusable values for them, or nothing.
        keep: BTreeSet<String>,
    },
    /// Changes, all of them usable.
    Apply {
        /// They may be none: then only the revision is new.
        batch: Batch,
        /// The keys whose changes are not saved, as they are not usable, or held.
        deviating: BTreeSet<String>,
    },
}

/// A report of the mirror.
#[derive(Debug)]
pub enum MirrorReport {
    /// How much was saved when the agent started. Sent once.
    Summary(MirrorSummary),
    /// A part of the saved content, at the start.
    Page(Vec<Entry>),
    /// All of these parts were sent.
    Start(SavedStart),
    /// The saved content, in answer to `Load`; none if nothing is saved, or it cannot be read.
    Loaded(Option<Saved>),
    /// Everything up to this revision is saved.
    Written {
        /// The revision.
        revision: i64,
        /// Later changes were dropped because the disk was too slow: everything must be saved again.
        is_behind: bool,
    },
    /// Nothing can be saved at the moment.
    Failed(String),
    /// After a failed write the mirror can be written again: everything must be saved again.
    CaughtUp,
}
