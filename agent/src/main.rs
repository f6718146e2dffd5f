//! The `contiv` binary. Everything is in the library of this crate.

use std::process::ExitCode;

use contiv_allocator as _;

fn main() -> ExitCode {
    contiv_agent::cli::main()
}
