//! Why a connection fails on this node: the steps of its way, each with what is known of it, and the one cause.
//!
//! Pure: what drivers found out ([`Evidence`]) becomes a [`Diagnosis`]. `agent`, `service`, `rules`, `network` and `attempts` each judge some
//! steps and note what they find in a `report`; `choice` says which of it is the cause.

mod agent;
mod attempts;
mod cause;
mod choice;
mod evidence;
mod network;
mod report;
mod rules;
mod service;
mod sizes;
mod text;
mod wording;

pub use cause::Cause;
pub use evidence::{
    AgentState, Attempt, Evidence, KernelEvidence, NextHopEvidence, PacketSizes, PathEvidence,
    TableEvidence, Target, WrongSetting,
};
pub use report::{Certainty, Diagnosis, Finding, Step, StepName, StepState};

use choice::choose;
use report::Report;

/// Finds why a connection fails.
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let mut report = Report::default();
    agent::judge(evidence, &mut report);
    service::judge(evidence, &mut report);
    match &evidence.kernel {
        Ok(kernel) => {
            rules::judge_table(evidence, kernel, &mut report);
            rules::judge(evidence, kernel, &mut report);
            network::judge(evidence, kernel, &mut report);
            attempts::judge(evidence, kernel, &mut report);
        }
        Err(problem) => report.step(StepName::Table, StepState::Unknown, problem.clone()),
    }
    let Report { steps, findings } = report;
    let (cause, others) = choose(findings, &evidence.kernel);
    let flow = match &evidence.target {
        Target::Flow(flow) => Some(flow.clone()),
        Target::NoService(..) | Target::NoPod(_) => None,
    };
    let unknown = flow.as_ref().and(evidence.kernel.as_ref().err()).cloned();
    Diagnosis {
        flow,
        steps,
        cause,
        others,
        unknown,
    }
}

#[cfg(test)]
mod tests;
