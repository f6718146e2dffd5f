//! The benchmark's program for kube-runtime, with its own reflector and controller.

use std::{convert::Infallible, sync::Arc};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::{
    Config, Controller, WatchStreamExt,
    controller::Action,
    reflector,
    watcher::{self, Event},
};

use crate::{
    measure::Progress,
    source::{Source, State},
};

pub(crate) fn start(source: Source, progress: Arc<Progress>) {
    let (reader, writer) = reflector::store();
    let applied = reflector::reflector(writer, events(source)).applied_objects();
    let controller = Controller::for_stream(applied, reader).with_config(Config::default().concurrency(16));
    let runs = controller.run(reconcile, |_, error: &Infallible, _| match *error {}, progress);
    tokio::spawn(runs.for_each(|_| async {}));
}

async fn reconcile(map: Arc<ConfigMap>, progress: Arc<Progress>) -> Result<Action, Infallible> {
    let version = map.data.as_ref().and_then(|data| data.get("version"));
    progress.reconcile(version.map(String::as_str));
    Ok(Action::await_change())
}

/// The events of a kube-rs watcher: the first list, and then the changes.
fn events(source: Source) -> impl Stream<Item = watcher::Result<Event<ConfigMap>>> + Send + 'static {
    let decode =
        |state: State| serde_json::from_slice::<ConfigMap>(&state.json).expect("State::new wrote it");
    let listed = source.initial.into_iter().map(move |state| Event::InitApply(decode(state)));
    let changes = stream::unfold(source.changes, move |mut changes| async move {
        Some((Event::Apply(decode(changes.recv().await?)), changes))
    });
    stream::iter(std::iter::once(Event::Init).chain(listed).chain(std::iter::once(Event::InitDone)))
        .chain(changes)
        .map(Ok)
}
