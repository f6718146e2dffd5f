//! What the configurations of both processes have in common.

use std::path::Path;

use clap::Args;
use serde::{Serialize, de::DeserializeOwned};

use super::{ConfigError, ConfigFlags, LogFormat, file};

/// A configuration: a struct with a field for each key.
pub trait Settings: Args + Default + Serialize + DeserializeOwned {
    /// The file that is read when none is named, if it exists.
    const DEFAULT_FILE: &'static str;

    /// Finds out what is not set and this machine knows.
    ///
    /// # Errors
    /// When it does not.
    fn complete(&mut self) -> Result<(), ConfigError>;

    /// What is wrong with values that each have the right form.
    fn problems(&self) -> Vec<String>;

    /// What is logged, and how.
    fn log(&self) -> (LogFormat, &str);

    /// What a file sets, and nothing else that counts. Without a `file`, [`Self::DEFAULT_FILE`]; none if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is wrong.
    fn of_file(file: Option<&Path>) -> Result<Option<Self>, ConfigError> {
        file::read(file, Self::DEFAULT_FILE)
    }

    /// What file, environment and flags set, before [`Self::finish`]. Without a `file`, [`Self::DEFAULT_FILE`] is read if
    /// there is one.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    fn read(file: Option<&Path>, flags: &ConfigFlags<Self>) -> Result<Self, ConfigError> {
        let mut config = Self::of_file(file)?.unwrap_or_default();
        flags.update(&mut config)?;
        Ok(config)
    }

    /// The same, completed and checked.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn finish(mut self) -> Result<Self, ConfigError> {
        self.complete()?;
        let problems = self.problems();
        if problems.is_empty() { Ok(self) } else { Err(ConfigError(problems)) }
    }

    /// The effective configuration.
    ///
    /// # Errors
    /// Those of [`Self::read`] and [`Self::finish`].
    fn load(file: Option<&Path>, flags: &ConfigFlags<Self>) -> Result<Self, ConfigError> {
        Self::read(file, flags)?.finish()
    }

    /// The configuration as a file that says the same.
    ///
    /// # Errors
    /// When a path is not UTF-8.
    fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::one(format!("failed to print as TOML: {error}")))
    }
}
