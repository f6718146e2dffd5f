//! The outcome of a flow, as reported by each evaluator and by the oracle.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_tests::lab::{Lab, LabError, Result};

use super::{
    matrix::Flow,
    oracle::{ExpectedOutcome, expected, is_hidden},
};

/// The outcome of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlowOutcome {
    /// Answered by one of these pods, with whether the client's address is hidden from it.
    Answered(BTreeSet<(&'static str, bool)>),
    Rejected,
    Dropped,
}

impl FlowOutcome {
    /// The pods with these addresses.
    pub(crate) fn by_addresses(
        lab: &Lab,
        flow: &Flow,
        backends: impl IntoIterator<Item = (IpAddr, bool)>,
    ) -> Result<Self> {
        let by_name = |(address, hidden)| {
            let pod = lab
                .pods()
                .into_iter()
                .find(|pod| pod.host.address(flow.family) == address);
            let stranger = || LabError::Unexpected(format!("{address}, which is no pod's"));
            Ok((pod.ok_or_else(stranger)?.host.name, hidden))
        };
        backends
            .into_iter()
            .map(by_name)
            .collect::<Result<_>>()
            .map(Self::Answered)
    }
}

/// The outcome that the oracle expects.
pub(crate) fn expected_outcome(lab: &Lab, flow: &Flow) -> FlowOutcome {
    match expected(flow, lab.node.host) {
        ExpectedOutcome::Answered(names) => FlowOutcome::Answered(
            names
                .into_iter()
                .map(|name| (name, is_hidden(flow, name)))
                .collect(),
        ),
        ExpectedOutcome::Rejected => FlowOutcome::Rejected,
        ExpectedOutcome::Dropped => FlowOutcome::Dropped,
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in for a closure in map_err"
)]
pub(crate) fn unexpected(error: impl ToString) -> LabError {
    LabError::Unexpected(error.to_string())
}
