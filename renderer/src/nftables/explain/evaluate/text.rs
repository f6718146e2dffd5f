//! The text form of an evaluation, like that of [`contiv_model::Trace`]: a label and a sentence on each line.

use std::fmt::{self, Display, Formatter};

use super::{Choice, Client, Evaluation, FlowOutcome, PodDetection};

impl Display for Evaluation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "client", self.client)?;
        let served = self
            .shares
            .iter()
            .filter(|share| matches!(share.ending, FlowOutcome::Served { .. }))
            .count();
        match served {
            0 => (),
            1 => line(f, "verdict", "SERVED by one backend")?,
            count => line(
                f,
                "verdict",
                format_args!("SERVED by one of {count} backends"),
            )?,
        }
        for share in &self.shares {
            let percent = self.percent(share.slots);
            let verdict = match &share.ending {
                FlowOutcome::Served {
                    backend,
                    masqueraded,
                } => {
                    let source = if *masqueraded {
                        "masqueraded"
                    } else {
                        "source kept"
                    };
                    let slots = if share.slots == 1 { "slot" } else { "slots" };
                    line(
                        f,
                        "backend",
                        format_args!(
                            "{backend}  {percent:.1} %, {} {slots}, {source}",
                            share.slots
                        ),
                    )?;
                    continue;
                }
                FlowOutcome::Rejected { .. } => "REJECTED",
                FlowOutcome::Dropped { .. } => "DROPPED",
                FlowOutcome::Egress => "EGRESS",
                FlowOutcome::Untouched => "UNTOUCHED",
                FlowOutcome::Foreign { .. } => "UNKNOWN",
            };
            if share.slots == self.slots() {
                line(f, "verdict", format_args!("{verdict}: {}", share.ending))?;
            } else {
                line(
                    f,
                    "or",
                    format_args!("{verdict}: {percent:.1} % of the time it {}", share.ending),
                )?;
            }
        }
        if let Some(choice) = self.choice {
            line(f, "choice", choice)?;
        }
        match &self.remembered {
            None => Ok(()),
            Some(FlowOutcome::Served { backend, .. }) => line(
                f,
                "memory",
                format_args!(
                    "this client has an affinity entry: its next connection goes to {backend}"
                ),
            ),
            Some(other) => line(
                f,
                "memory",
                format_args!("this client has an affinity entry: its next connection {other}"),
            ),
        }
    }
}

fn line(f: &mut Formatter<'_>, label: &str, sentence: impl Display) -> fmt::Result {
    writeln!(f, "{label:<9} {sentence}")
}

impl Display for Client {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self {
                pod: Some(PodDetection::Address),
                ..
            } => "a pod of this node, by its address",
            Self {
                pod: Some(PodDetection::Interface),
                ..
            } => "a pod of this node, by its interface",
            Self { is_node: true, .. } => "this node itself",
            Self { .. } => "external: neither this node nor one of its pods",
        })
    }
}

/// As the end of "the connection …".
impl Display for FlowOutcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { backend, .. } => write!(f, "goes to {backend}"),
            Self::Rejected { set } => write!(f, "is rejected by an element of {set}"),
            Self::Dropped { set } if set.starts_with("source-ranges") => {
                write!(f, "is dropped: the client is in no element of {set}")
            }
            Self::Dropped { set } if set.starts_with("service-interfaces") => {
                write!(
                    f,
                    "is dropped: the interface it comes by is in no element of {set}"
                )
            }
            Self::Dropped { set } => write!(f, "is dropped by an element of {set}"),
            Self::Egress => f.write_str("leaves the cluster with the address of this node"),
            Self::Untouched => f.write_str("is left alone: no element concerns it"),
            Self::Foreign { set } => {
                write!(
                    f,
                    "has an unknown outcome: {set} has an element for it that contiv never writes"
                )
            }
        }
    }
}

/// As the end of "a backend is chosen …".
impl Display for Choice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("at random for each connection"),
            Self::Sticky {
                timeout: Some(seconds),
            } => {
                write!(
                    f,
                    "at random, and then remembered until {seconds} s after the client's last new connection"
                )
            }
            Self::Sticky { timeout: None } => f.write_str(
                "at random unless the client has an affinity entry, and no rule writes one",
            ),
            Self::ClientAddress => f.write_str("by the client's address"),
        }
    }
}
