//! Checks of the repository: crates and modules, documents, systemd units.

mod architecture;
mod documents;
mod imports;
mod mutants;
mod purity;
mod units;
mod words;
mod workspace;
