//! The Node object of this node: when it is deleted, its data stays active, so that node ports keep working, as in kube-proxy.

use contiv_model::{Event, NodeName, Object, ObjectKey, Processor, Resync, wire};
use tracing::warn;

/// The key of this node's Node object, and whether it was deleted.
#[derive(Debug)]
pub(super) struct OwnNode {
    name: NodeName,
    object: ObjectKey,
    /// Its full key; empty if the name of the node cannot be part of a key.
    path: String,
    is_deleted: bool,
}

impl OwnNode {
    pub(super) fn new(name: NodeName) -> Self {
        let path = own_node_key(&name);
        Self { object: ObjectKey::Node(name.clone()), name, path, is_deleted: false }
    }

    /// Its name.
    pub(super) const fn name(&self) -> &NodeName {
        &self.name
    }

    /// Its full key.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether load balancers may send traffic here: not when the store, or its saved state, had the object and no longer has it,
    /// nor when the node is being deleted. Source: kube-proxy's `ProxyHealthServer.SyncNode`.
    pub(super) fn is_eligible(&self, processor: &Processor) -> bool {
        let object = || processor.object(&self.object);
        !self.is_deleted && !matches!(object(), Some(Object::Node(node)) if node.is_being_deleted)
    }

    /// Adds it to a complete list without it as an unreadable object, which keeps it active.
    pub(super) fn keep_in_list(&mut self, processor: &Processor, list: &mut Resync) {
        let is_listed =
            list.undecodable.contains(&self.object) || list.objects.iter().any(|object| self.is(object));
        self.set_deleted(!is_listed && processor.object(&self.object).is_some());
        if self.is_deleted {
            list.undecodable.insert(self.object.clone());
        }
    }

    /// Removes its deletion from changes.
    pub(super) fn keep_in_changes(&mut self, processor: &Processor, events: &mut Vec<Event>) {
        let is_deletion = |event: &Event| matches!(event, Event::Delete(key) if *key == self.object);
        let is_put = |event: &Event| matches!(event, Event::Put(object) if self.is(object));
        if let Some(last) = events.iter().rfind(|event| is_deletion(event) || is_put(event)) {
            let is_known = processor.object(&self.object).is_some() || events.iter().any(is_put);
            let is_deleted = is_deletion(last) && is_known;
            events.retain(|event| !is_deletion(event));
            self.set_deleted(is_deleted);
        }
    }

    fn is(&self, object: &Object) -> bool {
        matches!(object, Object::Node(node) if node.name == self.name)
    }

    fn set_deleted(&mut self, is_deleted: bool) {
        if is_deleted && !self.is_deleted {
            warn!(
                object = %self.object,
                "the object of this node is gone from the store; its addresses stay active until there is a new one"
            );
        }
        self.is_deleted = is_deleted;
    }
}

/// The full key of the Node object of this name; empty where the name cannot be part of a key.
pub fn own_node_key(name: &NodeName) -> String {
    wire::stored_key(&ObjectKey::Node(name.clone())).map(|key| key.to_path()).unwrap_or_default()
}
