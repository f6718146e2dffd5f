//! One run of a controller, from the start to the end of the background task.

use std::sync::Arc;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Context, Controller, RunError, map_loop::Requests, opened::OpenedCaches, worker::Worker,
};
use crate::{BoxError, queue::WorkQueue, reflector::Reflector, resource::Event, runnable::Setup};

/// Runs a controller until it is stopped or fails. Continues with the caches of the standby, if there are any (`opened`).
pub(super) async fn run<T: Send + Sync + 'static>(
    controller: &Controller<T>,
    setup: Setup,
    opened: Option<OpenedCaches<T>>,
) -> Result<(), RunError> {
    let Setup { stop, abort, .. } = &setup;
    let opened = opened.unwrap_or_else(|| OpenedCaches::new(controller, &setup.store));
    let context = Context::new(setup.clone(), opened.cache.clone(), opened.caches.clone());
    controller.cache.send_replace(Some(context.cache().clone()));

    if let Some(on_start) = &controller.on_start {
        on_start();
    }
    let mut background = JoinSet::new();
    if let Some(task) = &controller.background {
        background
            .spawn(run_unless_cancelled(abort.clone(), task(context.clone())).in_current_span());
    }
    let failed = CancellationToken::new();
    let work = reconcile_all(controller, &setup, &failed, context, opened);
    tokio::pin!(work);
    let result = tokio::select! {
        result = &mut work => result,
        Err(error) = ended(&mut background) => {
            failed.cancel();
            stop.cancel();
            work.await.and(Err(error))
        }
    };
    // The first task that ends stops the others.
    stop.cancel();
    let background = ended(&mut background).await;
    controller.cache.send_replace(None);
    if let Some(on_stop) = &controller.on_stop {
        on_stop();
    }
    result.and(background)
}

/// Waits until the background task fails. A task that ended without an error does not end the run.
async fn ended(background: &mut JoinSet<Option<Result<(), BoxError>>>) -> Result<(), RunError> {
    match background.join_next().await {
        Some(Err(panic)) => Err(RunError::Panicked(panic)),
        Some(Ok(Some(Err(error)))) => Err(RunError::Background(error)),
        Some(Ok(Some(Ok(())) | None)) | None => Ok(()),
    }
}

async fn run_unless_cancelled<F: Future>(
    cancelled: CancellationToken,
    future: F,
) -> Option<F::Output> {
    cancelled.run_until_cancelled(future).await
}

/// Fills the caches, then maps and reconciles until stopped. Then the queue is drained, as by client-go's `ShutDownWithDrain`:
/// its waiting keys are reconciled until the work is aborted. After a failure (`failed`) they are not: the next run lists them.
async fn reconcile_all<T: Send + Sync + 'static>(
    controller: &Controller<T>,
    setup: &Setup,
    failed: &CancellationToken,
    context: Context<T>,
    mut opened: OpenedCaches<T>,
) -> Result<(), RunError> {
    // Nothing is mapped or reconciled before all caches are filled.
    let synced = opened.wait_for_sync();
    let Some(synced) = setup.stop.run_until_cancelled(synced).await else {
        return Ok(());
    };
    synced?;
    let OpenedCaches {
        managed, watches, ..
    } = opened;

    let metrics = setup.metrics.as_ref();
    let queue = WorkQueue::with(&controller.name, controller.retry.clone(), metrics);
    setup
        .queues
        .lock()
        .insert(controller.name.clone(), queue.clone());
    let prefix = controller.managed.prefix().into();
    let requests = Requests {
        queue: queue.clone(),
        debounce: controller.debounce,
        prefix,
    };
    for object in context.cache().view().iter() {
        queue.add(Arc::clone(&object.key));
    }

    let mut sources = JoinSet::new();
    sources.spawn(
        enqueue_managed(managed, context.clone(), requests.clone())
            .map(move |()| None)
            .in_current_span(),
    );
    for watch in watches {
        let run = watch.run(context.caches().clone(), requests.clone());
        sources.spawn(run.map(Result::err).in_current_span());
    }
    for watch in &controller.custom_watches {
        let run = watch.run(context.caches().clone(), requests.clone());
        sources.spawn(run.map(Result::err).in_current_span());
    }
    let mut workers = JoinSet::new();
    for _ in 0..controller.concurrency {
        workers.spawn(
            Worker::new(controller, &queue, &context)
                .run(setup.abort.clone())
                .in_current_span(),
        );
    }
    let result = tokio::select! {
        biased;
        () = failed.cancelled() => Ok(()),
        () = setup.stop.cancelled() => {
            // The sources keep running meanwhile: a reconciler may wait until the cache has its own writes.
            setup.abort.run_until_cancelled(queue.drain()).await;
            Ok(())
        }
        Some(ended_source) = sources.join_next() => Err(match ended_source {
            Err(panic) => RunError::Panicked(panic),
            Ok(error) => error.unwrap_or_else(|| RunError::ReflectorEnded {
                resource_type: controller.managed.name().to_owned(),
            }),
        }),
    };
    queue.shut_down();
    sources.shutdown().await;
    while let Some(worker) = workers.join_next().await {
        worker.map_err(RunError::Panicked)?;
    }
    result
}

/// Requests the keys of every event of the managed type. Returns when the type can no longer be watched.
async fn enqueue_managed<T: Send + Sync + 'static>(
    mut reflector: Reflector<T>,
    context: Context<T>,
    requests: Requests,
) {
    let mut unreadable = context.cache().view().unreadable_keys();
    while let Some(events) = reflector.next().await {
        // An object that was never readable has no event for its deletion, so its key is requested here.
        let before = std::mem::replace(&mut unreadable, context.cache().view().unreadable_keys());
        for key in before.difference(&unreadable) {
            requests.add(Arc::clone(key));
        }
        for event in events {
            if let Event::Deleted(object) = &event {
                context.deleted_objects().insert(object);
            }
            requests.add(Arc::clone(event.key()));
        }
    }
}
