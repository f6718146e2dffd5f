//! Whether an agent needs attention: one decision for `contiv status`, for its exit code and for the page.

/// The facts that decide it. Each of them is set by everyone who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthFacts {
    /// Every renderer has applied its first snapshot.
    pub is_ready: bool,
    /// The store cannot be watched.
    pub is_store_down: bool,
    /// Too many deletions at once are held.
    pub holds_deletions: bool,
    /// Objects in quarantine.
    pub quarantined: usize,
    /// Services that claim a frontend that another service holds.
    pub lost_frontends: usize,
    /// Elements of the kernel that the last verification found to differ.
    pub drift: usize,
    /// Renderers that fail or are slow: see [`is_failing`].
    pub failing_renderers: usize,
    /// Settings of the machine that keep packets of services from being forwarded.
    pub forwarding_off: usize,
    /// Tables of the kernel that are nearly full, or in which connections were lost.
    pub table_problems: usize,
    /// Failover does not work.
    pub failover_errors: usize,
    /// Problems with the Node object of this node: the store has none of its name, or no longer has it.
    pub node_problems: usize,
}

/// The health of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentHealth {
    /// Nothing has to be done.
    Healthy,
    /// It is ready, but someone should look.
    NeedsAttention,
    /// It is not ready.
    NotReady,
}

/// Whether a renderer fails or is slow, by the number of its failures since the last success and its state.
pub fn is_failing(failures: u32, state: &str) -> bool {
    failures > 0 || state == "slow"
}

impl AgentHealth {
    /// The health that follows from these facts.
    pub const fn of(facts: HealthFacts) -> Self {
        // Without `..`, so that no fact is forgotten.
        let HealthFacts {
            is_ready,
            is_store_down,
            holds_deletions,
            quarantined,
            lost_frontends,
            drift,
            failing_renderers,
            forwarding_off,
            table_problems,
            failover_errors,
            node_problems,
        } = facts;
        if !is_ready {
            return Self::NotReady;
        }
        let problems = quarantined
            + lost_frontends
            + drift
            + failing_renderers
            + forwarding_off
            + table_problems
            + failover_errors
            + node_problems;
        if is_store_down || holds_deletions || problems > 0 {
            Self::NeedsAttention
        } else {
            Self::Healthy
        }
    }

    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Healthy => "ready",
            Self::NeedsAttention => "ready, but see below",
            Self::NotReady => "not ready",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_needs_attention() {
        let healthy = HealthFacts {
            is_ready: true,
            is_store_down: false,
            holds_deletions: false,
            quarantined: 0,
            lost_frontends: 0,
            drift: 0,
            failing_renderers: 0,
            forwarding_off: 0,
            table_problems: 0,
            failover_errors: 0,
            node_problems: 0,
        };
        assert_eq!(AgentHealth::of(healthy), AgentHealth::Healthy);
        for facts in [
            HealthFacts {
                is_store_down: true,
                ..healthy
            },
            HealthFacts {
                holds_deletions: true,
                ..healthy
            },
            HealthFacts {
                quarantined: 1,
                ..healthy
            },
            HealthFacts {
                lost_frontends: 1,
                ..healthy
            },
            HealthFacts {
                drift: 1,
                ..healthy
            },
            HealthFacts {
                failing_renderers: 1,
                ..healthy
            },
            HealthFacts {
                forwarding_off: 1,
                ..healthy
            },
            HealthFacts {
                table_problems: 1,
                ..healthy
            },
            HealthFacts {
                failover_errors: 1,
                ..healthy
            },
            HealthFacts {
                node_problems: 1,
                ..healthy
            },
        ] {
            assert_eq!(
                AgentHealth::of(facts),
                AgentHealth::NeedsAttention,
                "{facts:?}"
            );
            let starting = HealthFacts {
                is_ready: false,
                ..facts
            };
            assert_eq!(
                AgentHealth::of(starting),
                AgentHealth::NotReady,
                "{starting:?}"
            );
        }
        assert!(is_failing(1, "retrying") && is_failing(0, "slow") && !is_failing(0, "busy"));
    }
}
