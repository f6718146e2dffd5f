//! The objects and their history.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::resource::Resource;

/// Namespace and name: the order in which objects are listed.
pub(super) type Id = (String, String);
/// The objects of one type, as JSON without `kind` and `apiVersion`.
pub(super) type Objects = BTreeMap<Id, Arc<str>>;

/// All objects, with one version for all types.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) version: i64,
    objects: BTreeMap<Resource, Objects>,
    /// In order of version.
    history: Vec<ObjectChange>,
    /// The version before the first one in the history.
    forgotten: i64,
    /// The objects of unfinished lists, for the next pages.
    pages: BTreeMap<(Resource, i64), Arc<Objects>>,
    /// What clients have applied last (server-side apply).
    applied: BTreeMap<AppliedBy, Value>,
}

/// A type, a namespace, a name, and the manager who applied the object.
pub(super) type AppliedBy = (Resource, String, String, String);

/// One change of one object.
#[derive(Debug, Clone)]
pub(super) struct ObjectChange {
    pub(super) version: i64,
    pub(super) resource: Resource,
    id: Id,
    pub(super) before: Option<Arc<str>>,
    pub(super) after: Option<Arc<str>>,
}

impl Default for Cluster {
    fn default() -> Self {
        // The version of a cluster that is not new.
        let version = 1000;
        Self {
            version,
            objects: BTreeMap::new(),
            history: Vec::new(),
            forgotten: version,
            pages: BTreeMap::new(),
            applied: BTreeMap::new(),
        }
    }
}

impl Cluster {
    pub(super) fn put(&mut self, resource: Resource, mut object: Value) -> i64 {
        self.version += 1;
        let metadata = &mut object["metadata"];
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let id = (text(&metadata["namespace"]), text(&metadata["name"]));
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("00000000-0000-4000-8000-{:012}", self.version).into();
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        if metadata["managedFields"].is_null() {
            metadata["managedFields"] =
                json!([{ "manager": "kubectl", "operation": "Update", "fieldsV1": {} }]);
        }
        if let Some(fields) = object.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
            for list in ["endpoints", "ports"] {
                if fields
                    .get(list)
                    .is_some_and(|items| items.as_array().is_some_and(Vec::is_empty))
                {
                    fields.insert(list.to_owned(), Value::Null);
                }
            }
        }
        let after: Arc<str> = object.to_string().into();
        let before = self
            .objects
            .entry(resource)
            .or_default()
            .insert(id.clone(), Arc::clone(&after));
        self.history.push(ObjectChange {
            version: self.version,
            resource,
            id,
            before,
            after: Some(after),
        });
        self.version
    }

    pub(super) fn delete(&mut self, resource: Resource, namespace: &str, name: &str) {
        let id = (namespace.to_owned(), name.to_owned());
        let Some(before) = self.objects.entry(resource).or_default().remove(&id) else {
            return;
        };
        self.applied
            .retain(|by, _| (by.0, by.1.as_str(), by.2.as_str()) != (resource, namespace, name));
        self.version += 1;
        self.history.push(ObjectChange {
            version: self.version,
            resource,
            id,
            before: Some(before),
            after: None,
        });
    }

    pub(super) fn expire(&mut self) {
        // Versions have gaps, since other objects change meanwhile.
        self.version += 1;
        self.forgotten = self.version;
        self.history.clear();
        self.pages.clear();
    }

    pub(super) fn objects(&self, resource: Resource) -> Objects {
        self.objects.get(&resource).cloned().unwrap_or_default()
    }

    pub(super) fn object(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<str>> {
        self.objects
            .get(&resource)?
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// Whether there ever was an object of this type.
    pub(super) fn had(&self, resource: Resource) -> bool {
        self.objects.contains_key(&resource)
    }

    /// Keeps what a manager applies, and returns what it applied before.
    pub(super) fn set_applied(&mut self, by: AppliedBy, applied: Value) -> Option<Value> {
        self.applied.insert(by, applied)
    }

    /// The objects at a version; none if it has expired.
    pub(super) fn objects_at(&self, resource: Resource, version: i64) -> Option<Objects> {
        if version < self.forgotten {
            return None;
        }
        let mut objects = self.objects(resource);
        let later = self
            .history
            .iter()
            .rev()
            .take_while(|happened| happened.version > version);
        for ObjectChange { id, before, .. } in
            later.filter(|happened| happened.resource == resource)
        {
            match before {
                Some(before) => objects.insert(id.clone(), Arc::clone(before)),
                None => objects.remove(id),
            };
        }
        Some(objects)
    }

    /// Restores an earlier state, like a server that starts on a restored etcd without a history.
    pub(super) fn restore(&mut self, earlier: Self) {
        *self = earlier;
        self.forgotten = self.version;
        self.history.clear();
        self.pages.clear();
    }

    /// Keeps the objects of an unfinished list, unless their version has expired since they were read.
    pub(super) fn keep_page(&mut self, resource: Resource, version: i64, objects: Arc<Objects>) {
        if (self.forgotten..=self.version).contains(&version) {
            self.pages.insert((resource, version), objects);
        }
    }

    /// The objects of an unfinished list; none if they have expired.
    pub(super) fn page(&self, resource: Resource, version: i64) -> Option<Arc<Objects>> {
        self.pages.get(&(resource, version)).cloned()
    }

    /// The changes of one type after a version; none if that has expired.
    pub(super) fn after(&self, resource: Resource, version: i64) -> Option<Vec<ObjectChange>> {
        if version < self.forgotten {
            return None;
        }
        let first = self
            .history
            .partition_point(|happened| happened.version <= version);
        let later = self.history[first..]
            .iter()
            .filter(|happened| happened.resource == resource);
        Some(later.cloned().collect())
    }
}

/// The last state of a deleted object has the version of its deletion.
pub(super) fn with_version(json: &str, version: i64) -> Arc<str> {
    let mut object: Value = serde_json::from_str(json).unwrap_or_default();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_kept_when_its_objects_change_before_its_first_page_is_answered() {
        let mut cluster = Cluster::default();
        let metadata = json!({ "name": "a", "namespace": "default" });
        let object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata });
        let service = Resource::of_object(&object).unwrap();
        let version = cluster.put(service, object.clone());
        let listed = Arc::new(cluster.objects(service));
        cluster.delete(service, "default", "a");
        cluster.keep_page(service, version, Arc::clone(&listed));
        assert_eq!(cluster.page(service, version), Some(Arc::clone(&listed)));

        cluster.expire();
        cluster.keep_page(service, version, Arc::clone(&listed));
        assert_eq!(cluster.page(service, version), None, "expired");

        let backup = cluster.clone();
        cluster.put(service, object);
        let version = cluster.version;
        cluster.restore(backup);
        cluster.keep_page(service, version, listed);
        assert_eq!(
            cluster.page(service, version),
            None,
            "of a history that is gone"
        );
    }
}
