//! A watch of the store in memory.

use contiv_store::{StoreError, WatchEvent, WatchStream};
use futures::{StreamExt, stream};
use tokio::{sync::watch, time::sleep_until};

use super::client::{MemoryStore, unreachable};

/// An open watch.
pub(super) struct Watch {
    store: MemoryStore,
    prefix: String,
    /// The newest revision that the reader has received.
    revision: i64,
    changed: watch::Receiver<()>,
    breaks: watch::Receiver<()>,
    is_cut: watch::Receiver<bool>,
}

impl Watch {
    pub(super) fn new(store: MemoryStore, prefix: &str, revision: i64) -> Self {
        let changed = store.shared.changed.subscribe();
        let (breaks, is_cut) = (store.wire.breaks.subscribe(), store.wire.is_cut.subscribe());
        Self {
            store,
            prefix: prefix.to_owned(),
            revision,
            changed,
            breaks,
            is_cut,
        }
    }

    pub(super) fn into_stream(self) -> WatchStream {
        stream::try_unfold(self, |mut watch| async move {
            let event = watch.next().await?;
            Ok(Some((event, watch)))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            self.changed.mark_unchanged();
            if *self.is_cut.borrow() {
                return Err(unreachable());
            }
            let (batch, next_end) = self
                .store
                .with(|state, _| (state.after(&self.prefix, self.revision), state.next_end()));
            if let Some(batch) = batch? {
                self.store.break_by_chance(&self.prefix)?;
                self.store.shared.chance.delay().await;
                self.revision = batch.revision;
                return Ok(WatchEvent::Changed(batch));
            }
            let lease_ends = async {
                match next_end {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.changed.changed() => {}
                _ = self.is_cut.changed() => {}
                _ = self.breaks.changed() => return Err(unreachable()),
                () = lease_ends => {}
            }
        }
    }
}
