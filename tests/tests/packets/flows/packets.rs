//! Sends the packets of a flow and compares the outcomes with the expected one.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use contiv_tests::lab::{Lab, Outcome, Protocol, Result};

use super::{
    matrix::{Flow, Source},
    oracle::{ExpectedOutcome, expected, is_hidden},
};

/// The time without an answer after which a packet counts as dropped. Refusals and answers take a few milliseconds.
pub(crate) const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of connections after which an unexpected backend would have answered.
const MIN_CONNECTIONS: usize = 8;
/// The number of connections after which every expected backend has answered, except once in 10^17 runs.
const MAX_CONNECTIONS: usize = 64;

/// Runs all flows and describes the mismatches. Flows without an answer are awaited in parallel.
pub(crate) fn mismatches(lab: &Lab, flows: &[Flow]) -> Result<Vec<String>> {
    let (silent, others): (Vec<&Flow>, Vec<&Flow>) = flows
        .iter()
        .partition(|flow| expected(flow, lab.node.host) == ExpectedOutcome::Dropped);
    let mut wrong = Vec::new();
    for flow in others {
        wrong.extend(mismatch(lab, flow)?);
    }
    thread::scope(|scope| {
        let runs: Vec<_> = silent
            .into_iter()
            .map(|flow| scope.spawn(move || mismatch(lab, flow)))
            .collect();
        for run in runs {
            wrong.extend(
                run.join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?,
            );
        }
        Ok(wrong)
    })
}

/// Describes the mismatch of a flow, if there is one.
fn mismatch(lab: &Lab, flow: &Flow) -> Result<Option<String>> {
    let expected = expected(flow, lab.node.host);
    let from = flow.source.namespace(lab);
    let address = flow.service.address(lab, flow.frontend, flow.family);
    let protocol = flow.lab_protocol();
    let complaint = |got: &str| Some(format!("{flow}: expected {expected:?}, got {got}"));
    let first = match &expected {
        ExpectedOutcome::Answered(_) => from.ask(protocol, address)?,
        ExpectedOutcome::Rejected | ExpectedOutcome::Dropped => {
            from.ask_within(protocol, address, NO_ANSWER_TIMEOUT)?
        }
    };
    Ok(match (&expected, first) {
        (ExpectedOutcome::Rejected, Outcome::Refused { .. })
        | (ExpectedOutcome::Dropped, Outcome::TimedOut) => None,
        (ExpectedOutcome::Answered(by), Outcome::Answered { .. }) => {
            match ask_until_all_answered(lab, flow, protocol, by) {
                Err(error) => complaint(&error.to_string()),
                Ok(seen) => compare(flow, by, &seen).and_then(|got| complaint(&got)),
            }
        }
        (_, other) => complaint(&format!("{other:?}")),
    })
}

/// For each server, whether the connection of each answer was masqueraded.
type RepliesByServer = BTreeMap<String, Vec<bool>>;

/// Opens new connections until each server of `by` has answered twice.
fn ask_until_all_answered(
    lab: &Lab,
    flow: &Flow,
    protocol: Protocol,
    by: &BTreeSet<&str>,
) -> Result<RepliesByServer> {
    let from = flow.source.namespace(lab);
    let address = flow.service.address(lab, flow.frontend, flow.family);
    let mut seen = RepliesByServer::new();
    for count in 1..=MAX_CONNECTIONS {
        let mut session = from.open(protocol, address)?;
        let answer = session.ask()?;
        let own = session.local_address()?;
        let hidden = match flow.source {
            // The node's own address may be the masquerade address; then the port distinguishes the two.
            Source::Node => answer.seen_source != own,
            // The kernel may change the port of a client that uses it twice, which hides nothing.
            Source::Pod | Source::Backend | Source::External => answer.seen_source.ip() != own.ip(),
        };
        seen.entry(answer.by).or_default().push(hidden);
        let twice = |name: &&str| seen.get(*name).is_some_and(|answers| answers.len() > 1);
        if count >= MIN_CONNECTIONS && by.iter().all(twice) {
            break;
        }
    }
    Ok(seen)
}

/// Describes the difference between the answers and the expected ones.
fn compare(flow: &Flow, by: &BTreeSet<&'static str>, seen: &RepliesByServer) -> Option<String> {
    let names: BTreeSet<&str> = seen.keys().map(String::as_str).collect();
    if names != *by {
        return Some(format!("answers of {names:?}"));
    }
    seen.iter().find_map(|(name, answers)| {
        let hidden = answers.iter().filter(|hidden| **hidden).count();
        let right = match (is_hidden(flow, name), flow.source) {
            // The kernel changes the port of a connection that would collide with another one.
            (false, Source::Node) => hidden < answers.len(),
            (false, _) => hidden == 0,
            // By chance a random port is the client's own once in 30,000 times.
            (true, Source::Node) => hidden * 2 >= answers.len(),
            (true, _) => hidden == answers.len(),
        };
        let words = if is_hidden(flow, name) {
            "was not hidden"
        } else {
            "was hidden"
        };
        (!right).then(|| format!("the right answers, but the client's address {words} from {name}"))
    })
}
