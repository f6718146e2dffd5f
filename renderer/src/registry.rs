//! Creates renderers by name.

use crate::{
    Renderer,
    dry_run::DryRun,
    nftables::Nftables,
    poison_isolator::PoisonIsolator,
    route::{RouteOptions, Routes},
};

/// The names of all renderers, in the order of the documentation.
pub const NAMES: [&str; 3] = ["nftables", "route", "dry-run"];

/// The options of renderers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// No other process can change or remove the table of the renderer `nftables`, if the kernel supports that.
    pub own_table: bool,
    /// The options of the renderer `route`.
    pub route: RouteOptions,
}

/// Creates a renderer by its name; none for an unknown name.
pub fn create(name: &str, options: Options) -> Option<Box<dyn Renderer>> {
    match name {
        "nftables" if options.own_table => Some(Box::new(PoisonIsolator::new(Nftables::owning()))),
        "nftables" => Some(Box::new(PoisonIsolator::new(Nftables::new()))),
        "route" => Some(Box::new(Routes::new(options.route))),
        "dry-run" => Some(Box::new(DryRun::new())),
        _ => None,
    }
}
