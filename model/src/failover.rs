//! What is done about a backend that is ready by the store but does not answer this node's clients.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What is done about backends that do not answer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum FailoverMode {
    /// Nothing.
    #[default]
    Off,
    /// It is recorded which of them would leave the choice.
    Observe,
    /// They leave the choice for new connections of this node, until they answer again.
    On,
}

impl FailoverMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Off, Self::Observe, Self::On];

    /// The name of the mode in annotations and settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::On => "on",
        }
    }

    /// Nothing is done.
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

/// A text that is no mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is none of off, observe, on")]
pub struct InvalidFailoverMode(String);

impl FromStr for FailoverMode {
    type Err = InvalidFailoverMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| InvalidFailoverMode(text.to_owned()))
    }
}

impl fmt::Display for FailoverMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in FailoverMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(
                serde_json::to_value(mode).expect("JSON"),
                mode.name(),
                "the JSON form is the name"
            );
        }
        let error = "yes".parse::<FailoverMode>().unwrap_err().to_string();
        assert_eq!(error, "\"yes\" is none of off, observe, on");
    }
}
