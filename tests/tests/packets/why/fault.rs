//! A fault: how it is made, who notices it, and what an expert would say.

use std::{fmt, time::Duration};

use contiv_tests::lab::Result;

pub(super) use super::scene::Machine;
use super::scene::Scene;

/// How long a client waits for an answer, unless the fault says otherwise. Answers and refusals take milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(700);

/// What clients notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection is answered.
    All,
    /// Some connections are not answered.
    Some,
    /// Connections are established, but large answers do not arrive.
    LargeAnswers,
    /// The same with large requests.
    LargeRequests,
}

/// A step of making or ending a fault.
pub(super) enum Step {
    /// A script of `sh` on a machine.
    Shell(Machine, String),
    /// Anything else.
    Call(fn(&mut Scene<'_>) -> Result<()>),
}

impl Step {
    pub(super) fn run(&self, scene: &mut Scene<'_>) -> Result<()> {
        match self {
            Self::Shell(machine, script) => machine
                .namespace(scene.lab)
                .exec(&["sh", "-ec", script])
                .map(drop),
            Self::Call(call) => call(scene),
        }
    }
}

/// A fault.
pub(super) struct Fault {
    /// What is wrong, in a few words.
    pub(super) name: &'static str,
    /// What an expert would say, in a sentence.
    pub(super) expert: &'static str,
    /// Who connects.
    pub(super) from: Machine,
    /// To what, as `contiv why --to` has it.
    pub(super) to: String,
    /// The codes of causes that are right.
    pub(super) codes: &'static [&'static str],
    pub(super) failure: Failure,
    /// How long a client waits for an answer.
    pub(super) timeout: Duration,
    /// The command may connect to backends.
    pub(super) probes: bool,
    /// Without the fault connections succeed, before and after.
    pub(super) is_healthy_without: bool,
    pub(super) inject: Vec<Step>,
    pub(super) undo: Vec<Step>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {}: {}", self.from, self.to, self.name)
    }
}

/// A fault that nothing makes yet.
pub(super) fn fault(
    name: &'static str,
    from: Machine,
    to: impl Into<String>,
    codes: &'static [&'static str],
    expert: &'static str,
) -> Fault {
    Fault {
        name,
        expert,
        from,
        to: to.into(),
        codes,
        failure: Failure::All,
        timeout: ANSWER_TIMEOUT,
        probes: false,
        is_healthy_without: true,
        inject: Vec::new(),
        undo: Vec::new(),
    }
}

impl Fault {
    /// Made and ended by scripts on a machine.
    pub(super) fn shell(self, on: Machine, inject: &str, undo: &str) -> Self {
        self.inject(Step::Shell(on, inject.to_owned()))
            .undo(Step::Shell(on, undo.to_owned()))
    }

    /// Made and ended by calls.
    pub(super) fn call(
        self,
        inject: fn(&mut Scene<'_>) -> Result<()>,
        undo: fn(&mut Scene<'_>) -> Result<()>,
    ) -> Self {
        self.inject(Step::Call(inject)).undo(Step::Call(undo))
    }

    /// Rules of nft on this node, all of which are removed in the end.
    pub(super) fn nft(self, rules: &str) -> Self {
        self.rules_on(Machine::Node, rules)
    }

    /// The same on any machine.
    pub(super) fn rules_on(self, on: Machine, rules: &str) -> Self {
        self.shell(
            on,
            &format!("nft -f - <<'END'\n{rules}\nEND"),
            REMOVE_TABLES,
        )
    }

    /// Commands of iptables on this node: each line without `iptables`, of IPv6 after `6`.
    pub(super) fn iptables(self, lines: &[&str]) -> Self {
        let command = |line: &&str| match line.strip_prefix("6 ") {
            Some(rest) => format!("ip6tables-nft {rest}\n"),
            None => format!("iptables-nft {line}\n"),
        };
        let script: String = lines.iter().map(command).collect();
        self.shell(Machine::Node, &script, REMOVE_TABLES)
    }

    /// It is there from the beginning, and stays.
    pub(super) fn permanent(mut self) -> Self {
        self.is_healthy_without = false;
        self
    }

    /// The command may connect to backends.
    pub(super) fn probing(mut self) -> Self {
        self.probes = true;
        self
    }

    /// Clients notice only this.
    pub(super) fn failing(mut self, failure: Failure) -> Self {
        self.failure = failure;
        self
    }

    /// Clients wait so long.
    pub(super) fn patient(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Ends it in the reverse order of its steps.
    pub(super) fn undo_in_reverse(mut self) -> Self {
        self.undo.reverse();
        self
    }

    /// One more step of making it.
    pub(super) fn inject(mut self, step: Step) -> Self {
        self.inject.push(step);
        self
    }

    /// One more step of ending it.
    pub(super) fn undo(mut self, step: Step) -> Self {
        self.undo.push(step);
        self
    }
}

/// Removes all tables but those of the agent.
pub(super) const REMOVE_TABLES: &str = "nft list tables | while read -r table family name; do case $name in contiv*) ;; *) \
     nft delete table $family $name;; esac; done";
