//! What needs attention in an agent: one list for `contiv status`, for its exit code and for the page.

use contiv_model::{Frontend, ServiceId};
use contiv_node::{FailoverStatus, plural::counted};
use contiv_renderer::{ForwardingOff, shared_tables::TableProblem};
use jiff::Timestamp;

/// The facts that decide it. Each of them is set by everyone who asks.
#[derive(Debug, Clone)]
pub struct HealthFacts<'a> {
    /// Every renderer has applied its first snapshot.
    pub is_ready: bool,
    /// There is a state to render.
    pub is_synced: bool,
    /// Since when the store cannot be watched, and why.
    pub store_down: Option<(Timestamp, &'a str)>,
    /// Too many deletions at once are held.
    pub holds_deletions: bool,
    /// The problem with the Node object of this node: the store has none of its name, or no longer has it.
    pub node_problem: Option<&'a str>,
    /// Settings of the machine that keep packets of services from being forwarded.
    pub forwarding_off: &'a [ForwardingOff],
    /// Tables of the kernel that are nearly full, or in which connections were lost.
    pub table_problems: &'a [TableProblem],
    /// Since when the agent does not reach itself through its rules, and which step fails.
    pub self_check: Option<(Timestamp, &'a str)>,
    /// The state of failover, if a service has it.
    pub failover: Option<&'a FailoverStatus>,
    /// The renderers.
    pub renderers: Vec<RendererFacts<'a>>,
    /// How many objects are in quarantine.
    pub quarantined: usize,
    /// The first of them, with the reason, as `quarantine: OBJECT: REASON`.
    pub first_quarantined: Option<String>,
    /// How many services claim a frontend that another service holds.
    pub conflicts: usize,
    /// The first of them, the frontend, and the service that holds it.
    pub first_conflict: Option<(&'a ServiceId, Frontend, &'a ServiceId)>,
}

/// The facts about a renderer.
#[derive(Debug, Clone)]
pub struct RendererFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its state.
    pub state: &'a str,
    /// Its failures since the last success.
    pub failures: u32,
    /// When it failed last, and why.
    pub last_error: Option<(Timestamp, &'a str)>,
    /// How many elements of the kernel the last verification checked, and how many of them differ.
    pub verified: Option<(usize, usize)>,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it is about.
    pub kind: ProblemKind,
    /// What is wrong, and if it is not plain what to do.
    pub text: String,
    /// The service that it is about, if it is one.
    pub service: Option<ServiceId>,
}

/// What a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The store cannot be watched.
    Store,
    /// A renderer fails or is slow, or has not begun.
    Renderer,
    /// The agent does not reach itself through its rules.
    SelfCheck,
    /// Deletions are held.
    Deletions,
    /// The Node object of this node.
    Node,
    /// A setting of the machine, or a table of its kernel.
    Machine,
    /// Failover does not work.
    Failover,
    /// The kernel differs from what it should be.
    Drift,
    /// Objects cannot be used.
    Quarantine,
    /// Two services claim the same frontend.
    Conflict,
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

impl HealthFacts<'_> {
    /// Everything that needs attention, the most urgent first. Empty exactly if the agent is healthy.
    pub fn problems(&self, now: Timestamp) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |kind, text: String, service: Option<&ServiceId>| {
            let service = service.cloned();
            problems.push(Problem {
                kind,
                text,
                service,
            });
        };
        if let Some((since, reason)) = self.store_down {
            let text = format!("store down for {}: {reason}", ago(since, now));
            add(ProblemKind::Store, text, None);
        }
        let mut is_explained = self.store_down.is_some();
        for text in self.renderers.iter().filter_map(|it| it.failure(now)) {
            is_explained = true;
            add(ProblemKind::Renderer, text, None);
        }
        if !self.is_ready && !is_explained {
            let (kind, cause) = if self.is_synced {
                (ProblemKind::Renderer, "a renderer has yet to apply")
            } else {
                (ProblemKind::Store, "the store has yet to be read")
            };
            add(kind, format!("not ready: {cause}"), None);
        }
        if let Some((since, reason)) = self.self_check {
            let text = format!("self-check fails for {}: {reason}", ago(since, now));
            add(ProblemKind::SelfCheck, text, None);
        }
        if self.holds_deletions {
            let text =
                "too many deletions at once: held; `contiv confirm-deletions` lets them count";
            add(ProblemKind::Deletions, text.to_owned(), None);
        }
        if let Some(problem) = self.node_problem {
            add(ProblemKind::Node, problem.to_owned(), None);
        }
        for off in self.forwarding_off {
            add(ProblemKind::Machine, off.to_string(), Some(&off.service));
        }
        for problem in self.table_problems {
            add(ProblemKind::Machine, problem.to_string(), None);
        }
        if let Some(problem) = self.failover.and_then(FailoverStatus::problem) {
            add(ProblemKind::Failover, problem, None);
        }
        for text in self.renderers.iter().filter_map(RendererFacts::drift) {
            add(ProblemKind::Drift, text, None);
        }
        if self.quarantined > 0 {
            let text = match &self.first_quarantined {
                Some(first) => format!("{first}{}", and_more(self.quarantined)),
                None => format!("quarantine: {}", counted(self.quarantined, "object")),
            };
            add(ProblemKind::Quarantine, text, None);
        }
        if self.conflicts > 0 {
            let text = match self.first_conflict {
                Some((service, frontend, holder)) => format!(
                    "conflict: {service} does not get {frontend}, which {holder} holds{}",
                    and_more(self.conflicts)
                ),
                None => format!(
                    "conflict: {} without a frontend",
                    counted(self.conflicts, "service")
                ),
            };
            let service = self.first_conflict.map(|(service, ..)| service);
            add(ProblemKind::Conflict, text, service);
        }
        problems
    }

    /// The health that follows from these facts.
    pub fn health(&self) -> AgentHealth {
        if !self.is_ready {
            AgentHealth::NotReady
        } else if self.problems(Timestamp::UNIX_EPOCH).is_empty() {
            AgentHealth::Healthy
        } else {
            AgentHealth::NeedsAttention
        }
    }
}

impl RendererFacts<'_> {
    /// That it fails or is slow.
    fn failure(&self, now: Timestamp) -> Option<String> {
        let name = self.name;
        if self.failures > 0 {
            let last = self
                .last_error
                .map(|(at, error)| format!(", {} ago: {error}", ago(at, now)));
            return Some(format!("{name} fails{}", last.unwrap_or_default()));
        }
        (self.state == "slow").then(|| format!("{name} has been busy for more than 10 s"))
    }

    /// How far the kernel differs from what it should be; none if it does not, or if nothing is known.
    pub fn drift(&self) -> Option<String> {
        let (checked, drift) = self.verified.filter(|(_, drift)| *drift > 0)?;
        let name = self.name;
        Some(format!(
            "{name}: {drift} of {checked} elements in the kernel are not as they must be; see `contiv verify`"
        ))
    }
}

fn and_more(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    }
}

impl AgentHealth {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Healthy => "ready",
            Self::NeedsAttention => "ready, but see below",
            Self::NotReady => "not ready",
        }
    }
}

/// How long ago, in the largest suitable unit.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change<'a> = Box<dyn Fn(&mut HealthFacts<'a>) + 'a>;

    fn healthy() -> HealthFacts<'static> {
        HealthFacts {
            is_ready: true,
            is_synced: true,
            store_down: None,
            holds_deletions: false,
            node_problem: None,
            forwarding_off: &[],
            table_problems: &[],
            self_check: None,
            failover: None,
            renderers: vec![RendererFacts {
                name: "nftables",
                state: "busy",
                failures: 0,
                last_error: Some((Timestamp::UNIX_EPOCH, "an old one")),
                verified: Some((7, 0)),
            }],
            quarantined: 0,
            first_quarantined: None,
            conflicts: 0,
            first_conflict: None,
        }
    }

    #[test]
    fn each_problem_needs_attention_and_is_listed() {
        let failover = FailoverStatus {
            error: Some("no module".to_owned()),
            ..FailoverStatus::default()
        };
        let off = [ForwardingOff {
            ip_family: "IPv4".to_owned(),
            interface: None,
            setting: "net.ipv4.ip_forward".to_owned(),
            service: ServiceId::new("shop", "web"),
        }];
        let changes: Vec<(Change<'_>, &str)> = vec![
            (
                Box::new(|it| it.store_down = Some((Timestamp::UNIX_EPOCH, "refused"))),
                "store down for 60s: refused",
            ),
            (
                Box::new(|it| it.self_check = Some((Timestamp::UNIX_EPOCH, "a rule drops it"))),
                "self-check fails for 60s: a rule drops it",
            ),
            (Box::new(|it| it.holds_deletions = true), "held"),
            (Box::new(|it| it.node_problem = Some("no node")), "no node"),
            (Box::new(|it| it.forwarding_off = &off), "ip_forward"),
            (
                Box::new(|it| it.failover = Some(&failover)),
                "failover does not work",
            ),
            (
                Box::new(|it| it.renderers[0].failures = 1),
                "nftables fails, 60s ago: an old one",
            ),
            (Box::new(|it| it.renderers[0].state = "slow"), "busy"),
            (
                Box::new(|it| it.renderers[0].verified = Some((7, 1))),
                "1 of 7 elements",
            ),
            (Box::new(|it| it.quarantined = 3), "3 objects"),
            (Box::new(|it| it.conflicts = 1), "1 service without"),
        ];
        let now = Timestamp::from_second(60).unwrap();
        assert_eq!(healthy().problems(now), []);
        assert_eq!(healthy().health(), AgentHealth::Healthy);
        for (change, expected) in &changes {
            let mut facts = healthy();
            change(&mut facts);
            let problems = facts.problems(now);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].text.contains(expected), "{problems:?}");
            assert_eq!(facts.health(), AgentHealth::NeedsAttention, "{facts:?}");
            facts.is_ready = false;
            assert_eq!(facts.health(), AgentHealth::NotReady, "{facts:?}");
        }
    }

    #[test]
    fn agent_that_is_not_ready_says_what_it_waits_for() {
        let mut facts = healthy();
        facts.is_ready = false;
        let text = |facts: &HealthFacts<'_>| facts.problems(Timestamp::UNIX_EPOCH)[0].text.clone();
        assert_eq!(text(&facts), "not ready: a renderer has yet to apply");
        facts.is_synced = false;
        assert_eq!(text(&facts), "not ready: the store has yet to be read");
    }
}
