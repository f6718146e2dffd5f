//! The `contiv` binary. Everything is in the library of this crate.

use std::process::ExitCode;

/// Returns memory that only the first snapshot needed to the system, by its own thread. The C library's allocator would keep
/// it. Configured in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    contiv_agent::cli::main()
}
