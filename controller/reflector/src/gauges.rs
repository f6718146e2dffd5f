//! The controller of the key where Contiv keeps what its reflectors have counted.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use contiv_controller::{
    BoxError, BuildError, Context, Controller, Key, Outcome, ResourceType, queue::Debounce,
};
use contiv_proto::{Kind, key::ROOT};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::stats::{Counts, Stats};

/// Below the root of all objects: where what was counted is.
pub const GAUGES: &str = "status/gauges";

/// Not more often than that, however much happens.
const DEBOUNCE: Debounce = Debounce {
    quiet: Duration::from_secs(1),
    max_delay: Duration::from_secs(5),
};

/// Contiv's `ksrapi.Stats`; endpoint slices are new.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are Contiv's")]
struct Gauges {
    namespace_stats: Counts,
    pod_stats: Counts,
    endpoints_stats: Counts,
    service_stats: Counts,
    node_stats: Counts,
    endpoint_slice_stats: Counts,
}

/// A controller that writes the counters to the store, some time after each change.
///
/// # Errors
/// Never: this configuration is valid.
pub fn gauges(stats: &Stats) -> Result<Controller<Bytes>, BuildError> {
    let (notifier, changes) = mpsc::channel(1);
    let watched = stats.clone();
    let gauges = ResourceType::new("gauges", &format!("{ROOT}{GAUGES}"), |entry| {
        Ok::<_, Infallible>(entry.value.clone())
    });
    let key: Key = gauges.prefix().into();
    let stats = stats.clone();
    Controller::for_type(&gauges)
        .named("reflector-gauges")
        .with_debounce(DEBOUNCE)
        .with_custom_watch(changes, move |_, ()| {
            Ok::<_, Infallible>(vec![Arc::clone(&key)])
        })
        .with_background(move |context: Context<Bytes>| {
            let (notifier, mut changes) = (notifier.clone(), watched.changes());
            let stop = context.stop().clone();
            let notify = async move {
                // Also for counts from before this start.
                changes.mark_changed();
                while changes.changed().await.is_ok() {
                    // One pending notification is enough.
                    let _ = notifier.try_send(());
                }
            };
            async move {
                stop.run_until_cancelled(notify).await;
                Ok(())
            }
        })
        .with_warm_standby()
        .with_reconciler(move |context: Context<Bytes>, key: Key| {
            let value = stats.value();
            async move { write(&context, &key, value?).await }
        })
        .build()
}

async fn write(context: &Context<Bytes>, key: &Key, value: Vec<u8>) -> Result<Outcome, BoxError> {
    match context.cache().get(key) {
        None => context.writer().create(key, value).await?,
        Some(stored) if stored.value == value => {}
        Some(stored) => context.writer().update(&stored, value).await?,
    }
    Ok(Outcome::Done)
}

impl Stats {
    fn value(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Gauges {
            namespace_stats: self.counts(Kind::Namespace),
            pod_stats: self.counts(Kind::Pod),
            endpoints_stats: self.counts(Kind::Endpoints),
            service_stats: self.counts(Kind::Service),
            node_stats: self.counts(Kind::Node),
            endpoint_slice_stats: self.counts(Kind::EndpointSlice),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;

    #[test]
    fn counters_are_written_in_contivs_format() {
        let stats = Stats::default();
        stats.count_write(Kind::Pod, Action::Add);
        stats.count_write(Kind::Pod, Action::Add);
        stats.count_failure(Kind::Service, Action::Update);
        stats.count_resync(Kind::Service);
        let text = String::from_utf8(stats.value().unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"namespaceStats":{},"podStats":{"Adds":"2"},"endpointsStats":{},"#.to_owned()
                + r#""serviceStats":{"Resyncs":"1","UpdErrors":"1"},"nodeStats":{},"endpointSliceStats":{}}"#
        );
    }
}
