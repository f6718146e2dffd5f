//! Renderers by name.

use crate::{Renderer, dry_run::DryRun, nftables::Nftables};

/// The names that can be registered, in the order in which they are documented.
pub const NAMES: [&str; 2] = ["nftables", "dry-run"];

/// A new renderer by its name; none if there is no such renderer.
pub fn create(name: &str) -> Option<Box<dyn Renderer>> {
    match name {
        "nftables" => Some(Box::new(Nftables::new())),
        "dry-run" => Some(Box::new(DryRun::new())),
        _ => None,
    }
}
