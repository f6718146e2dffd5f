//! The `contiv` binary. Everything is in the library of this crate.

use std::process::ExitCode;

/// Gives back to the system, by a thread of its own, what the first snapshot needed and nothing needs any more. The C
/// library's allocator keeps it. Set up in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    contiv_agent::cli::main()
}
