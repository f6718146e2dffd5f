//! The `contiv` binary. Everything is in the library of this crate.

use std::process::ExitCode;

/// Gives back what the first snapshot needed and nothing needs any more, which the C library's allocator keeps for every
/// thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    contiv_agent::cli::main()
}
