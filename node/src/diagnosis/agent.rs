//! The agent, and what its state is worth.

use super::{
    cause::Cause,
    evidence::{AgentState, Evidence},
    report::{Certainty, Report, StepName, StepState},
};
use crate::Caveat;

pub(super) fn judge(evidence: &Evidence, report: &mut Report) {
    let fails = |report: &mut Report, code, text: String, advice: &str| {
        report.fails(StepName::Agent, code, Certainty::Certain, text, advice);
    };
    match &evidence.agent {
        AgentState::Runs { revision } => {
            judge_caveats(evidence, report);
            if !report.has(StepName::Agent) {
                let text = format!("in sync with its store at revision {revision}");
                report.step(StepName::Agent, StepState::Ok, text);
            }
        }
        AgentState::Manifests => {
            report.step(StepName::Agent, StepState::Ok, "a store or manifests are asked in its place");
        }
        AgentState::NotRead { reason } => fails(
            report,
            Cause::StoreNotRead,
            format!("the agent has not read its store yet: {reason}"),
            "look at the store and at the URL in `store`; `contiv status` says what the agent waits for",
        ),
        // What is in its table still serves.
        AgentState::Stopped { advice } => report.fails(
            StepName::Agent,
            Cause::AgentStopped,
            Certainty::Possible,
            "no agent runs on this node, so nothing of the store reaches the kernel",
            advice.clone(),
        ),
        AgentState::Hangs { error } => report.fails(
            StepName::Agent,
            Cause::AgentHangs,
            Certainty::Possible,
            format!("the agent does not answer, so nothing of the store reaches the kernel: {error}"),
            "look at the process: `systemctl status contiv-agent`, `journalctl -u contiv-agent`; its watchdog restarts it",
        ),
    }
}

/// Why the state of the agent may not be that of the store. It is the cause only of what depends on it.
fn judge_caveats(evidence: &Evidence, report: &mut Report) {
    let caveats = evidence
        .explanation
        .iter()
        .flat_map(|explanation| &explanation.caveats);
    for caveat in caveats {
        let (code, advice) = match caveat {
            Caveat::StoreDown { .. } | Caveat::FromMirror { .. } => (
                Cause::StoreDown,
                "make the store reachable from this node; until then changes do not arrive",
            ),
            Caveat::HeldDeletions { .. } => (
                Cause::DeletionsHeld,
                "if the deletions are meant, run `contiv confirm-deletions`",
            ),
            Caveat::Quarantined { .. } | Caveat::Unreadable { .. } => (
                Cause::Quarantined,
                "mend the object in the store; it is used as soon as it is valid",
            ),
            Caveat::RendererFailing { .. } => (
                Cause::RendererFails,
                "mend what the error says; the renderer tries again by itself",
            ),
            // A step of the network.
            Caveat::ForwardingOff(_) => continue,
        };
        report.fails(
            StepName::Agent,
            code,
            Certainty::Possible,
            caveat.to_string(),
            advice,
        );
    }
}
