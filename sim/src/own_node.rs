//! Tracks the copies of the node's own Node object. If it is deleted, or a backup without it is restored, the agent keeps its
//! last state, and so does the mirror: as long as one of them has it, node ports must answer. An agent that starts without a
//! copy cannot know the node's addresses.

use std::time::Duration;

/// The copies outside of the store.
#[derive(Debug, Default)]
pub(crate) struct OwnNode {
    /// Since when the running agent has a copy.
    agent: Option<Duration>,
    is_written: bool,
    is_synced: bool,
}

impl OwnNode {
    /// The store delivered it to the agent.
    pub(crate) fn was_delivered(&mut self, at: Duration) {
        self.agent.get_or_insert(at);
    }

    /// The agent wrote to the mirror, which includes its copy.
    pub(crate) const fn was_saved(&mut self) {
        self.is_written |= self.agent.is_some();
    }

    /// The written data was synced.
    pub(crate) const fn was_synced(&mut self) {
        self.is_synced = self.is_written;
    }

    /// The machine lost power.
    pub(crate) const fn lost_power(&mut self) {
        self.is_written = self.is_synced;
    }

    /// The agent starts with the written copy.
    pub(crate) fn agent_starts(&mut self, at: Duration) {
        self.agent = self.is_written.then_some(at);
    }

    /// Since when the running agent has a copy; none if it may have none.
    pub(crate) const fn known_since(&self) -> Option<Duration> {
        self.agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn known() -> OwnNode {
        let mut node = OwnNode::default();
        node.was_delivered(SECOND);
        node.was_saved();
        node
    }

    #[test]
    fn node_lost_by_store_and_power_failure_is_unknown() {
        let mut node = known();
        node.lost_power();
        node.agent_starts(2 * SECOND);
        assert_eq!(node.known_since(), None);
        // The agent writes the mirror again, without a copy: the store does not have the object.
        node.was_saved();
        node.was_synced();
        node.agent_starts(3 * SECOND);
        assert_eq!(node.known_since(), None);
        node.was_delivered(4 * SECOND);
        assert_eq!(node.known_since(), Some(4 * SECOND));
    }

    #[test]
    fn node_that_was_saved_is_known_after_a_restart() {
        let mut killed = known();
        killed.agent_starts(2 * SECOND);
        assert_eq!(killed.known_since(), Some(2 * SECOND));
        let mut synced = known();
        synced.was_synced();
        synced.lost_power();
        synced.agent_starts(2 * SECOND);
        assert_eq!(synced.known_since(), Some(2 * SECOND));
    }

    #[test]
    fn node_of_running_agent_stays_known() {
        let mut node = known();
        node.was_delivered(5 * SECOND);
        assert_eq!(node.known_since(), Some(SECOND));
    }
}
