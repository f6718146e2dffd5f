//! Verification: whether the kernel holds what services require, and nothing else.

use std::{collections::BTreeSet, fmt};

use contiv_model::{ServiceId, Snapshot};
use serde::{Serialize, Serializer};

use crate::RenderError;

/// Reads one kind of dataplane from the kernel, and compares it with what services require.
///
/// It shares nothing with the renderer that programs that dataplane, neither memory nor socket: it can run on a thread of
/// its own while the other one works. What is on its way then looks like drift; see [`Confirmation`].
pub trait Verifier: Send {
    /// Every difference between the kernel and `snapshot`.
    fn verify(&mut self, snapshot: &Snapshot) -> Result<Verification, RenderError>;
}

/// What one look at the kernel has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// How many things were compared: elements, chains, rules, routes.
    pub checked: usize,
    /// What is not as it must be.
    pub drift: BTreeSet<Drift>,
}

/// One thing that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Drift {
    /// Whose it is; none if no service asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceId>,
    /// Where it is, as in `map backends4` or `table 67`.
    pub place: String,
    /// What it is, as nft or `ip route` have it.
    pub element: String,
    /// What is wrong with it.
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

/// What is wrong with something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deviation {
    /// It must be there, and is not.
    Missing,
    /// It is there, and must not be.
    Foreign,
    /// It is there, and not as it must be: how it is, and how it must be.
    Different(String),
}

impl Deviation {
    /// In one word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Different(_) => "different",
        }
    }

    /// In which way it is different; empty if there is nothing more to say.
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

/// Tells drift from changes that are on their way: looks again, and keeps what is wrong each time in the same way.
#[derive(Debug, Clone, Default)]
pub struct Confirmation {
    looks: usize,
    /// What was wrong at every look so far.
    suspects: BTreeSet<Drift>,
}

impl Confirmation {
    /// So many looks, with a pause between them, confirm drift.
    pub const LOOKS: usize = 3;

    /// Takes in what one look has shown. None if it takes another one to tell; else all that was wrong at every look.
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
