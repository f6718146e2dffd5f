//! The service, and its endpoints.

use contiv_model::{
    NotServed, Protocol,
    trace::{Delivery, DropReason, Pool, Reason, RejectReason, Trace, Verdict},
};

use contiv_renderer::packet_path::{Listening, OwnVerdict, Route, WalkEnd};

use super::{
    cause::Cause,
    evidence::{AgentState, Evidence, KernelEvidence, Target},
    report::{Certainty, Report, StepName, StepState},
};
use crate::{Explanation, plural::counted};

pub(super) fn judge(evidence: &Evidence, report: &mut Report) {
    let certain = |report: &mut Report, code, text: &str, advice: &str| {
        report.fails(StepName::Service, code, Certainty::Certain, text, advice);
    };
    match (&evidence.target, &evidence.explanation) {
        (Target::NoService(code, text), _) => certain(
            report,
            *code,
            text,
            "look at the name and the namespace: `contiv get services -A`",
        ),
        (Target::NoPod(text), _) => certain(
            report,
            Cause::NoSuchPod,
            text,
            "look at the name and the namespace, or give the address of the pod",
        ),
        (Target::Flow(_), Some(explanation)) => judge_explanation(evidence, explanation, report),
        (Target::Flow(_), None) => judge_without_agent(evidence, report),
    }
}

/// Only the kernel's table can say what is served.
fn judge_without_agent(evidence: &Evidence, report: &mut Report) {
    let kernel = match (&evidence.agent, &evidence.kernel) {
        (AgentState::NotRead { .. }, _) | (_, Err(_)) => return,
        (_, Ok(kernel)) => kernel,
    };
    if is_translated(kernel) {
        let text = "what the table in the kernel serves, as last programmed";
        report.step(StepName::Service, StepState::Ok, text);
    } else {
        // With the agent it might.
        report.fails(
            StepName::Service,
            Cause::NotAService,
            Certainty::Certain,
            "the table in the kernel does not serve this destination",
            "start the agent",
        );
    }
}

fn is_translated(kernel: &KernelEvidence) -> bool {
    kernel
        .paths
        .iter()
        .any(|path| matches!(path.own, OwnVerdict::Translated { .. }))
}

fn judge_explanation(evidence: &Evidence, explanation: &Explanation, report: &mut Report) {
    let trace = &explanation.trace;
    if let Some(port) = &trace.matched_port {
        if let Some(lost) = trace.lost.first() {
            let text = format!(
                "{port}; {} asks for the same, and does not get it",
                lost.service
            );
            report.step(StepName::Service, StepState::Unclear, text);
        } else {
            report.step(StepName::Service, StepState::Ok, port.to_string());
        }
    }
    if let Some(former) = &explanation.former {
        report.fails(
            StepName::Service,
            Cause::FormerAddress,
            Certainty::Certain,
            former.to_string(),
            "let the client look up the address again",
        );
        return;
    }
    match &trace.verdict {
        Verdict::Backends(delivery) => judge_delivery(delivery, report),
        Verdict::Rejected(reason) => judge_rejection(trace, reason, report),
        Verdict::Dropped(reason) => judge_drop(trace, reason, report),
        Verdict::Routed => report.step(
            StepName::Endpoints,
            StepState::Ok,
            "routes lead to the backends (renderer route)",
        ),
        Verdict::Egress | Verdict::Untouched => judge_no_service(evidence, explanation, report),
    }
}

fn judge_delivery(delivery: &Delivery, report: &mut Report) {
    let count = counted(delivery.candidates.len(), "backend");
    match delivery.pool {
        Pool::Ready | Pool::Topology { .. } if delivery.failing.is_empty() => {
            report.step(
                StepName::Endpoints,
                StepState::Ok,
                format!("{count} to choose from"),
            );
        }
        Pool::Ready | Pool::Topology { .. } => {
            let failing = delivery.failing.len();
            let text =
                format!("{count} to choose from; {failing} left out: they do not answer this node");
            report.step(StepName::Endpoints, StepState::Ok, text);
        }
        Pool::Terminating => report.step(
            StepName::Endpoints,
            StepState::Unclear,
            format!("none is ready; {count} terminating and still serving"),
        ),
        Pool::Failing => report.step(
            StepName::Endpoints,
            StepState::Unclear,
            format!("{count}, and none answers clients of this node (failover)"),
        ),
    }
}

/// A reason of the stored objects, as a cause with advice.
fn cause_of(reason: &Reason, protocol: Protocol, port: u16) -> (Cause, &'static str) {
    match reason {
        Reason::NoSlice { .. } => (
            Cause::NoSlice,
            "give the slice the label kubernetes.io/service-name, or look at the selector of the service",
        ),
        Reason::HostNames => (Cause::HostNames, "give the endpoints addresses"),
        Reason::NoEndpoints { .. } => (
            Cause::NoEndpoints,
            "compare the selector of the service with the labels of its pods, and see whether they run",
        ),
        Reason::NoSuchPort { .. } => (
            Cause::NoEndpointPort,
            "give the port of the service, and the one of the pods, the same name (targetPort)",
        ),
        Reason::OtherFamily { .. }
        | Reason::AddressOfOtherFamily { .. }
        | Reason::NodePortOfOtherFamily { .. } => (
            Cause::OtherFamily,
            "use an address of the other family, or set ipFamilies of the service",
        ),
        Reason::NotReady { .. } => (
            Cause::NotReady,
            "look at the pods and their readiness probes",
        ),
        Reason::NotServed { because, .. } => match because {
            NotServed::Headless => (
                Cause::Headless,
                "connect to the addresses that DNS answers for it, with the port of its pods",
            ),
            NotServed::ExternalName => (
                Cause::ExternalName,
                "connect to the name that it stands for",
            ),
            NotServed::OtherProxy(_) => (
                Cause::OtherProxy,
                "look at that proxy, or at the label service.kubernetes.io/service-proxy-name",
            ),
            NotServed::NoAddress => (Cause::NoAddress, "give the service a cluster IP"),
        },
        Reason::OtherPorts { ports, .. }
            if ports
                .iter()
                .any(|it| it.port == port && it.protocol != protocol) =>
        {
            (
                Cause::OtherProtocol,
                "connect with the protocol that the service has, or add the port with this one",
            )
        }
        Reason::OtherPorts { .. } => (
            Cause::UnknownPort,
            "connect to a port that the service has, or add this one to it",
        ),
        Reason::NodePortElsewhere { .. } => (
            Cause::NodePortElsewhere,
            "use an address where node ports answer, or change node-port-addresses",
        ),
        Reason::NodePortOfOtherNode { .. } => {
            (Cause::NodePortOfOtherNode, "run `contiv why` on that node")
        }
    }
}

/// A verdict with its reason in the stored objects, if they give one.
fn judge_reasons(
    trace: &Trace,
    text: &str,
    otherwise: (Cause, &str),
    step: StepName,
    report: &mut Report,
) {
    let flow = &trace.flow;
    let reason = trace.reasons.first();
    let (code, advice) = reason.map_or(otherwise, |reason| {
        cause_of(reason, flow.protocol(), flow.port())
    });
    let text = reason.map_or_else(|| text.to_owned(), ToString::to_string);
    report.fails(step, code, Certainty::Certain, text, advice);
}

fn judge_rejection(trace: &Trace, reason: &RejectReason, report: &mut Report) {
    let text = reason.to_string();
    let (step, otherwise) = match reason {
        RejectReason::NoBackends => (
            StepName::Endpoints,
            (Cause::NoEndpoints, "look at the pods of the service"),
        ),
        RejectReason::BackendsOfOtherFamily => (
            StepName::Endpoints,
            (
                Cause::OtherFamily,
                "use an address of the other family, or set ipFamilies of the service",
            ),
        ),
        RejectReason::UnknownPort(_) => (
            StepName::Service,
            (
                Cause::UnknownPort,
                "connect to a port that the service has, or add this one to it",
            ),
        ),
    };
    judge_reasons(trace, &text, otherwise, step, report);
}

fn judge_drop(trace: &Trace, reason: &DropReason, report: &mut Report) {
    let text = reason.to_string();
    let (step, otherwise) = match reason {
        DropReason::SourceRanges(_) => (
            StepName::Service,
            (
                Cause::SourceRanges,
                "add the client to loadBalancerSourceRanges, if it is to connect",
            ),
        ),
        DropReason::InternalPolicyLocal | DropReason::ExternalPolicyLocal => (
            StepName::Endpoints,
            (
                Cause::PolicyLocal,
                "use a node that has a backend, run one on each node, or set the policy to Cluster",
            ),
        ),
        DropReason::Interface(_) => (
            StepName::Service,
            (
                Cause::InterfaceClosed,
                "add the interface to service-interfaces, if services are to answer there",
            ),
        ),
        DropReason::UnallocatedAddress(_) => (
            StepName::Service,
            (
                Cause::UnallocatedAddress,
                "look up the address that the service has now; clients may have kept an old one",
            ),
        ),
    };
    judge_reasons(trace, &text, otherwise, step, report);
}

/// The destination is not a service. That is a failure only if it was meant to be one: by a reason in the stored objects, a former
/// service, or since nothing else is there.
fn judge_no_service(evidence: &Evidence, explanation: &Explanation, report: &mut Report) {
    let trace = &explanation.trace;
    if trace.reasons.is_empty() {
        let text = "no service has this address, port and protocol; routing alone decides";
        let is_refused_here = evidence.kernel.as_ref().is_ok_and(reaches_nobody);
        if is_refused_here {
            report.fails(
                StepName::Service,
                Cause::NotAService,
                Certainty::Certain,
                format!("{text}, and nothing answers there"),
                "look at the address and the port: `contiv services -A`",
            );
        } else {
            report.step(StepName::Service, StepState::Ok, text);
        }
        return;
    }
    judge_reasons(
        trace,
        "",
        (Cause::NotAService, ""),
        StepName::Service,
        report,
    );
}

/// True if the packets are for this node, where no process listens, have no route, or go to a machine that is not there.
fn reaches_nobody(kernel: &KernelEvidence) -> bool {
    kernel.paths.iter().all(|path| match &path.first.end {
        WalkEnd::Local { .. } => path.listening == Some(Listening::Nowhere),
        WalkEnd::NotRouted(Route::Unreachable) => true,
        WalkEnd::Sent { .. } => path
            .neighbour
            .as_ref()
            .is_some_and(|(_, neighbour)| neighbour.state.has_failed()),
        _ => false,
    }) && !kernel.paths.is_empty()
}
