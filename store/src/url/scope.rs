//! The query of a store URL, and what of it says what an agent reads.

use std::fmt;

/// What an agent reads besides services, their endpoints and its own node: `pods=all` and `nodes=all` in a URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentScope {
    /// All pods. Only what their annotations say, as weights, and Contiv's own addresses of pods need that.
    pub pods: bool,
    /// All nodes. Only what concerns the whole cluster needs that, such as masquerading what leaves it.
    pub nodes: bool,
}

impl AgentScope {
    /// The parameters and their values, for errors.
    pub(super) const FORMS: &str = "pods=all, pods=none, nodes=all and nodes=own";

    /// Reads a parameter. False if it is none of these.
    pub(super) fn read(&mut self, name: &str, value: &str) -> bool {
        match (name, value) {
            ("pods", "all") => self.pods = true,
            ("pods", "none") => self.pods = false,
            ("nodes", "all") => self.nodes = true,
            ("nodes", "own") => self.nodes = false,
            _ => return false,
        }
        true
    }

    /// The parameters that are not the default.
    pub(super) fn parameters(self) -> impl Iterator<Item = &'static str> {
        let pods = self.pods.then_some("pods=all");
        pods.into_iter().chain(self.nodes.then_some("nodes=all"))
    }
}

/// The parts of a query.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|pair| !pair.is_empty())
}

/// Writes a query after a URL; nothing without a part.
pub(super) fn write_query(
    f: &mut fmt::Formatter<'_>,
    pairs: impl IntoIterator<Item = impl fmt::Display>,
) -> fmt::Result {
    for (i, pair) in pairs.into_iter().enumerate() {
        write!(f, "{}{pair}", if i == 0 { '?' } else { '&' })?;
    }
    Ok(())
}
