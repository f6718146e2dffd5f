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
    /// How many things were compared: elements, chains, rules, routes.
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
        let Self { service, place, element, deviation } = self;
        write!(f, "{}: {place}", deviation.word())?;
        if !element.is_empty() {
            write!(f, " {{ {element} }}")?;
        }
        if !deviation.detail().is_empty() {
            write!(f, " {}", deviation.detail())?;
        }
        service.as_ref().map_or(Ok(()), |service| write!(f, " (service {service})"))
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
        if let Self::Different(detail) = self { detail } else { "" }
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
    looks: usize,
    /// Differences found by every comparison so far.
    suspects: BTreeSet<Drift>,
}

impl Confirmation {
    /// The number of comparisons, with a pause between them, that confirm drift.
    pub const LOOKS: usize = 3;

    /// Adds the result of one comparison. None if another one is needed; else the differences found by all of them.
    pub fn take(&mut self, found: BTreeSet<Drift>) -> Option<BTreeSet<Drift>> {
        self.suspects =
            if self.looks == 0 { found } else { self.suspects.intersection(&found).cloned().collect() };
        self.looks += 1;
        (self.suspects.is_empty() || self.looks >= Self::LOOKS).then(|| std::mem::take(&mut self.suspects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(element: &str) -> Drift {
        let (place, element) = ("map backends4".to_owned(), element.to_owned());
        Drift { service: None, place, element, deviation: Deviation::Missing }
    }

    #[test]
    fn difference_seen_at_every_look_is_drift_and_a_passing_one_is_not() {
        let found =
            |elements: &[&str]| elements.iter().map(|element| drift(element)).collect::<BTreeSet<_>>();
        assert_eq!(Confirmation::default().take(found(&[])), Some(found(&[])));
        let mut confirmation = Confirmation::default();
        assert_eq!(confirmation.take(found(&["a", "b"])), None);
        assert_eq!(confirmation.take(found(&["b", "c"])), None);
        assert_eq!(confirmation.take(found(&["b", "d"])), Some(found(&["b"])));
        let mut passing = Confirmation::default();
        assert_eq!(passing.take(found(&["a"])), None);
        assert_eq!(passing.take(found(&["b"])), Some(found(&[])));
    }
}
