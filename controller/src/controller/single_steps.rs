//! The steps of a controller, one at a time.

use std::collections::BTreeSet;

use tracing::Instrument;

use super::{
    Context, Controller, Outcome, RunError, opened::OpenedCaches, typed_watch::TypedWatch,
    worker::reconcile,
};
use crate::{
    BoxError,
    mapper::Mapper,
    resource::{Key, ResourceType},
    runnable::Setup,
};

impl<T: Send + Sync + 'static> Controller<T> {
    /// A context whose caches hold the current content of the store. Nothing is started.
    pub(crate) async fn context(&self, setup: Setup) -> Result<Context<T>, RunError> {
        let mut opened = OpenedCaches::new(self, &setup.store);
        opened.wait_for_sync().await?;
        let context = Context::new(setup, opened.cache, opened.caches);
        context.first_pass().begin(BTreeSet::new());
        Ok(context)
    }

    /// Runs the reconciler once, in the span of the controller.
    pub(crate) async fn reconcile_once(
        &self,
        context: Context<T>,
        key: Key,
    ) -> Result<Outcome, BoxError> {
        let unreadable = context.cache().view().unreadable(&key).map(str::to_owned);
        if let Some(problem) = unreadable {
            return Err(format!("{key} cannot be read, so it is not reconciled: {problem}").into());
        }
        reconcile(&self.reconciler, context, key)
            .instrument(self.span.clone())
            .await
    }

    /// The mapper of a watched type; none if the type is not watched.
    pub(crate) fn mapper_of<U: 'static>(&self, watched: &ResourceType<U>) -> Option<Mapper<U>> {
        let watch = self
            .watches
            .iter()
            .find(|watch| watch.type_name() == watched.name())?;
        watch
            .as_any()
            .downcast_ref::<TypedWatch<U>>()
            .map(|watch| watch.mapper.clone())
    }
}
