//! Checks of the repository: crates and modules, documents, systemd units.

mod architecture;
mod dependencies;
mod documents;
mod hosted;
mod hosts;
mod imports;
mod libraries;
mod mutants;
mod units;
mod untested;
mod words;
mod workspace;
