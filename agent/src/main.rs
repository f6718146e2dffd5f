//! The `contiv` binary. Everything is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    contiv_agent::cli::main()
}
