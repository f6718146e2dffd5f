//! Flags and environment: only what is set there, so that the file's values stay otherwise.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use super::{Config, ConfigError};

/// What flags and environment variables set. They are those of [`Config`], and none of them is required.
#[derive(Debug, Clone, Default)]
pub struct ConfigFlags(ArgMatches);

impl ConfigFlags {
    /// Overwrites what is set here, and leaves the rest.
    pub(super) fn update(&self, config: &mut Config) -> Result<(), ConfigError> {
        config.update_from_arg_matches(&self.0).map_err(|error| ConfigError::one(error.to_string()))
    }
}

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        Config::augment_args_for_update(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Config::augment_args_for_update(command)
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

/// The names of all keys, as in the file.
pub(super) fn keys() -> Vec<String> {
    let command = Config::augment_args_for_update(Command::new("keys"));
    command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
}
