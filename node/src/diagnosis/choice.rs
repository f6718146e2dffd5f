//! The choice of the cause among what was found.

use super::{
    attempts::{answered_lately, is_lost},
    cause::Cause,
    evidence::KernelEvidence,
    report::{Certainty, Finding, StepName},
};

/// The cause and the other findings, in the order of the way.
///
/// What stops the packets for certain comes first, in the order in which they meet it. Without that it is what attempts met, unless
/// nothing but their silence is known and something else would explain it. What may be a cause and is not seen to be one counts only if no
/// attempt was answered. Where the state of the agent decides, and is known to be old or wrong, that is the cause.
pub(super) fn choose(
    mut findings: Vec<Finding>,
    kernel: &Result<KernelEvidence, String>,
) -> (Option<Finding>, Vec<Finding>) {
    let is_state = |finding: &Finding| finding.step == StepName::Agent;
    let first = |certainty: Certainty| {
        findings
            .iter()
            .position(|finding| finding.certainty == certainty && !is_state(finding))
    };
    let certain = first(Certainty::Certain);
    // That what was sent is not acknowledged says less than that nothing comes back.
    let is_stall = |it: &Finding| it.step == StepName::Attempts && it.code == Cause::MtuTooSmall;
    let is_silent = |it: &Finding| it.code == Cause::BackendSilent || is_stall(it);
    let is_more =
        |it: &Finding| it.certainty == Certainty::Observed && !is_state(it) && !is_stall(it);
    let observed = (findings.iter().position(is_more)).or_else(|| first(Certainty::Observed));
    // Many nodes have filters beside nftables, which do no harm: they need a sign that packets are lost.
    let loses = kernel.as_ref().is_ok_and(loses_packets);
    let is_candidate = |finding: &Finding| {
        finding.certainty == Certainty::Possible
            && !is_state(finding)
            && (loses || finding.code != Cause::FilterUnclear)
    };
    let possible =
        (findings.iter().position(is_candidate)).filter(|_| !has_answered_attempt(kernel));
    let is_silence = |at: usize| is_silent(&findings[at]);
    let telling = findings
        .iter()
        .position(|it| it.certainty == Certainty::Observed && !is_silent(it));
    let found = match (certain, observed, possible) {
        (Some(certain), ..) => Some(certain),
        // Silence says least. A probe, or a rule that nobody can evaluate, says more.
        (None, Some(silence), possible) if is_silence(silence) => {
            telling.or(possible).or(Some(silence))
        }
        (None, observed, possible) => observed.or(possible),
    };
    let state = findings.iter().position(is_state);
    let cause = match (found, state) {
        // Without an agent, or without a state, nothing else is to be said.
        (_, Some(state)) if findings[state].certainty == Certainty::Certain => Some(state),
        (Some(found), Some(state)) if depends_on_state(findings[found].code) => Some(state),
        // A refused attempt leaves no trace: it may have failed at a backend that the state should not have.
        (None, Some(state)) if !has_answered_attempt(kernel) => Some(state),
        (found, _) => found,
    };
    let cause = cause.map(|cause| findings.remove(cause));
    (cause, findings)
}

/// True if the cause follows from the state of the agent, so that an old state is the cause behind it.
const fn depends_on_state(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::NotAService
            | Cause::FormerAddress
            | Cause::UnallocatedAddress
            | Cause::UnknownPort
            | Cause::OtherProtocol
            | Cause::SourceRanges
            | Cause::PolicyLocal
            | Cause::NoSuchService
            | Cause::NoSlice
            | Cause::NoEndpoints
            | Cause::NoEndpointPort
            | Cause::NotReady
            | Cause::OtherFamily
            | Cause::TableMissing
            | Cause::TableDiffers
            | Cause::BackendRefuses
            | Cause::BackendSilent
            | Cause::BackendUnreachable
            | Cause::NeighbourFailed
            | Cause::StaleFlow
    )
}

/// True if an attempt was not answered, or a filter has dropped packets, or has sent them elsewhere and none of the client has come.
fn loses_packets(kernel: &KernelEvidence) -> bool {
    let is_unseen = kernel.attempts.is_empty();
    let drops = kernel
        .filters
        .iter()
        .any(|(_, filters)| filters.dropped > 0 || filters.redirected > 0 && is_unseen);
    drops || kernel.attempts.iter().any(is_lost)
}

/// True if an attempt was answered lately.
fn has_answered_attempt(kernel: &Result<KernelEvidence, String>) -> bool {
    kernel
        .as_ref()
        .is_ok_and(|kernel| !answered_lately(&kernel.attempts).is_empty())
}
