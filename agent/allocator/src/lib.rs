//! The allocator of the `contiv` binary, and of the programs that measure it: jemalloc with one arena, which returns unused
//! memory to the system after a second. The C library's allocator would keep what only the first snapshot needed.
//!
//! A program takes it by `use contiv_allocator as _;`.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
