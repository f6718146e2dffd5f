//! A controller that waits for its lease.

use std::{future::pending, sync::Arc};

use contiv_store::Store;
use futures::{FutureExt, future::BoxFuture};
use tracing::Instrument;

use super::{Controller, opened::OpenedCaches, run::run};
use crate::{
    BoxError,
    runnable::{Placement, Run, Runnable, Setup},
};

impl<T: Send + Sync + 'static> Runnable for Controller<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn placement(&self) -> Placement {
        self.placement
    }

    fn managed_type(&self) -> Option<&str> {
        Some(self.managed.name())
    }

    fn watched_types(&self) -> Vec<&str> {
        self.watches.iter().map(|watch| watch.type_name()).collect()
    }

    fn prepare(self: Arc<Self>, store: &Arc<dyn Store>) -> Box<dyn Run> {
        let opened = self
            .is_warm_standby
            .then(|| OpenedCaches::new(&self, store));
        Box::new(Standby {
            controller: self,
            opened,
        })
    }
}

struct Standby<T> {
    controller: Arc<Controller<T>>,
    /// None unless the controller has a warm standby.
    opened: Option<OpenedCaches<T>>,
}

impl<T: Send + Sync + 'static> Run for Standby<T> {
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        let Some(opened) = &mut self.opened else {
            return pending().boxed();
        };
        opened.keep_synced().map(BoxError::from).boxed()
    }

    fn start(self: Box<Self>, setup: Setup) -> BoxFuture<'static, Result<(), BoxError>> {
        let span = self.controller.span.clone();
        async move { Ok(run(&self.controller, setup, self.opened).await?) }
            .instrument(span)
            .boxed()
    }
}
