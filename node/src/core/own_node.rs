//! The Node object of this node: when it is deleted, its data stays active, so that node ports keep working, as in kube-proxy; and
//! a store with Node objects that has none of this node's name is reported.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_model::{
    Event, NodeName, Object, ObjectKey, Processor, Resync, object::ObjectKind, wire,
};
use strsim::levenshtein;
use tracing::{info, warn};

use super::places::Places;

/// How many names of nodes are given without a near one.
const NAMED_NODES: usize = 3;

/// The key of this node's Node object, and whether it is missing.
#[derive(Debug)]
pub(super) struct OwnNode {
    name: NodeName,
    object: ObjectKey,
    /// Its full key; empty if the name of the node cannot be part of a key.
    path: String,
    is_deleted: bool,
    /// Why the store lacks it, if it should have it: it has Node objects, or is an API server, which always has them.
    missing: Option<String>,
    is_of_api_server: bool,
    /// Whether the configuration has the addresses of this node.
    has_addresses: bool,
}

impl OwnNode {
    /// The node of this name; `has_addresses` if the configuration has its addresses.
    pub(super) fn new(name: NodeName, store: &str, has_addresses: bool) -> Self {
        Self {
            object: ObjectKey::Node(name.clone()),
            path: own_node_key(&name),
            name,
            is_deleted: false,
            missing: None,
            is_of_api_server: Places::of_store(store).is_of_api_server,
            has_addresses,
        }
    }

    /// What is wrong with the Node object, for users.
    pub(super) fn problem(&self) -> Option<String> {
        let gone = "its Node object is gone from the store; its addresses stay active until there is a new one";
        self.missing
            .clone()
            .or_else(|| self.is_deleted.then(|| gone.to_owned()))
    }

    /// Checks whether the store has a Node object of this name. To be called when Node objects may have changed.
    pub(super) fn check(&mut self, processor: &Processor) {
        let before = self.missing.take();
        self.missing = self.find_missing(processor);
        match (&before, &self.missing) {
            (None, Some(problem)) => {
                warn!(node_name = %self.name, problem, "the name of this node is not in the store");
            }
            (Some(_), None) => {
                info!(node_name = %self.name, "the name of this node is in the store now");
            }
            _ => {}
        }
    }

    fn find_missing(&self, processor: &Processor) -> Option<String> {
        if processor.object(&self.object).is_some() {
            return None;
        }
        // Contiv's records name nodes too.
        let nodes = processor.nodes();
        if nodes.iter().any(|node| node.this_node) {
            return None;
        }
        let mut names: BTreeSet<NodeName> = nodes.into_iter().map(|node| node.name).collect();
        if names.is_empty() {
            // A folder needs no Node objects. Of an API server only this node's own is read.
            if !self.is_of_api_server {
                return None;
            }
            names = processor.nodes_of_endpoints();
        }
        let nearest = nearest(&self.name.0, &names);
        // A machine outside the cluster has no Node object; its configuration has its addresses.
        if self.has_addresses && !nearest.is_some_and(|name| has_same_host(&self.name.0, &name.0)) {
            return None;
        }
        let advice = match nearest {
            Some(name) => format!("did you mean {name}?"),
            None if names.is_empty() => "see `kubectl get nodes`.".to_owned(),
            None => {
                let first: Vec<&str> = names
                    .iter()
                    .take(NAMED_NODES)
                    .map(|name| &*name.0)
                    .collect();
                let more = if names.len() > NAMED_NODES {
                    ", …"
                } else {
                    ""
                };
                format!("it has {}{more}.", first.join(", "))
            }
        };
        let ports = if self.has_addresses {
            ""
        } else {
            ", and node ports have no address"
        };
        Some(format!(
            "the store has no Node object of this name: {advice} Set node-name, or its Node is not registered yet: until \
             then no endpoint is local for policy Local{ports}"
        ))
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
        let is_listed = list.undecodable.contains(&self.object)
            || list.objects.iter().any(|object| self.is(object));
        self.set_deleted(!is_listed && processor.object(&self.object).is_some());
        if self.is_deleted {
            list.undecodable.insert(self.object.clone());
        }
    }

    /// Removes its deletion from changes.
    pub(super) fn keep_in_changes(&mut self, processor: &Processor, events: &mut Vec<Event>) {
        let is_deletion =
            |event: &Event| matches!(event, Event::Delete(key) if *key == self.object);
        let is_put = |event: &Event| matches!(event, Event::Put(object) if self.is(object));
        if let Some(last) = events
            .iter()
            .rfind(|event| is_deletion(event) || is_put(event))
        {
            let is_known = processor.object(&self.object).is_some() || events.iter().any(is_put);
            let is_deleted = is_deletion(last) && is_known;
            events.retain(|event| !is_deletion(event));
            self.set_deleted(is_deleted);
        }
    }

    /// Whether one of these events is about a Node object, or a record of Contiv's.
    pub(super) fn is_concerned(events: &[Event]) -> bool {
        let is_node = |kind| matches!(kind, ObjectKind::Node | ObjectKind::VppNode);
        events.iter().any(|event| match event {
            Event::Put(object) => is_node(object.kind()),
            Event::Delete(key) => is_node(key.kind()),
            _ => false,
        })
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

/// The name that is probably meant: one with the same host name, short or long; else one of which at most a third of the letters
/// differ.
fn nearest<'a>(name: &str, names: &'a BTreeSet<NodeName>) -> Option<&'a NodeName> {
    let lower = name.to_lowercase();
    let distance = |other: &&NodeName| levenshtein(&lower, &other.0.to_lowercase());
    let is_near = |other: &&NodeName| distance(other) <= other.0.len().min(name.len()) / 3;
    let same_host = names.iter().find(|other| has_same_host(name, &other.0));
    same_host.or_else(|| names.iter().filter(is_near).min_by_key(distance))
}

/// Whether both are names of one host: the same one, or one with and one without its domain. Addresses are no names.
fn has_same_host(one: &str, other: &str) -> bool {
    let is_address = |name: &str| name.parse::<IpAddr>().is_ok();
    if is_address(one) || is_address(other) {
        return false;
    }
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let is_short_of = |short: &str, long: &str| {
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    is_short_of(&one, &other) || is_short_of(&other, &one)
}

/// The full key of the Node object of this name; empty where the name cannot be part of a key.
pub fn own_node_key(name: &NodeName) -> String {
    wire::stored_key(&ObjectKey::Node(name.clone()))
        .map(|key| key.to_path())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logged::logged;

    #[test]
    fn deletion_is_logged_once_until_object_returns() {
        let mut node = OwnNode::new(NodeName("n1".into()), "dir:/manifests", false);
        for (is_deleted, lines) in [(false, 0), (true, 1), (true, 0), (false, 0), (true, 1)] {
            assert_eq!(logged(|| node.set_deleted(is_deleted)).len(), lines);
            assert_eq!(node.problem().is_some(), is_deleted);
        }
    }

    #[test]
    fn name_is_meant_if_a_third_of_its_letters_differ_at_most() {
        let nearest = |name: &str, names: &[&str]| {
            let names = names.iter().map(|&name| NodeName(name.into())).collect();
            nearest(name, &names).map(|name| name.0.to_string())
        };
        assert_eq!(
            nearest("worker", &["marker", "wirker"]).as_deref(),
            Some("wirker"),
            "the nearest"
        );
        assert_eq!(
            nearest("worker", &["marker"]).as_deref(),
            Some("marker"),
            "two of six"
        );
        assert_eq!(nearest("worker", &["barber"]), None, "three of six");
        assert_eq!(nearest("w1", &["w2"]), None, "one of two");
        assert_eq!(
            nearest("w1", &["w2", "W1.example.com"]).as_deref(),
            Some("W1.example.com")
        );
    }

    #[test]
    fn host_is_the_same_with_and_without_its_domain() {
        for (one, other, expected) in [
            ("w1", "w1", true),
            ("w1", "W1.example.com", true),
            ("w1.example.com", "w1", true),
            ("w1.dc1", "w1.dc1.example.com", true),
            ("w1.dc1", "w1.dc2", false),
            ("w1", "w12", false),
            ("w1", "w12.example.com", false),
            ("10.0.0.5", "10.0.0.1", false),
            ("10.0.0.5", "10", false),
        ] {
            assert_eq!(has_same_host(one, other), expected, "{one} {other}");
        }
    }
}
