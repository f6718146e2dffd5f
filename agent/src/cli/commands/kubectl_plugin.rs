//! `kubectl contiv`: this program by the name under which kubectl looks for plugins on `PATH`.

use std::{ffi::OsString, path::Path};

use clap::Command;

/// The name of a link to this program.
const PLUGIN: &str = "kubectl-contiv";

/// The command line of the plugin, if the program was called by its name: `status` is that of the whole cluster.
pub(crate) fn adapt(command: Command, program: Option<OsString>) -> Command {
    if program.is_none_or(|program| Path::new(&program).file_name() != Some(PLUGIN.as_ref())) {
        return command;
    }
    let of_cluster = |status: Command| status.mut_arg("cluster", |flag| flag.default_value("true"));
    command
        .bin_name("kubectl contiv")
        .mut_subcommand("status", of_cluster)
}
