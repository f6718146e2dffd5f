//! Flags and environment: only those that are set, so that they override nothing else in the file.

use std::{ffi::OsString, marker::PhantomData};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, builder::Resettable};

use super::{Config, ConfigError};
use crate::environment::ignore_empty_variables;

/// The set flags and environment variables of the configuration `C`; none of them is required. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct ConfigFlags<C = Config>(Option<ArgMatches>, PhantomData<C>);

impl<C: Args> ConfigFlags<C> {
    /// Overwrites the values that are set here.
    pub(super) fn update(&self, config: &mut C) -> Result<(), ConfigError> {
        let Some(matches) = &self.0 else {
            return Ok(());
        };
        config
            .update_from_arg_matches(matches)
            .map_err(|error| ConfigError::one(error.to_string()))
    }

    /// The flags of the environment whose keys are wanted, overridden by the `given` ones of a command line, as in
    /// `--node-name=n1`.
    ///
    /// # Errors
    /// When a value does not have the form of its key.
    pub(crate) fn of_environment(
        given: impl IntoIterator<Item = OsString>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, Error> {
        let command = C::augment_args_for_update(Command::new("contiv").no_binary_name(true));
        let command = command.mut_args(|argument| {
            if argument.get_long().is_some_and(&is_wanted) {
                argument
            } else {
                argument.env(Resettable::Reset)
            }
        });
        Ok(Self(
            Some(ignore_empty_variables(command).try_get_matches_from(given)?),
            PhantomData,
        ))
    }
}

impl<C: Args> Args for ConfigFlags<C> {
    fn augment_args(command: Command) -> Command {
        C::augment_args_for_update(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        C::augment_args_for_update(command)
    }
}

impl<C> FromArgMatches for ConfigFlags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(Some(matches.clone()), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0 = Some(matches.clone());
        Ok(())
    }
}

/// The names of all keys of a configuration, as in the file.
pub(super) fn keys<C: Args>() -> Vec<String> {
    let command = C::augment_args_for_update(Command::new("keys"));
    command
        .get_arguments()
        .filter_map(|argument| argument.get_long().map(str::to_owned))
        .collect()
}
