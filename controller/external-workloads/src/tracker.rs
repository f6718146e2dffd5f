//! Tracks the writes to the slices of each service: a cache without them is too old for planning. Kubernetes'
//! `EndpointSliceTracker`, with the store's revisions instead of generations.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contiv_controller::{BoxError, Cache, Event, Key};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::slice::StoredSlice;

/// How long a reconciliation waits until the cache has caught up; then it fails and is retried later. Normally the cache is
/// never that far behind.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The last commit of each service.
#[derive(Debug, Default)]
pub(crate) struct CommitTracker {
    commits: Mutex<BTreeMap<Key, Commit>>,
}

#[derive(Debug)]
struct Commit {
    revision: i64,
    /// The keys of the deleted slices.
    deleted: BTreeSet<Key>,
}

impl CommitTracker {
    /// Forgets everything: other instances may have written since.
    pub(crate) fn clear(&self) {
        self.commits.lock().clear();
    }

    /// Records a commit of a service's slices, some of which were deleted.
    pub(crate) fn record_commit(&self, service: &Key, revision: i64, deleted: BTreeSet<Key>) {
        self.commits
            .lock()
            .insert(Key::clone(service), Commit { revision, deleted });
    }

    /// Forgets a service.
    pub(crate) fn forget(&self, service: &Key) {
        self.commits.lock().remove(service);
    }

    /// Waits until a cache contains all recorded writes for a service.
    ///
    /// # Errors
    /// When it does not contain them in time.
    pub(crate) async fn wait_for_cache(
        &self,
        service: &Key,
        slices: &Cache<StoredSlice>,
    ) -> Result<(), BoxError> {
        let Some(revision) = self
            .commits
            .lock()
            .get(service)
            .map(|commit| commit.revision)
        else {
            return Ok(());
        };
        match timeout(CATCH_UP_TIMEOUT, slices.wait_for_revision(revision)).await {
            Ok(seen) => Ok(seen?),
            Err(_) => {
                Err(format!("the cache of the slices is older than revision {revision}").into())
            }
        }
    }

    /// True if an event is a write of this process for this service.
    pub(crate) fn is_own_write(&self, service: &Key, event: &Event<StoredSlice>) -> bool {
        let commits = self.commits.lock();
        let Some(commit) = commits.get(service) else {
            return false;
        };
        match event.after() {
            Some(slice) => slice.mod_revision == commit.revision,
            None => commit.deleted.contains(event.key()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_controller::{Object, reflector::Reflector};
    use contiv_store::{Operation, Store};
    use contiv_store_testing::MemoryStore;

    use super::*;
    use crate::slice::slices;

    fn object(key: &str, mod_revision: i64) -> Arc<Object<StoredSlice>> {
        Arc::new(Object {
            key: key.into(),
            value: StoredSlice::Foreign,
            create_revision: 1,
            mod_revision,
        })
    }

    #[test]
    fn own_writes_are_told_from_foreign_ones() {
        let (tracker, web) = (CommitTracker::default(), Key::from("web"));
        let added = |revision| Event::Added(object("s1", revision));
        assert!(!tracker.is_own_write(&web, &added(5)));
        tracker.record_commit(&web, 5, BTreeSet::from(["s2".into()]));
        assert!(tracker.is_own_write(&web, &added(5)) && !tracker.is_own_write(&web, &added(6)));
        assert!(tracker.is_own_write(&web, &Event::Deleted(object("s2", 3))));
        assert!(
            !tracker.is_own_write(&web, &Event::Deleted(object("s1", 5))),
            "another client deletes it"
        );
        assert!(
            !tracker.is_own_write(&"db".into(), &added(5)),
            "the commit was for another service"
        );
        tracker.clear();
        assert!(
            !tracker.is_own_write(&web, &added(5)),
            "nothing is known at the start of a new term"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reconciliation_waits_for_stale_cache_and_then_fails() {
        let store = MemoryStore::new();
        let (mut reflector, cache) = Reflector::start(store.shared(), &slices());
        tokio::spawn(async move { while reflector.next().await.is_some() {} });
        let (tracker, web) = (CommitTracker::default(), Key::from("web"));
        tracker.wait_for_cache(&web, &cache).await.unwrap();
        tracker.record_commit(&web, 1000, BTreeSet::new());
        let error = tracker
            .wait_for_cache(&web, &cache)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("older than revision 1000"), "{error}");

        let key = slices().key("s/namespace/n").to_string();
        let value = r#"{"address_type":"IPv4"}"#.into();
        let revision = store
            .commit(vec![Operation::Put { key, value }])
            .await
            .unwrap();
        tracker.record_commit(&web, revision, BTreeSet::new());
        tracker.wait_for_cache(&web, &cache).await.unwrap();
        assert!(cache.last_sync_revision().unwrap() >= revision);
    }
}
