//! The candidate's name in an election, and the election's timeouts.

use std::time::Duration;

/// The identity of a candidate, the election and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The key of the election. Nothing else may write it.
    pub key: String,
    /// The name of this process, stored in the key for users.
    pub identity: String,
    /// How long after the last keep-alive the store lets another process win; whole seconds.
    pub ttl: Duration,
    /// The interval of keep-alives.
    pub keep_alive_every: Duration,
    /// How long after the last answered keep-alive this process steps down by itself.
    pub step_down_after: Duration,
}

impl ElectionConfig {
    /// With linkerd's times: 30 s, every 2 s, 10 s.
    pub fn new(key: &str, identity: &str) -> Self {
        Self {
            key: key.to_owned(),
            identity: identity.to_owned(),
            ttl: Duration::from_secs(30),
            keep_alive_every: Duration::from_secs(2),
            step_down_after: Duration::from_secs(10),
        }
    }
}
