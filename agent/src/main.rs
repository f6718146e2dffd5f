//! The `contiv` binary.
fn main() {}
