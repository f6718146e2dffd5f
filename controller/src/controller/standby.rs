//! A controller that waits for its lease.

use std::{future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};
use tracing::Instrument;

use super::{Controller, Environment, RunError, opened::OpenedCaches, run::run};

/// A controller of any type, or a runnable, between two runs.
pub(crate) trait Standby: Send {
    /// Prepares the next run, as watching the types of a controller with a warm standby. Returns only on failure.
    fn keep_warm(&mut self) -> BoxFuture<'_, RunError>;
    /// Runs the controller until it is stopped or fails.
    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, Result<(), RunError>>;
}

pub(super) struct StandbyController<T> {
    controller: Arc<Controller<T>>,
    /// None unless the controller has a warm standby.
    opened: Option<OpenedCaches<T>>,
}

impl<T: Send + Sync + 'static> StandbyController<T> {
    pub(super) fn new(controller: Arc<Controller<T>>, store: &Arc<dyn Store>) -> Self {
        let opened = controller.is_warm_standby.then(|| OpenedCaches::new(&controller, store));
        Self { controller, opened }
    }
}

impl<T: Send + Sync + 'static> Standby for StandbyController<T> {
    fn keep_warm(&mut self) -> BoxFuture<'_, RunError> {
        let Some(opened) = &mut self.opened else { return pending().boxed() };
        opened.keep_warm().boxed()
    }

    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, Result<(), RunError>> {
        let span = self.controller.span.clone();
        async move { run(&self.controller, environment, self.opened).await }.instrument(span).boxed()
    }
}
