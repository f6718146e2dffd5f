//! One run for one service: wait until the last writes are visible, plan, and commit.

use std::{collections::BTreeSet, sync::Arc};

use contiv_controller::{BoxError, Context, Key, Object, Outcome, ResourceType, Write};
use contiv_proto::{Key as StoredKey, Kind, message::endpointslice::EndpointSlice, value};
use tracing::debug;

use crate::{
    plan::{Input, SliceWrite, plan},
    service::Service,
    slice::{StoredSlice, TERM_ANNOTATION},
    tracker::CommitTracker,
    watches::{LABELS, SERVICE, within},
    workload::Workload,
};

/// Makes the slices of services right.
#[derive(Clone)]
pub(crate) struct SliceReconciler {
    pub(crate) workloads: ResourceType<Workload>,
    pub(crate) slices: ResourceType<StoredSlice>,
    pub(crate) tracker: Arc<CommitTracker>,
}

/// The writes of one run.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    deleted: BTreeSet<Key>,
}

impl SliceReconciler {
    pub(crate) async fn reconcile(
        self,
        context: Context<Service>,
        key: Key,
    ) -> Result<Outcome, BoxError> {
        self.tracker
            .wait_for_cache(&key, context.cache_of(&self.slices)?)
            .await?;
        let service = context.cache().get(&key);
        let batch = match &service {
            Some(service) => self.plan(&context, service)?,
            // Slices of deleted services are not garbage-collected by the store.
            None => self.delete_all(&context, &key)?,
        };
        if !batch.writes.is_empty() {
            debug!(%key, writes = batch.writes.len(), "writing slices");
            if let Some(revision) = context.writer().commit(batch.writes).await? {
                self.tracker.record_commit(&key, revision, batch.deleted);
            }
        } else if service.is_none() {
            self.tracker.forget(&key);
        }
        Ok(Outcome::Done)
    }

    fn plan(
        &self,
        context: &Context<Service>,
        service: &Object<Service>,
    ) -> Result<Batch, BoxError> {
        if !service.is_ours() {
            return Ok(Batch::default());
        }
        let (selected, unreadable) = {
            let view = context.cache_of(&self.workloads)?.view();
            let selected = view.selected(LABELS, &within(&service.namespace, &service.selector))?;
            let keys = view
                .problems()
                .map(|(key, _)| key)
                .filter(|key| view.unreadable(key).is_some());
            (
                selected,
                keys.filter_map(|key| name_within(key, &service.namespace))
                    .collect(),
            )
        };
        let workloads: Vec<&Workload> = selected.iter().map(|workload| &workload.value).collect();
        let view = context.cache_of(&self.slices)?.view();
        let present = view.by_index(SERVICE, &service.key)?;
        let slices: Vec<&EndpointSlice> = present.iter().filter_map(|slice| slice.ours()).collect();
        let key_of = |name: &str| slice_key(&service.namespace, name);
        // An unreadable slice has its name too.
        let is_taken = |name: &str| {
            key_of(name).is_ok_and(|key| view.get(&key).is_some() || view.problem(&key).is_some())
        };
        let writes = plan(&Input {
            service: &service.value,
            workloads: &workloads,
            slices: &slices,
            unreadable: &unreadable,
            is_taken: &is_taken,
        });

        let term = context.writer().fence().map(|fence| fence.create_revision);
        let present = |name: &str| {
            let key = key_of(name)?;
            view.get(&key).ok_or_else(|| {
                BoxError::from(format!("{key} is planned to change, and is not there"))
            })
        };
        let mut batch = Batch::default();
        for write in writes {
            match write {
                SliceWrite::Create(slice) => {
                    batch
                        .writes
                        .push(Write::create(&key_of(&slice.name)?, encode(slice, term)?));
                }
                SliceWrite::Update(slice) => {
                    batch
                        .writes
                        .push(Write::update(&*present(&slice.name)?, encode(slice, term)?));
                }
                SliceWrite::Delete(name) => batch.delete(&*present(&name)?),
            }
        }
        Ok(batch)
    }

    fn delete_all(&self, context: &Context<Service>, key: &Key) -> Result<Batch, BoxError> {
        let mut batch = Batch::default();
        for slice in context.cache_of(&self.slices)?.by_index(SERVICE, key)? {
            batch.delete(&slice);
        }
        Ok(batch)
    }
}

impl Batch {
    fn delete(&mut self, slice: &Object<StoredSlice>) {
        self.writes.push(Write::delete(slice));
        self.deleted.insert(Key::clone(&slice.key));
    }
}

fn slice_key(namespace: &str, name: &str) -> Result<Key, BoxError> {
    Ok(StoredKey::new(Kind::EndpointSlice, namespace, name)?
        .to_path()
        .into())
}

/// The name of an object, if it is in this namespace.
fn name_within(key: &str, namespace: &str) -> Option<String> {
    let key = StoredKey::parse(key).ok()??;
    (key.namespace() == namespace).then(|| key.name().to_owned())
}

/// Encodes a slice, with its term.
fn encode(mut slice: EndpointSlice, term: Option<i64>) -> Result<Vec<u8>, BoxError> {
    if let Some(term) = term {
        slice
            .annotations
            .insert(TERM_ANNOTATION.to_owned(), term.to_string());
    }
    Ok(value::encode(&slice)?)
}
