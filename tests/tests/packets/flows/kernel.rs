//! The flow matrix by the elements and rules in the kernel of the node, as `contiv trace --kernel` reads them.

use contiv_model::Trace;
use contiv_renderer::nftables::{self, Evaluation, Inspector, differences};
use contiv_tests::lab::{Lab, LabError, Result};

use super::{
    matrix::Flow,
    outcomes::{FlowOutcome, expected_outcome, unexpected},
};

/// Evaluates every flow by the kernel's content and describes the answers that differ from the expected outcome or from the
/// agent's.
pub(crate) fn mismatches(lab: &Lab, flows: &[Flow], traces: &[Trace]) -> Result<Vec<String>> {
    lab.node.run(|| {
        let mut inspector = Inspector::open().map_err(unexpected)?;
        let mut wrong = inspector.rules().to_vec();
        for (flow, trace) in flows.iter().zip(traces) {
            let answer = inspector
                .evaluate(&flow.to_model(lab).map_err(unexpected)?)
                .map_err(unexpected)?;
            let (expected, found) = (expected_outcome(lab, flow), outcome(lab, flow, &answer));
            if found.as_ref().ok() != Some(&expected) {
                wrong.push(format!(
                    "{flow}: expected {expected:?}, the kernel's tables say {found:?}"
                ));
            }
            wrong.extend(
                differences(trace, &answer)
                    .into_iter()
                    .map(|words| format!("{flow}: {words}")),
            );
        }
        Ok(wrong)
    })
}

fn outcome(lab: &Lab, flow: &Flow, answer: &Evaluation) -> Result<FlowOutcome> {
    let outcomes: Vec<&nftables::FlowOutcome> =
        answer.shares.iter().map(|share| &share.ending).collect();
    match outcomes.as_slice() {
        [nftables::FlowOutcome::Rejected { .. }] => Ok(FlowOutcome::Rejected),
        [nftables::FlowOutcome::Dropped { .. }] => Ok(FlowOutcome::Dropped),
        outcomes => {
            let backend = |outcome: &&nftables::FlowOutcome| match outcome {
                nftables::FlowOutcome::Served {
                    backend,
                    masqueraded,
                } => Ok((backend.ip(), *masqueraded)),
                other => Err(LabError::Unexpected(other.to_string())),
            };
            let backends: Vec<_> = outcomes.iter().map(backend).collect::<Result<_>>()?;
            FlowOutcome::by_addresses(lab, flow, backends)
        }
    }
}
