//! The common part of both processes' configurations.

use std::path::Path;

use clap::Args;
use serde::{Serialize, de::DeserializeOwned};

use super::{ConfigError, ConfigFlags, file};
use crate::logging::LogFormat;

/// A configuration: a struct with a field for each key.
pub trait Settings: Args + Default + Serialize + DeserializeOwned {
    /// The file that is read by default, if it exists.
    const DEFAULT_FILE: &'static str;

    /// Sets missing values that this machine can provide.
    ///
    /// # Errors
    /// When it cannot.
    fn complete(&mut self) -> Result<(), ConfigError>;

    /// The problems of values that each have the right form.
    fn problems(&self) -> Vec<String>;

    /// The format and the level of the log.
    fn log(&self) -> (LogFormat, &str);

    /// The settings of a file only. Without a `file`, [`Self::DEFAULT_FILE`]; none if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read, or is invalid.
    fn from_file(file: Option<&Path>) -> Result<Option<Self>, ConfigError> {
        file::read(file, Self::DEFAULT_FILE)
    }

    /// The settings of file, environment and flags, before [`Self::finish`]. Without a `file`, [`Self::DEFAULT_FILE`] is read
    /// if it exists.
    ///
    /// # Errors
    /// All problems of the file.
    fn read(file: Option<&Path>, flags: &ConfigFlags<Self>) -> Result<Self, ConfigError> {
        let mut config = Self::from_file(file)?.unwrap_or_default();
        flags.update(&mut config)?;
        Ok(config)
    }

    /// Completes and validates the settings.
    ///
    /// # Errors
    /// All problems.
    fn finish(mut self) -> Result<Self, ConfigError> {
        self.complete()?;
        let problems = self.problems();
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(ConfigError(problems))
        }
    }

    /// The effective configuration.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Self::finish`].
    fn load(file: Option<&Path>, flags: &ConfigFlags<Self>) -> Result<Self, ConfigError> {
        Self::read(file, flags)?.finish()
    }

    /// The configuration as an equivalent file.
    ///
    /// # Errors
    /// When a path is not UTF-8.
    fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self)
            .map_err(|error| ConfigError::one(format!("failed to print as TOML: {error}")))
    }
}
