//! A controller of whatever type.

use std::sync::Arc;

use contiv_store::Store;

use super::{Controller, Placement, Standby, standby::StandbyController};

/// A controller of any type.
pub(crate) trait AnyController: std::fmt::Display + Send + Sync {
    fn name(&self) -> &str;
    /// The type whose objects it reconciles, if it is a controller of keys.
    fn managed_type(&self) -> Option<&str>;
    fn watched_types(&self) -> Vec<&str>;
    fn placement(&self) -> Placement;
    /// The standby from which the next run is started.
    fn stand_by(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Standby>;
}

impl<T: Send + Sync + 'static> AnyController for Controller<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn managed_type(&self) -> Option<&str> {
        Some(self.managed.name())
    }

    fn watched_types(&self) -> Vec<&str> {
        self.watches.iter().map(|watch| watch.type_name()).collect()
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn stand_by(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Standby> {
        Box::new(StandbyController::new(self, store))
    }
}
