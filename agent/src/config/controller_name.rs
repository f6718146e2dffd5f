//! Validated names of controllers.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A controller, by its name in `--enable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum ControllerName {
    /// Endpoint slices of services that select external workloads.
    ExternalWorkloads,
    /// Services of other registries.
    Connector,
    /// The content of a Kubernetes API server.
    Reflector,
}

/// A name that no controller has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown controller {0:?}; valid controllers: {known}", known = list(ControllerName::ALL))]
pub struct UnknownController(String);

impl ControllerName {
    /// All of them, in the order in which they are documented.
    pub const ALL: [Self; 3] = [Self::ExternalWorkloads, Self::Connector, Self::Reflector];

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExternalWorkloads => "external-workloads",
            Self::Connector => "connector",
            Self::Reflector => "reflector",
        }
    }
}

/// The names, separated by commas.
pub(crate) fn list(names: impl IntoIterator<Item = ControllerName>) -> String {
    names
        .into_iter()
        .map(ControllerName::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

impl FromStr for ControllerName {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == text);
        known.ok_or_else(|| UnknownController(text.to_owned()))
    }
}

impl TryFrom<String> for ControllerName {
    type Error = UnknownController;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ControllerName> for &'static str {
    fn from(name: ControllerName) -> Self {
        name.as_str()
    }
}

impl fmt::Display for ControllerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
