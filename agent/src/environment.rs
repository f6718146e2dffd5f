//! Environment variables of this process. An empty one counts as unset, because manifests of containers and environment files
//! of systemd cannot remove a variable.

use std::{env, ffi::OsString};

use clap::{Command, builder::Resettable};

/// The value of a variable; none if it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Changes a command and its subcommands so that no flag takes its value from an empty variable.
pub(crate) fn ignore_empty_variables(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let is_empty = argument
            .get_env()
            .is_some_and(|name| env::var_os(name).is_some_and(|it| it.is_empty()));
        if is_empty {
            argument.env(Resettable::Reset)
        } else {
            argument
        }
    });
    command.mut_subcommands(ignore_empty_variables)
}
