//! Creates renderers by name.

use std::sync::Arc;

use crate::{
    Renderer,
    dry_run::DryRun,
    nftables::{Nftables, StaleFlowObserver},
    poison_isolator::PoisonIsolator,
    route::{RouteOptions, Routes},
};

/// The names of all renderers, in the order of the documentation.
pub const NAMES: [&str; 3] = ["nftables", "route", "dry-run"];

/// The options of renderers.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// No other process can change or remove the table of the renderer `nftables`, if the kernel supports that.
    pub own_table: bool,
    /// The options of the renderer `route`.
    pub route: RouteOptions,
    /// Called for each search for stale flows by the renderer `nftables`.
    pub stale_flows: Option<Arc<dyn StaleFlowObserver>>,
}

/// Creates a renderer by its name; none for an unknown name.
pub fn create(name: &str, options: Options) -> Option<Box<dyn Renderer>> {
    match name {
        "nftables" => {
            let renderer = if options.own_table {
                Nftables::owning()
            } else {
                Nftables::new()
            };
            Some(Box::new(PoisonIsolator::new(
                renderer.observed_by(options.stale_flows),
            )))
        }
        "route" => Some(Box::new(Routes::new(options.route))),
        "dry-run" => Some(Box::new(DryRun::new())),
        _ => None,
    }
}
