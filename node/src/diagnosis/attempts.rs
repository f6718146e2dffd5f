//! What real attempts met.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use contiv_model::Protocol;
use contiv_renderer::packet_path::{
    KnownFlow, Listening, OwnVerdict, ProbeResult, TcpState, WalkEnd,
};

use super::{
    cause::Cause,
    evidence::{Attempt, Evidence, KernelEvidence, PathEvidence, Target},
    report::{Certainty, Report, StepName, StepState},
    sizes::{LET_ERRORS_PASS, suspicions},
    wording::{part, server},
};
use crate::plural::counted;

const LOOK_AT_SERVER: &str =
    "look at the pod: whether its process runs, and listens at that port and all addresses";

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptState {
    /// It was answered.
    Answered,
    /// It was not answered.
    Unanswered,
    /// The answer was seen, and the client has not gone on: it may not have got it.
    HalfOpen,
    /// It is established, and what was sent is not acknowledged.
    Stalled,
}

impl AttemptState {
    /// What conntrack says. Of a refused attempt it keeps nothing.
    pub(super) const fn of(attempt: &Attempt) -> Self {
        let flow = &attempt.flow;
        match (flow.protocol, flow.tcp_state, flow.is_answered) {
            _ if attempt.is_stalled() => Self::Stalled,
            (Protocol::Tcp, Some(TcpState::SynReceived), _) => Self::HalfOpen,
            (.., false) => Self::Unanswered,
            (.., true) => Self::Answered,
        }
    }
}

/// True if packets of an attempt, or of the answer, may have been lost.
pub(super) fn is_lost(attempt: &Attempt) -> bool {
    AttemptState::of(attempt) != AttemptState::Answered
}

pub(super) fn judge(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    judge_listeners(evidence, kernel, report);
    judge_attempts(kernel, report);
    judge_probes(evidence, kernel, report);
}

fn judge_listeners(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let is_served = |path: &&PathEvidence| matches!(path.own, OwnVerdict::Translated { .. });
    let harmed: Vec<_> = kernel
        .paths
        .iter()
        .filter(is_served)
        .filter_map(|path| listener_harm(path, evidence))
        .collect();
    if let Some((code, certainty, text, advice)) = harmed.first() {
        let text = format!("{text}{}", part(harmed.len(), kernel.paths.len()));
        report.fails(StepName::Attempts, *code, *certainty, text, *advice);
    }
}

/// Whether a process of this node listens, where the way ends at one.
fn listener_harm(
    path: &PathEvidence,
    evidence: &Evidence,
) -> Option<(Cause, Certainty, String, &'static str)> {
    let WalkEnd::Local { destination, .. } = &path.first.end else {
        return None;
    };
    let to = server(path, evidence);
    match path.listening.as_ref()? {
        Listening::Here(listener) if listener.is_full() => Some((
            Cause::AcceptQueueFull,
            Certainty::Certain,
            format!("the process of {to} does not accept connections: its queue is full"),
            "look at the process: `ss -ltnp`",
        )),
        Listening::Here(listener) if listener.waiting > 0 && is_tcp(evidence) => Some((
            Cause::AcceptQueueFull,
            Certainty::Observed,
            format!(
                "the process of {to} accepts no connections, or too slowly: {} wait for it",
                listener.waiting
            ),
            "look at the process, it may hang: `ss -ltnp`",
        )),
        Listening::Here(_) => None,
        Listening::Elsewhere(addresses) => Some((
            Cause::ListensElsewhere,
            Certainty::Certain,
            format!(
                "the process of {to} listens at {} only",
                addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" and ")
            ),
            "let it listen at all addresses",
        )),
        Listening::Nowhere => Some((
            Cause::BackendRefuses,
            Certainty::Certain,
            format!("no process of this node listens at {destination}"),
            "start the server, or correct the port",
        )),
    }
}

fn is_tcp(evidence: &Evidence) -> bool {
    matches!(&evidence.target, Target::Flow(flow) if flow.protocol() == Protocol::Tcp)
}

fn judge_attempts(kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Attempts;
    let newest = |state: AttemptState| newest_by_server(&kernel.attempts, state);
    let answered = newest(AttemptState::Answered);
    // What a backend has answered since does not count.
    let bad = |state: AttemptState| {
        let is_bad = |(server, age): &(SocketAddr, u32)| {
            answered.get(server).is_none_or(|answer| age < answer)
        };
        newest(state).into_iter().filter(is_bad).collect::<Vec<_>>()
    };
    let backends: BTreeSet<SocketAddr> = kernel.paths.iter().filter_map(backend).collect();
    let is_backend =
        |(server, _): &(SocketAddr, u32)| backends.is_empty() || backends.contains(server);
    let (silent, stale): (Vec<_>, Vec<_>) = bad(AttemptState::Unanswered)
        .into_iter()
        .partition(is_backend);
    let unanswered: Vec<&KnownFlow> = kernel
        .attempts
        .iter()
        .filter(|attempt| AttemptState::of(attempt) == AttemptState::Unanswered)
        .map(|attempt| &attempt.flow)
        .collect();
    // What was answered since, by whichever backend, was not led there.
    let newest_answer = answered.values().min();
    let is_stale = |(_, age): &&(SocketAddr, u32)| newest_answer.is_none_or(|answer| age < answer);
    if let Some((server, _)) = stale.iter().find(is_stale) {
        let port = unanswered
            .iter()
            .find(|flow| flow.server == *server)
            .map_or(0, |flow| flow.client.port());
        report.fails(
            step,
            Cause::StaleFlow,
            Certainty::Observed,
            format!(
                "conntrack sends packets of the client's port {port} to {server}, which is no backend now, and gets no answer"
            ),
            "let the client use a new port, or delete the entry: `conntrack -D -s CLIENT -d SERVICE`",
        );
    }
    if let Some((first, _)) = silent.first() {
        let strays: Vec<&SocketAddr> = kernel
            .flows_to_client
            .iter()
            .filter(|stray| is_answer_to(stray, &unanswered))
            .map(|stray| &stray.client)
            .collect();
        if let Some(stray) = strays.first() {
            report.fails(
                step,
                Cause::AnswersFromElsewhere,
                Certainty::Observed,
                format!("{first} does not answer, but {stray} sends to the client's port: it answers from another address"),
                "let the server answer from the address that was asked (IP_PKTINFO), or bind it to that address",
            );
        } else {
            let part = part(silent.len(), backends.len().max(1));
            let (certainty, text) = match unanswered.first().map(|flow| flow.protocol) {
                // Nobody knows whether answers are expected.
                Some(Protocol::Udp) => (
                    Certainty::Possible,
                    format!("{first} sent nothing back to this client{part}, if it ever does"),
                ),
                _ => (
                    Certainty::Observed,
                    format!("{first} did not answer attempts of this client{part}"),
                ),
            };
            report.fails(step, Cause::BackendSilent, certainty, text, LOOK_AT_SERVER);
        }
    }
    if report.has(step) {
        return;
    }
    if let Some(stalled) = kernel.attempts.iter().find(|attempt| attempt.is_stalled()) {
        judge_stalled(stalled, kernel, report);
        return;
    }
    if answered.is_empty() {
        let text = "conntrack remembers none of this client: let it try again, or use --probe";
        report.step(step, StepState::Unknown, text);
    } else {
        let text = format!(
            "{} of this client answered",
            counted(answered.len(), "attempt")
        );
        report.step(step, StepState::Ok, text);
    }
}

/// A connection on which small packets pass, and others do not.
fn judge_stalled(stalled: &Attempt, kernel: &KernelEvidence, report: &mut Report) {
    let server = stalled.flow.server;
    let mut paths = kernel.paths.iter();
    let path = paths.find(|path| backend(path).is_none_or(|backend| backend == server));
    let suspicions = path.map_or_else(String::new, suspicions);
    let seconds = stalled.age;
    let text = format!(
        "the connection from port {} to {server} is established, and what was sent is not acknowledged: large packets may not fit somewhere \
         (MTU), or one end is gone; the last packet was {seconds} s ago{suspicions}",
        stalled.flow.client.port()
    );
    // Without the headers of IP and ICMP.
    let payload = if server.is_ipv4() { 1472 } else { 1452 };
    let advice = format!(
        "try from the client which sizes arrive: `ping -M do -s {payload} {}`; {LET_ERRORS_PASS}",
        server.ip()
    );
    let certainty = Certainty::Observed;
    report.fails(
        StepName::Attempts,
        Cause::MtuTooSmall,
        certainty,
        text,
        advice,
    );
}

/// The age of the newest attempt of each server that went so.
fn newest_by_server(attempts: &[Attempt], state: AttemptState) -> BTreeMap<SocketAddr, u32> {
    let mut newest = BTreeMap::new();
    for attempt in attempts {
        if AttemptState::of(attempt) == state {
            let age = newest.entry(attempt.flow.server).or_insert(attempt.age);
            *age = attempt.age.min(*age);
        }
    }
    newest
}

/// True if a flow of another machine goes to the port of an unanswered attempt.
fn is_answer_to(stray: &KnownFlow, unanswered: &[&KnownFlow]) -> bool {
    !stray.is_answered
        && unanswered.iter().any(|attempt| {
            attempt.protocol == stray.protocol
                && (attempt.client == stray.destination || attempt.seen_source == stray.destination)
        })
}

fn backend(path: &PathEvidence) -> Option<SocketAddr> {
    match path.own {
        OwnVerdict::Translated { backend, .. } => Some(backend),
        _ => None,
    }
}

fn judge_probes(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Probe;
    let probed: Vec<(&PathEvidence, &ProbeResult)> = kernel
        .paths
        .iter()
        .filter_map(|path| Some((path, path.probe.as_ref()?)))
        .collect();
    let is_bad = |(_, outcome): &&(&PathEvidence, &ProbeResult)| {
        !matches!(outcome, ProbeResult::Answered | ProbeResult::Failed(_))
    };
    let bad: Vec<_> = probed.iter().filter(is_bad).collect();
    let Some((path, outcome)) = bad.first() else {
        let mut failures = probed.iter().filter_map(|(path, outcome)| match outcome {
            ProbeResult::Failed(error) => Some((path, error)),
            _ => None,
        });
        if let Some((path, error)) = failures.next() {
            let text = format!("{} could not be tried: {error}", server(path, evidence));
            report.step(step, StepState::Unknown, text);
        } else if !probed.is_empty() {
            let text = format!("{} answered this node", counted(probed.len(), "backend"));
            report.step(step, StepState::Ok, text);
        }
        return;
    };
    let to = server(path, evidence);
    let (code, text) = match outcome {
        ProbeResult::Refused => (Cause::BackendRefuses, format!("{to} refuses this node")),
        ProbeResult::Unreachable(error) | ProbeResult::Failed(error) => (
            Cause::BackendUnreachable,
            format!("{to} cannot be reached from this node: {error}"),
        ),
        ProbeResult::Silent | ProbeResult::Answered => (
            Cause::BackendSilent,
            format!("{to} does not answer this node"),
        ),
    };
    let text = format!("{text}{}", part(bad.len(), probed.len()));
    // A policy may let clients in, and drop what this node sends.
    let lately = answered_lately(&kernel.attempts);
    let is_outweighed = |(path, outcome): &(&PathEvidence, &ProbeResult)| {
        let is_answered = backend(path).is_some_and(|it| lately.contains(&it));
        is_answered && **outcome != ProbeResult::Refused
    };
    if bad.iter().copied().all(is_outweighed) {
        let text = format!("{text}; the client was answered");
        report.step(step, StepState::Unclear, text);
        return;
    }
    report.fails(step, code, Certainty::Observed, text, LOOK_AT_SERVER);
}

/// An answer as old as this says that nothing stops connections now.
const ANSWER_RELEVANCE_SECONDS: u32 = 10;

/// The servers that answered an attempt lately.
pub(super) fn answered_lately(attempts: &[Attempt]) -> BTreeSet<SocketAddr> {
    attempts
        .iter()
        .filter(|attempt| {
            AttemptState::of(attempt) == AttemptState::Answered
                && attempt.age <= ANSWER_RELEVANCE_SECONDS
        })
        .map(|attempt| attempt.flow.server)
        .collect()
}
