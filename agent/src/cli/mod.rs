//! The command line.
//!
//! - `commands` has one file or folder for each subcommand; they use
//! - `selection`, what a command is about, which uses
//! - `source`, where answers come from, and
//! - `output`, how they are shown.
//!
//! Exit codes: 0 success, 1 something failed or some input was bad, 2 wrong usage or configuration.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

mod commands;
mod output;
mod selection;
mod source;

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};

use commands::{
    actions, agent, apply, backends, cleanup, completions, controller, delete, describe, diff,
    events, flows, get, health_checks, kubectl_plugin, man, migrate, reference, refused, render,
    services, status, support_bundle, top, trace, verify, version, why,
};
use output::{error_chain::chain, outcome::Outcome, terminal::Terminal, usage_error::UsageError};

use crate::{capabilities::use_net_admin, environment::ignore_empty_variables};

/// Services and their endpoints, from a store into this node's kernel.
#[derive(Debug, Parser)]
#[command(name = "contiv", version, max_term_width = 120)]
#[command(
    after_help = "Exit codes: 0 success; 1 something failed; 2 wrong usage or configuration."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::Agent),
    Render(render::Render),
    Apply(apply::Apply),
    Delete(delete::Delete),
    Diff(diff::Diff),
    Get(get::Get),
    Describe(describe::Describe),
    Status(status::Status),
    Services(services::Services),
    Backends(backends::Backends),
    HealthChecks(health_checks::HealthChecks),
    Refused(refused::Refused),
    Flows(flows::Flows),
    Events(events::Events),
    Top(top::Top),
    Trace(trace::Trace),
    Why(why::Why),
    Verify(verify::Verify),
    ConfirmDeletions(actions::ConfirmDeletions),
    Resync(actions::ResyncCommand),
    SupportBundle(support_bundle::SupportBundle),
    Cleanup(cleanup::Cleanup),
    Controller(controller::Controller),
    Migrate(migrate::Migrate),
    Completions(completions::Completions),
    Version(version::Version),
    Man(man::Man),
    Reference(reference::Reference),
}

/// The error without a password in a URL: the output of a service is logged.
fn without_password(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let value = contiv_store::url::without_password(value);
        error.insert(ContextKind::InvalidValue, ContextValue::String(value));
    }
    error
}

fn parse() -> Result<Cli, clap::Error> {
    let mut command = kubectl_plugin::adapt(
        ignore_empty_variables(Cli::command()),
        env::args_os().next(),
    );
    let matches = command.try_get_matches_from_mut(env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Parses the command line, runs the command and returns the exit code.
pub fn main() -> ExitCode {
    use_net_admin();
    completions::complete_and_exit_if_requested(Cli::command);
    let cli = parse().unwrap_or_else(|error| without_password(error).exit());
    let mut terminal = Terminal {
        out: io::stdout().lock(),
        err: Box::new(io::stderr()),
    };
    let result = match cli.command {
        Command::Agent(command) => command.run(&mut terminal),
        Command::Render(command) => command.run(&mut terminal),
        Command::Apply(command) => command.run(&mut terminal),
        Command::Delete(command) => command.run(&mut terminal),
        Command::Diff(command) => command.run(&mut terminal),
        Command::Get(command) => command.run(&mut terminal),
        Command::Describe(command) => command.run(&mut terminal),
        Command::Status(command) => command.run(&mut terminal),
        Command::Services(command) => command.run(&mut terminal),
        Command::Backends(command) => command.run(&mut terminal),
        Command::HealthChecks(command) => command.run(&mut terminal),
        Command::Refused(command) => command.run(&mut terminal),
        Command::Flows(command) => command.run(&mut terminal),
        Command::Events(command) => command.run(&mut terminal),
        Command::Top(command) => command.run(&mut terminal),
        Command::Trace(command) => command.run(&mut terminal),
        Command::Why(command) => command.run(&mut terminal),
        Command::Verify(command) => command.run(&mut terminal),
        Command::ConfirmDeletions(command) => command.run(&mut terminal),
        Command::Resync(command) => command.run(&mut terminal),
        Command::SupportBundle(command) => command.run(&mut terminal),
        Command::Cleanup(command) => command.run(&mut terminal),
        Command::Controller(command) => command.run(&mut terminal),
        Command::Migrate(command) => command.run(&mut terminal),
        Command::Completions(command) => command.run(&mut terminal),
        Command::Version(command) => command.run(&mut terminal),
        Command::Man(command) => command.run(Cli::command()),
        Command::Reference(command) => command.run(&mut terminal),
    };
    let result = result.and_then(|outcome| Ok(terminal.out.flush().map(|()| outcome)?));
    let code = match result {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::PartialFailure) => ExitCode::from(1),
        Ok(Outcome::Unknown) => ExitCode::from(2),
        // The reader has seen enough, as in `contiv get svc | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed there is nothing to do.
            let _ = writeln!(terminal.err, "error: {}", chain(&error));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    };
    // Writes the remaining log lines of a process.
    let _ = terminal.err.flush();
    code
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_that_is_reported_already_is_not_repeated() {
        let of_folder =
            || anyhow::anyhow!("no such file").context("failed to read /x: no such file");
        assert_eq!(chain(&of_folder()), "failed to read /x: no such file");
        assert_eq!(
            chain(&of_folder().context("no store")),
            "no store: failed to read /x: no such file"
        );
    }

    #[test]
    fn help_of_each_command_explains_its_exit_codes() {
        Cli::command().debug_assert();
        for mut command in Cli::command().get_subcommands().cloned() {
            let help = command.render_long_help().to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                help.contains("Exit codes: 0 "),
                "{}: {help}",
                command.get_name()
            );
        }
    }
}
