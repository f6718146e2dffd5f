//! Verification: checks that the kernel holds exactly what services require.

use std::{collections::BTreeSet, fmt};

use contiv_model::{ServiceId, Snapshot};
use serde::{Serialize, Serializer};

use crate::RenderError;

/// Reads one kind of dataplane from the kernel, and compares it with what services require.
///
/// It shares neither memory nor a socket with the renderer of that dataplane: it can run on its own thread while the other one
/// works. Changes in progress then look like drift; see [`Confirmation`].
pub trait Verifier: Send {
    /// Every difference between the kernel and `snapshot`.
    fn verify(&mut self, snapshot: &Snapshot) -> Result<Verification, RenderError>;
}

/// The result of one comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The number of compared elements, chains, rules and routes.
    pub checked: usize,
    /// All differences.
    pub drift: BTreeSet<Drift>,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Drift {
    /// The service concerned; none if no service asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceId>,
    /// The place, as in `map backends4` or `table 67`.
    pub place: String,
    /// The element, in the format of nft or `ip route`.
    pub element: String,
    /// The kind of difference.
    pub deviation: Deviation,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            service,
            place,
            element,
            deviation,
        } = self;
        write!(f, "{}: {place}", deviation.word())?;
        if !element.is_empty() {
            write!(f, " {{ {element} }}")?;
        }
        if !deviation.detail().is_empty() {
            write!(f, " {}", deviation.detail())?;
        }
        service
            .as_ref()
            .map_or(Ok(()), |service| write!(f, " (service {service})"))
    }
}

/// The kind of a difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deviation {
    /// It is missing.
    Missing,
    /// It must not exist.
    Foreign,
    /// It exists with another content: the actual and the desired one.
    Different(String),
}

impl Deviation {
    /// As one word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Different(_) => "different",
        }
    }

    /// The details; empty if there are none.
    pub fn detail(&self) -> &str {
        if let Self::Different(detail) = self {
            detail
        } else {
            ""
        }
    }
}

impl Serialize for Deviation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&match self {
            Self::Different(detail) => format!("different: {detail}"),
            other => other.word().to_owned(),
        })
    }
}

/// Distinguishes drift from changes in progress: compares repeatedly, and keeps the differences that stay the same.
#[derive(Debug, Clone, Default)]
pub struct Confirmation {
    /// The sum of the comparisons' weights.
    weight: usize,
    /// Differences found by every comparison so far; none before the first.
    candidates: Option<BTreeSet<Drift>>,
}

impl Confirmation {
    /// The number of comparisons, with a pause between them, that confirm drift if nothing is programmed meanwhile.
    pub const REQUIRED_COMPARISONS: usize = 3;
    /// The weight of a comparison during which nothing was programmed; others have the weight 1, since a value that alternates
    /// between a few states can be read in the same state several times.
    const WEIGHT_WITHOUT_CHANGES: usize = 5;

    /// Adds the result of one comparison, and whether something was programmed while the kernel was read. None if another one is
    /// needed; else the differences found by all of them.
    pub fn add(&mut self, found: BTreeSet<Drift>, during_changes: bool) -> Option<BTreeSet<Drift>> {
        let candidates = match self.candidates.take() {
            None => found,
            Some(candidates) => candidates.intersection(&found).cloned().collect(),
        };
        self.weight += if during_changes {
            1
        } else {
            Self::WEIGHT_WITHOUT_CHANGES
        };
        if candidates.is_empty()
            || self.weight >= Self::REQUIRED_COMPARISONS * Self::WEIGHT_WITHOUT_CHANGES
        {
            return Some(candidates);
        }
        self.candidates = Some(candidates);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(element: &str) -> Drift {
        let (place, element) = ("map backends4".to_owned(), element.to_owned());
        Drift {
            service: None,
            place,
            element,
            deviation: Deviation::Missing,
        }
    }

    #[test]
    fn difference_in_every_comparison_is_drift() {
        let found = |elements: &[&str]| {
            elements
                .iter()
                .map(|element| drift(element))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            Confirmation::default().add(found(&[]), false),
            Some(found(&[]))
        );
        let mut confirmation = Confirmation::default();
        assert_eq!(confirmation.add(found(&["a", "b"]), false), None);
        assert_eq!(confirmation.add(found(&["b", "c"]), false), None);
        assert_eq!(
            confirmation.add(found(&["b", "d"]), false),
            Some(found(&["b"]))
        );
        let mut during_changes = Confirmation::default();
        let results = (0..15)
            .map(|_| during_changes.add(found(&["a"]), true))
            .collect::<Vec<_>>();
        assert!(
            results[..14].iter().all(Option::is_none),
            "it may be in this state by chance"
        );
        assert_eq!(results[14], Some(found(&["a"])));
        let mut passing = Confirmation::default();
        assert_eq!(passing.add(found(&["a"]), false), None);
        assert_eq!(passing.add(found(&["b"]), false), Some(found(&[])));
    }
}
