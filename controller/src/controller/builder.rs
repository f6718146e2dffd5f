//! The builder of controllers.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::sync::{Mutex, mpsc, watch};
use tracing::Span;

use super::{
    BuildError, Context, Controller, Reconciler,
    custom_watch::{AnyCustomWatch, Channel},
    definition::{BackgroundFn, NotifyFn},
    reconciler::{ReconcileFn, erase},
    typed_watch::{AnyWatch, TypedWatch},
};
use crate::{
    BoxError,
    cache::Caches,
    mapper::Mapper,
    queue::{Debounce, RetryPolicy, TokenBucket},
    resource::{Event, Key, ResourceType},
    runnable::Placement,
};

/// The default interval of resyncs, consul's force-reconcile interval.
const RESYNC_INTERVAL: Duration = Duration::from_secs(8 * 60 * 60);

/// Builds a controller. Errors are reported by [`ControllerBuilder::build`].
pub struct ControllerBuilder<T> {
    name: String,
    managed: ResourceType<T>,
    watches: Vec<Box<dyn AnyWatch>>,
    custom_watches: Vec<Box<dyn AnyCustomWatch>>,
    reconciler: Option<ReconcileFn<T>>,
    retry: RetryPolicy,
    debounce: Option<Debounce>,
    placement: Placement,
    background: Option<BackgroundFn<T>>,
    on_start: Option<NotifyFn>,
    on_stop: Option<NotifyFn>,
    concurrency: usize,
    resync: Option<Duration>,
    is_warm_standby: bool,
    span: Span,
}

impl<T> std::fmt::Debug for ControllerBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("managed", &self.managed)
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Controller<T> {
    /// A controller of the objects of one type.
    pub fn for_type(managed: &ResourceType<T>) -> ControllerBuilder<T> {
        ControllerBuilder {
            name: managed.name().to_owned(),
            managed: managed.clone(),
            watches: Vec::new(),
            custom_watches: Vec::new(),
            reconciler: None,
            // No token bucket by default: a failing key must not delay the retries of others.
            retry: RetryPolicy {
                bucket: None,
                ..RetryPolicy::default()
            },
            debounce: None,
            placement: Placement::default(),
            background: None,
            on_start: None,
            on_stop: None,
            concurrency: 1,
            resync: Some(RESYNC_INTERVAL),
            is_warm_standby: false,
            span: Span::none(),
        }
    }
}

impl<T: Send + Sync + 'static> ControllerBuilder<T> {
    /// Sets the name used in logs, in metrics and by the manager. The default is the name of the managed type.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the span in which all of the controller runs, so that its fields are with everything that is logged there. The
    /// default is none; the runtime's own messages have the field `controller` in any case.
    #[must_use]
    pub fn with_span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    /// Sets the reconciler.
    #[must_use]
    pub fn with_reconciler(mut self, reconciler: impl Reconciler<T>) -> Self {
        self.reconciler = Some(erase(reconciler));
        self
    }

    /// Watches another type. The mapper returns the keys to reconcile for each change. Those that are not of the managed type are
    /// left out with an error in the log: the reconciler would take them for deleted objects.
    #[must_use]
    pub fn with_watch<U: Send + Sync + 'static>(
        self,
        watched: &ResourceType<U>,
        mapper: Mapper<U>,
    ) -> Self {
        self.with_watch_of(watched, |_| true, mapper)
    }

    /// Like [`Self::with_watch`], but only events that pass the filter are mapped; the others only update the cache.
    #[must_use]
    pub fn with_watch_of<U: Send + Sync + 'static>(
        mut self,
        watched: &ResourceType<U>,
        is_relevant: impl Fn(&Event<U>) -> bool + Send + Sync + 'static,
        mapper: Mapper<U>,
    ) -> Self {
        let (resource_type, is_relevant) = (watched.clone(), Arc::new(is_relevant));
        self.watches.push(Box::new(TypedWatch {
            resource_type,
            is_relevant,
            mapper,
        }));
        self
    }

    /// Watches a channel. The mapper returns the keys to reconcile for each event, as of [`Self::with_watch`]. Its errors and
    /// panics are retried with a back-off.
    #[must_use]
    pub fn with_custom_watch<E: Send + 'static, Error: Into<BoxError>>(
        mut self,
        events: mpsc::Receiver<E>,
        mapper: impl Fn(&Caches, &E) -> Result<Vec<Key>, Error> + Send + Sync + 'static,
    ) -> Self {
        let mapper =
            Arc::new(move |caches: &Caches, event: &E| mapper(caches, event).map_err(Into::into));
        self.custom_watches.push(Box::new(Channel {
            events: Arc::new(Mutex::new(events)),
            mapper,
        }));
        self
    }

    /// Sets the back-off of failed keys: `base` at first, doubled after each failure, at most `max_delay`. The default is 5 ms to
    /// 1,000 s.
    #[must_use]
    pub fn with_backoff(mut self, base: Duration, max_delay: Duration) -> Self {
        (self.retry.base, self.retry.max_delay) = (base, max_delay);
        self
    }

    /// Sets how often a failed key is retried before it is dropped until the next change or resync. By default retries never
    /// stop.
    #[must_use]
    pub fn with_retry_budget(mut self, budget: u32) -> Self {
        self.retry.budget = Some(budget);
        self
    }

    /// Limits the retries of all keys together.
    #[must_use]
    pub fn with_retry_bucket(mut self, bucket: TokenBucket) -> Self {
        self.retry.bucket = Some(bucket);
        self
    }

    /// Debounces keys: changes within a short time lead to one run.
    #[must_use]
    pub fn with_debounce(mut self, debounce: Debounce) -> Self {
        self.debounce = Some(debounce);
        self
    }

    /// Sets where the controller runs. The default is a singleton.
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Adds a task that runs concurrently with the reconcilers. It starts before the caches are filled and must end when
    /// [`Context::stop`] is cancelled: it is awaited as long as the [grace period](crate::Manager::with_grace_period) of the
    /// manager, and not at all once the lease is lost; then it is dropped at its next await point. If it fails, the controller is restarted.
    #[must_use]
    pub fn with_background<F>(
        mut self,
        task: impl Fn(Context<T>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.background = Some(Arc::new(move |context| task(context).boxed()));
        self
    }

    /// Sets a callback for each start, called before anything else.
    #[must_use]
    pub fn on_start(mut self, notify: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(notify));
        self
    }

    /// Sets a callback for each end, called after everything has stopped.
    #[must_use]
    pub fn on_stop(mut self, notify: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_stop = Some(Arc::new(notify));
        self
    }

    /// Sets how many keys may be reconciled at the same time. The default is 1.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets how often every object is reconciled without a change, less a jitter of up to 20 %; none disables resyncs. The
    /// default is 8 h.
    #[must_use]
    pub fn with_resync(mut self, interval: Option<Duration>) -> Self {
        self.resync = interval;
        self
    }

    /// Watches the types while waiting for the lease too, so that the controller starts with full caches. It costs the memory
    /// and the watches of a second instance, but a takeover lists nothing.
    #[must_use]
    pub fn with_warm_standby(mut self) -> Self {
        self.is_warm_standby = true;
        self
    }

    /// Builds the controller.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Controller<T>, BuildError> {
        let managed = || self.managed.name().to_owned();
        let limits = |problem| BuildError::Limits {
            managed: managed(),
            problem,
        };
        if self.concurrency == 0 {
            return Err(limits(
                "nothing is reconciled with a concurrency of 0; use 1 or more",
            ));
        }
        if self.retry.base > self.retry.max_delay {
            return Err(limits(
                "the first back-off is longer than the maximum; swap them",
            ));
        }
        if self
            .retry
            .bucket
            .is_some_and(|bucket| bucket.per_second <= 0.0 || bucket.burst == 0)
        {
            return Err(limits(
                "the retry bucket never holds a token; use a rate above 0 and a burst of 1 or more",
            ));
        }
        if self.resync.is_some_and(|interval| interval.is_zero()) {
            return Err(limits(
                "a resync every 0 s never rests; use a longer interval, or None for no resync",
            ));
        }
        let Some(reconciler) = self.reconciler else {
            return Err(BuildError::NoReconciler { managed: managed() });
        };
        let mut types = BTreeSet::from([self.managed.name()]);
        if let Some(twice) = self
            .watches
            .iter()
            .find(|watch| !types.insert(watch.type_name()))
        {
            return Err(BuildError::DuplicateWatch {
                managed: managed(),
                watched: twice.type_name().to_owned(),
            });
        }
        let watched = self
            .watches
            .iter()
            .map(|watch| (watch.type_name(), watch.duplicate_index()));
        let managed_index = (self.managed.name(), self.managed.duplicate_index());
        for (resource_type, index) in watched.chain([managed_index]) {
            if let Some(index) = index {
                return Err(BuildError::DuplicateIndex {
                    resource_type: resource_type.to_owned(),
                    index: index.to_owned(),
                });
            }
        }
        Ok(Controller {
            name: self.name,
            managed: self.managed,
            watches: self.watches,
            custom_watches: self.custom_watches,
            reconciler,
            retry: self.retry,
            debounce: self.debounce,
            placement: self.placement,
            background: self.background,
            on_start: self.on_start,
            on_stop: self.on_stop,
            concurrency: self.concurrency,
            resync: self.resync,
            is_warm_standby: self.is_warm_standby,
            span: self.span,
            cache: watch::Sender::new(None),
        })
    }
}
