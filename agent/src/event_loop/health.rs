//! What the loop tells of health, after each event. Nothing here waits.

#[cfg(test)]
mod tests;

use contiv_model::{ChangeSet, NodeName, ObjectKey, Processor};

use crate::health::{HealthOutputs, HealthUpdate, ProxyHealth};

/// The outputs, and what is known of this node.
#[derive(Debug)]
pub(super) struct HealthReporter {
    outputs: HealthOutputs,
    node: ObjectKey,
    node_was_there: bool,
    node_eligible: bool,
}

impl HealthReporter {
    /// Tells the addresses that are known without the store.
    pub(super) fn new(outputs: HealthOutputs, node: NodeName, processor: &Processor) -> Self {
        let reporter =
            Self { outputs, node: ObjectKey::Node(node), node_was_there: false, node_eligible: true };
        let node_ips = Some(processor.snapshot().node.node_ips);
        reporter.send(HealthUpdate { services: Vec::new(), node_ips });
        reporter
    }

    /// The renderer that the agent's health is about.
    pub(super) fn renderer(&self) -> &str {
        &self.outputs.renderer
    }

    /// Tells what these changes come to.
    pub(super) fn tell_changes(&self, changes: &ChangeSet) {
        if let Some(update) = HealthUpdate::of(changes) {
            self.send(update);
        }
    }

    /// Looks whether the Node object of this node is there.
    pub(super) fn look_for_node(&mut self, processor: &Processor) {
        let is_there = processor.object(&self.node).is_some();
        self.node_was_there |= is_there;
        self.node_eligible = is_there || !self.node_was_there;
    }

    /// Tells how the renderer is.
    pub(super) fn tell_proxy(&self, health: ProxyHealth) {
        let health = ProxyHealth { node_eligible: self.node_eligible, ..health };
        self.outputs.proxy.send_if_modified(|current| {
            let differs = *current != health;
            *current = health;
            differs
        });
    }

    fn send(&self, update: HealthUpdate) {
        // The server ends only after the loop, or with it.
        let _ = self.outputs.updates.send(update);
    }
}
