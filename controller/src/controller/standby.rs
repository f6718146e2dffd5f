//! A controller that waits for its lease.

use std::{future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};
use tracing::Instrument;

use super::{Background, Controller, Environment, RunError, opened::OpenedCaches, run::run};

/// A controller of any type between two runs.
pub(crate) trait Standby: Send {
    /// Watches the types and prepares the background task if the controller has a warm standby. Returns only on failure.
    fn keep_warm(&mut self) -> BoxFuture<'_, RunError>;
    /// Runs the controller until it is stopped or fails.
    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, Result<(), RunError>>;
}

pub(super) struct StandbyController<T> {
    controller: Arc<Controller<T>>,
    /// None unless the controller has a warm standby.
    opened: Option<OpenedCaches<T>>,
    background: Option<Box<dyn Background<T>>>,
}

impl<T: Send + Sync + 'static> StandbyController<T> {
    pub(super) fn new(controller: Arc<Controller<T>>, store: &Arc<dyn Store>) -> Self {
        let opened = controller.is_warm_standby.then(|| OpenedCaches::new(&controller, store));
        let background = controller.background.as_ref().map(|make| make(store));
        Self { controller, opened, background }
    }
}

impl<T: Send + Sync + 'static> Standby for StandbyController<T> {
    fn keep_warm(&mut self) -> BoxFuture<'_, RunError> {
        let Some(opened) = &mut self.opened else { return pending().boxed() };
        let background = match &mut self.background {
            Some(background) => background.keep_warm(),
            None => pending().boxed(),
        };
        async move {
            tokio::select! {
                problem = opened.keep_warm() => problem,
                problem = background => RunError::Background(problem),
            }
        }
        .boxed()
    }

    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, Result<(), RunError>> {
        let span = self.controller.span.clone();
        async move { run(&self.controller, environment, self.opened, self.background).await }
            .instrument(span)
            .boxed()
    }
}
