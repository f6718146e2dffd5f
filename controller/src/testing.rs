//! A controller without its loops, for tests of controllers.

use std::{collections::BTreeSet, fmt, sync::Arc};

use contiv_store::Store;

use crate::{
    BoxError,
    cache::CacheError,
    controller::{Context, Controller, Outcome, RunError},
    resource::{Key, ResourceType},
    runnable::Setup,
};

/// Runs a controller's reconciler on demand, and returns the keys that its mappers would request.
///
/// Each call sees the store as it is at that moment. The initializer, background task, queue and workers do not run.
///
/// ```
/// use contiv_controller::{
///     Context, Controller, Key, Outcome, ResourceType, testing::TestController,
/// };
/// use contiv_store::{Operation, Store};
/// use contiv_store_testing::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let names = ResourceType::new("name", "/names/", |entry| String::from_utf8(entry.value.to_vec()));
/// let copying = Controller::for_type(&names)
///     .with_reconciler(|context: Context<String>, key: Key| async move {
///         let name = context.cache().get(&key).ok_or("gone")?;
///         context.writer().create(&"/copy".into(), name.value.clone()).await?;
///         Ok(Outcome::Done)
///     })
///     .build()?;
///
/// let store = MemoryStore::new();
/// store.commit(vec![Operation::Put { key: "/names/1".into(), value: "Ada".into() }]).await?;
/// let mut controller = TestController::new(copying, store.shared());
/// assert_eq!(controller.reconcile("/names/1").await?, Outcome::Done);
/// assert_eq!(store.list("/copy").await?.entries[0].value, "Ada");
/// # Ok(())
/// # }
/// ```
pub struct TestController<T> {
    controller: Controller<T>,
    setup: Setup,
    /// The context of the last call.
    last: Option<Context<T>>,
}

impl<T> fmt::Debug for TestController<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestController")
            .field(&self.controller)
            .finish()
    }
}

impl<T: Send + Sync + 'static> TestController<T> {
    /// Creates a test controller over a store.
    pub fn new(controller: Controller<T>, store: Arc<dyn Store>) -> Self {
        Self {
            controller,
            setup: Setup::new(store, None),
            last: None,
        }
    }

    /// The current context of the reconciler, with the first pass complete. Objects that existed at the last call and are now
    /// deleted have a last known state.
    ///
    /// # Errors
    /// When the store can no longer be watched.
    pub async fn context(&mut self) -> Result<Context<T>, RunError> {
        let context = self.controller.context(self.setup.clone()).await?;
        for object in self.last.iter().flat_map(|last| last.cache().list()) {
            if context.cache().get(&object.key).is_none() {
                context.deleted_objects().insert(&object);
            }
        }
        self.last = Some(context.clone());
        Ok(context)
    }

    /// Reconciles one key once. A panic is an error, as in a manager.
    ///
    /// # Errors
    /// The errors of the reconciler.
    pub async fn reconcile(&mut self, key: &str) -> Result<Outcome, BoxError> {
        let context = self.context().await?;
        self.controller.reconcile_once(context, key.into()).await
    }

    /// The keys that the mapper of a watched type returns for one of its objects, which must be in the store.
    ///
    /// # Errors
    /// The errors of the mapper; when the type is not watched; when there is no such object.
    pub async fn dry_run_mapper<U: Send + Sync + 'static>(
        &mut self,
        watched: &ResourceType<U>,
        key: &str,
    ) -> Result<BTreeSet<Key>, BoxError> {
        let not_watched = || CacheError::NotWatched {
            resource_type: watched.name().to_owned(),
        };
        let mapper = self.controller.mapper_of(watched).ok_or_else(not_watched)?;
        let context = self.context().await?;
        let object = context
            .cache_of(watched)?
            .get(key)
            .ok_or_else(|| format!("there is no {key}"))?;
        mapper.map_all(context.caches(), [&object])
    }
}

#[cfg(test)]
mod tests {
    use contiv_store_testing::MemoryStore;

    use super::*;
    use crate::{
        Mapper,
        test_support::{delete, put, texts},
    };

    fn controller() -> Controller<String> {
        let watched = texts("w");
        Controller::for_type(&texts("t"))
            .with_watch(&watched, Mapper::replace_type(&watched, &texts("t")))
            .with_reconciler(|context: Context<String>, key: Key| async move {
                assert!(context.first_pass().is_done());
                match (context.cache().get(&key), context.last_known(&key)) {
                    (Some(object), _) if object.value == "panic" => panic!("test error"),
                    (Some(_), _) => Ok(Outcome::RequeueNow),
                    (None, Some(_)) => Ok(Outcome::Done),
                    (None, None) => Err("never heard of it".into()),
                }
            })
            .build()
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_sees_store_as_it_is() {
        let store = MemoryStore::new();
        let mut controller = TestController::new(controller(), store.shared());
        assert!(
            controller
                .reconcile("/t/1")
                .await
                .unwrap_err()
                .to_string()
                .contains("never heard")
        );
        put(&store, "/t/1", "x").await;
        assert_eq!(
            controller.reconcile("/t/1").await.unwrap(),
            Outcome::RequeueNow
        );
        delete(&store, "/t/1").await;
        assert_eq!(controller.reconcile("/t/1").await.unwrap(), Outcome::Done);
        put(&store, "/t/1", "panic").await;
        let error = controller.reconcile("/t/1").await.unwrap_err().to_string();
        assert_eq!(error, "it panicked: test error");
    }

    /// consul's cached client: what was written shows, what was refused does not.
    #[tokio::test(start_paused = true)]
    async fn next_call_sees_what_was_written() {
        let writing = Controller::for_type(&texts("t"))
            .with_reconciler(|context: Context<String>, key: Key| async move {
                match context.cache().get(&key) {
                    None => context.writer().create(&key, "created").await?,
                    Some(object) if object.value == "created" => {
                        context.writer().update(&object, "updated").await?;
                    }
                    Some(object) => context.writer().delete(&object).await?,
                }
                Ok(Outcome::Done)
            })
            .build()
            .unwrap();
        let store = MemoryStore::new();
        let mut controller = TestController::new(writing, store.shared());
        for expected in [Some("created"), Some("updated"), None] {
            controller.reconcile("/t/1").await.unwrap();
            let seen = controller.context().await.unwrap().cache().get("/t/1");
            assert_eq!(seen.as_ref().map(|object| object.value.as_str()), expected);
        }
        let before = controller.context().await.unwrap();
        put(&store, "/t/1", "of another writer").await;
        assert!(
            before
                .writer()
                .create(&"/t/1".into(), "refused")
                .await
                .is_err()
        );
        let seen = controller
            .context()
            .await
            .unwrap()
            .cache()
            .get("/t/1")
            .unwrap();
        assert_eq!(seen.value, "of another writer");
    }

    #[tokio::test(start_paused = true)]
    async fn reconciler_runs_in_the_span_of_its_controller() {
        let _guard = tracing::subscriber::set_default(
            tracing_subscriber::fmt()
                .with_writer(std::io::sink)
                .finish(),
        );
        let controller = Controller::for_type(&texts("t"))
            .with_span(tracing::info_span!("demo"))
            .with_reconciler(|_: Context<String>, _: Key| async {
                let span = tracing::Span::current()
                    .metadata()
                    .map(tracing::Metadata::name);
                if span == Some("demo") {
                    Ok(Outcome::Done)
                } else {
                    Err(format!("runs in {span:?}").into())
                }
            })
            .build()
            .unwrap();
        let mut controller = TestController::new(controller, MemoryStore::new().shared());
        assert_eq!(controller.reconcile("/t/1").await.unwrap(), Outcome::Done);
    }

    #[tokio::test(start_paused = true)]
    async fn mapper_is_tried_without_run() {
        let store = MemoryStore::new();
        put(&store, "/w/1", "x").await;
        let mut controller = TestController::new(controller(), store.shared());
        let keys = controller
            .dry_run_mapper(&texts("w"), "/w/1")
            .await
            .unwrap();
        assert_eq!(keys, BTreeSet::from(["/t/1".into()]));
        assert!(
            controller
                .dry_run_mapper(&texts("w"), "/w/2")
                .await
                .is_err()
        );
        let error = controller
            .dry_run_mapper(&texts("v"), "/v/1")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("does not watch v"), "{error}");
    }
}
