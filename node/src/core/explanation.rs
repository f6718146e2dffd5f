//! The answer to a trace, with all that the agent knows besides the state of renderers.

use std::{fmt, net::IpAddr};

use contiv_model::Trace;
use contiv_renderer::ForwardingOff;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{former_frontends::FormerFrontend, quarantine::Quarantined};

/// The outcome of a flow, and what the agent knows about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The outcome, with the reasons in stored objects.
    #[serde(flatten)]
    pub trace: Trace,
    /// The service that had the destination earlier, where none has it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerDestination>,
    /// Why the state behind the outcome may not be the one that is meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<Caveat>,
}

/// A destination that was a service's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerDestination {
    /// When, and whose.
    #[serde(flatten)]
    pub frontend: FormerFrontend,
    /// The addresses that the service has now; none if it is not served any more.
    pub now: Option<Vec<IpAddr>>,
}

/// Why the state behind an outcome may not be the one that is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caveat {
    /// The store cannot be watched.
    StoreDown {
        /// Since when.
        since: Timestamp,
        /// Why.
        reason: String,
        /// The revision of the state.
        revision: i64,
    },
    /// The store has not been read since the start, and the state is the saved one.
    FromMirror {
        /// Its revision.
        revision: i64,
    },
    /// The store has deleted too many objects at once; they are active until that is confirmed.
    HeldDeletions {
        /// How many.
        objects: usize,
    },
    /// An object that the outcome depends on, or may depend on, cannot be used as it is stored.
    Quarantined {
        /// The object.
        object: String,
        /// Since when.
        since: Timestamp,
        /// Field and reason.
        reason: String,
        /// The state in use: `last good`, `nothing`, or `the rest` of the object.
        active_state: Option<String>,
    },
    /// A file or folder of the store cannot be read, so its objects may be missing or outdated.
    Unreadable {
        /// The file or folder.
        source: String,
        /// Since when.
        since: Timestamp,
        /// Why.
        reason: String,
    },
    /// A renderer has failed to apply the state.
    RendererFailing {
        /// Its name.
        renderer: String,
        /// Why.
        error: String,
    },
    /// The machine does not forward these packets.
    ForwardingOff(ForwardingOff),
}

impl Caveat {
    /// An entry of the quarantine.
    pub(super) fn quarantined(entry: Quarantined) -> Self {
        let Quarantined {
            source,
            object,
            field,
            reason,
            since,
            active_state,
        } = entry;
        let Some(object) = object else {
            return Self::Unreadable {
                source,
                since,
                reason,
            };
        };
        // Reasons of values begin with their object.
        let reason = reason
            .strip_prefix(&format!("{object}: "))
            .unwrap_or(&reason);
        let reason = field
            .as_deref()
            .into_iter()
            .chain([reason])
            .collect::<Vec<_>>()
            .join(": ");
        Self::Quarantined {
            object,
            since,
            reason,
            active_state: active_state.map(str::to_owned),
        }
    }
}

impl fmt::Display for FormerDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frontend:
                FormerFrontend {
                    frontend,
                    service,
                    until,
                },
            now,
        } = self;
        write!(
            f,
            "{frontend} was {service} until {until:.0}; that service "
        )?;
        match now.as_deref() {
            None => f.write_str("is not served any more"),
            Some([]) => f.write_str("has no address now"),
            Some(addresses) => {
                f.write_str("has ")?;
                for (number, address) in addresses.iter().enumerate() {
                    write!(f, "{}{address}", if number == 0 { "" } else { ", " })?;
                }
                f.write_str(" now")
            }
        }
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreDown {
                since,
                reason,
                revision,
            } => write!(
                f,
                "the store is down since {since:.0}: {reason}; this is its state at revision {revision}"
            ),
            Self::FromMirror { revision } => write!(
                f,
                "the store has not been read since the start; this is its saved state of revision {revision}"
            ),
            Self::HeldDeletions { objects } => write!(
                f,
                "{objects} deletions of the store are held, and their objects still in use; see `contiv confirm-deletions`"
            ),
            Self::Quarantined {
                object,
                since,
                reason,
                active_state,
            } => {
                write!(f, "{object} is in quarantine since {since:.0}: {reason}")?;
                match active_state.as_deref() {
                    Some(state @ ("nothing" | "the rest")) => {
                        write!(f, "; {state} of it is in use")
                    }
                    Some(_) => f.write_str("; its last good state is in use"),
                    None => Ok(()),
                }
            }
            Self::Unreadable {
                source,
                since,
                reason,
            } => {
                write!(
                    f,
                    "what {source} holds may be missing or outdated here, since {since:.0}: {reason}"
                )
            }
            Self::RendererFailing { renderer, error } => {
                write!(
                    f,
                    "the renderer {renderer} fails, so the dataplane may differ: {error}"
                )
            }
            Self::ForwardingOff(off) => off.fmt(f),
        }
    }
}

/// As of a trace: a label and a sentence on each line.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace,
            former,
            caveats,
        } = self;
        write!(f, "{trace}")?;
        former
            .iter()
            .try_for_each(|former| writeln!(f, "why       {former}"))?;
        caveats
            .iter()
            .try_for_each(|caveat| writeln!(f, "state     {caveat}"))
    }
}
