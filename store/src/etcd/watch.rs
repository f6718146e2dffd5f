//! What changes after a revision, without a gap.

use bytes::Bytes;
use etcd_client::{GetOptions, ResponseHeader, WatchOptions, WatchResponse, proto::PbEvent};
use futures::{StreamExt, stream};

use super::{list::key_text, member::Member};
use crate::{Batch, Change, Entry, StoreError, WatchEvent, WatchStream};

/// `DELETE` of etcd's `mvccpb.Event.EventType`.
const DELETE: i32 = 1;

/// Opens a watch on everything below `prefix` that changes after `revision`.
pub(super) async fn watch(member: &Member, prefix: &str, revision: i64) -> Result<WatchStream, StoreError> {
    let options = match prefix {
        "" => WatchOptions::new().with_all_keys(),
        _ => WatchOptions::new().with_prefix(),
    }
    // One revision that the reader has already: after a compaction at the next one, etcd (3.4.23, for one) still takes a
    // watch that begins there, but has forgotten what was deleted there. A watch that begins before is refused.
    .with_start_revision(revision.max(1))
    .with_progress_notify()
    .with_fragment();
    let mut client = member.watches();
    let action = format!("watch {prefix}");
    let mut responses = member.request(&action, client.watch(prefix, Some(options))).await?;

    let created = member
        .request(&action, responses.message())
        .await?
        .ok_or_else(|| member.unavailable("the watch was closed before it began".to_owned()))?;
    refuse_canceled(member, &action, &created, revision)?;
    let newest = created.header().map_or(0, ResponseHeader::revision);
    if newest < revision {
        refuse_rewound(member, revision).await?;
    }

    let watch = Watch { member: member.clone(), action, responses, known: revision, revision };
    Ok(stream::try_unfold(watch, |mut watch| async move {
        let batch = watch.next().await?;
        Ok(Some((WatchEvent::Changed(batch), watch)))
    })
    .boxed())
}

struct Watch {
    member: Member,
    action: String,
    responses: etcd_client::WatchStream,
    /// What the reader had when the watch began; up to here there is nothing to tell.
    known: i64,
    /// The newest one that the reader has.
    revision: i64,
}

impl Watch {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        let mut changes = Vec::new();
        loop {
            let response = match self.responses.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return Err(self.member.unavailable("the watch was closed".to_owned())),
                Err(error) => {
                    return Err(super::failure::map(&self.member.endpoint, &self.action, error));
                }
            };
            refuse_canceled(&self.member, &self.action, &response, self.revision)?;
            let response = response.0;
            if response.events.is_empty() && changes.is_empty() {
                // A progress notification: everything up to this revision has been sent.
                self.revision = response.header.map_or(0, |header| header.revision).max(self.revision);
                return Ok(Batch { revision: self.revision, changes });
            }
            for event in response.events {
                let revision = event.kv.as_ref().map_or(0, |pair| pair.mod_revision);
                if revision > self.known {
                    self.revision = revision.max(self.revision);
                    changes.extend(change(event));
                }
            }
            if !response.fragment && !changes.is_empty() {
                return Ok(Batch { revision: self.revision, changes });
            }
        }
    }
}

fn change(event: PbEvent) -> Option<Change> {
    let pair = event.kv?;
    let key = key_text(pair.key);
    Some(if event.r#type == DELETE {
        Change::Delete { key }
    } else {
        let (create_revision, mod_revision) = (pair.create_revision, pair.mod_revision);
        Change::Put(Entry { key, value: Bytes::from(pair.value), create_revision, mod_revision })
    })
}

fn refuse_canceled(
    member: &Member,
    action: &str,
    response: &WatchResponse,
    revision: i64,
) -> Result<(), StoreError> {
    if !response.canceled() {
        return Ok(());
    }
    Err(match (response.compact_revision(), response.cancel_reason()) {
        (oldest, _) if oldest > 0 => StoreError::Compacted { requested: revision + 1, oldest },
        (_, reason) if reason.contains("permission denied") => {
            StoreError::Refused { action: action.to_owned(), reason: reason.to_owned() }
        }
        (_, reason) => member.unavailable(format!("the watch was canceled: {reason}")),
    })
}

/// A member that lags behind is no reason to list again; a whole cluster at an older revision is. Only a read that all
/// members agree on can tell.
async fn refuse_rewound(member: &Member, revision: i64) -> Result<(), StoreError> {
    let mut kv = member.kv();
    let options = GetOptions::new().with_count_only();
    let answer = member.request("read the revision", kv.get("/", Some(options))).await?;
    let newest = answer.header().map_or(0, ResponseHeader::revision);
    if newest < revision { Err(StoreError::Rewound { requested: revision, newest }) } else { Ok(()) }
}
