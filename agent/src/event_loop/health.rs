//! What the loop tells of health, after each event. Nothing here waits.

#[cfg(test)]
mod tests;

use std::time::Duration;

use contiv_model::{ChangeSet, Processor};
use tokio::{sync::mpsc::error::TrySendError, time::Instant};

use crate::health::{HealthOutputs, HealthUpdate, ProxyHealth};

/// How long a queue that is full is left alone, if nothing else happens.
const FULL: Duration = Duration::from_millis(50);

/// The outputs, and what is known of this node.
#[derive(Debug)]
pub(super) struct HealthReporter {
    outputs: HealthOutputs,
    node_eligible: bool,
    /// What the server had no room for.
    unsent: Option<HealthUpdate>,
}

impl HealthReporter {
    /// Tells the addresses that are known without the store.
    pub(super) fn new(outputs: HealthOutputs, processor: &Processor) -> Self {
        let mut reporter = Self { outputs, node_eligible: true, unsent: None };
        let node_ips = Some(processor.snapshot().node.node_ips);
        reporter.send(HealthUpdate { services: Vec::new(), node_ips });
        reporter
    }

    /// The renderer that the agent's health is about.
    pub(super) fn renderer(&self) -> &str {
        &self.outputs.renderer
    }

    /// Tells what these changes come to.
    pub(super) fn tell_changes(&mut self, changes: &ChangeSet) {
        if let Some(update) = HealthUpdate::of(changes) {
            self.send(update);
        }
    }

    /// Takes in whether this node is to get traffic: not when its Node object is gone.
    pub(super) const fn set_node_eligible(&mut self, is_eligible: bool) {
        self.node_eligible = is_eligible;
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

    /// Tells what there was no room for.
    pub(super) fn tell_unsent(&mut self) {
        if let Some(update) = self.unsent.take() {
            self.send(update);
        }
    }

    /// When there may be room for it.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.unsent.as_ref().map(|_| Instant::now() + FULL)
    }

    fn send(&mut self, update: HealthUpdate) {
        let update = match self.unsent.take() {
            None => update,
            Some(mut unsent) => {
                unsent.merge(update);
                unsent
            }
        };
        // The server ends only after the loop, or with it.
        if let Err(TrySendError::Full(update)) = self.outputs.updates.try_send(update) {
            self.unsent = Some(update);
        }
    }
}
