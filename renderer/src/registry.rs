//! Renderers by name.

use crate::{
    Renderer,
    dry_run::DryRun,
    nftables::Nftables,
    poison_isolator::PoisonIsolator,
    route::{RouteOptions, Routes},
};

/// The names that can be registered, in the order in which they are documented.
pub const NAMES: [&str; 3] = ["nftables", "route", "dry-run"];

/// What renderers are told once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Nobody else can change or remove the table of the renderer `nftables`, if the kernel can do that.
    pub own_table: bool,
    /// Of the renderer `route`.
    pub route: RouteOptions,
}

/// A new renderer by its name; none if there is no such renderer.
pub fn create(name: &str, options: Options) -> Option<Box<dyn Renderer>> {
    match name {
        "nftables" if options.own_table => Some(Box::new(PoisonIsolator::new(Nftables::owning()))),
        "nftables" => Some(Box::new(PoisonIsolator::new(Nftables::new()))),
        "route" => Some(Box::new(Routes::new(options.route))),
        "dry-run" => Some(Box::new(DryRun::new())),
        _ => None,
    }
}
