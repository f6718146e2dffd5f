//! The network of the node: routes, links, and the tables that all connections share.

use contiv_model::trace::Verdict;
use contiv_renderer::packet_path::{Link, LinkState, MASQUERADE_PORTS, OwnVerdict, Route, WalkEnd};

use super::{
    cause::Cause,
    evidence::{Evidence, KernelEvidence, PathEvidence, Target},
    report::{Certainty, Report, StepName, StepState},
    rules::{answer_harm, certainty},
    wording::{part, server},
};

const BRING_UP: &str = "bring it up, and see why it went down: `ip link show`";

/// Code, text and advice of a finding.
type Harm = (Cause, String, &'static str);

pub(super) fn judge(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    judge_route(evidence, kernel, report);
    judge_link(evidence, kernel, report);
    judge_answer(evidence, kernel, report);
    judge_limits(kernel, report);
}

/// The first harm that a way has, with how many ways have one.
fn first_harm<'a>(
    paths: &'a [PathEvidence],
    harm: impl Fn(&'a PathEvidence) -> Option<Harm>,
) -> Option<Harm> {
    let harmed: Vec<Harm> = paths.iter().filter_map(harm).collect();
    let count = harmed.len();
    let (code, text, advice) = harmed.into_iter().next()?;
    Some((code, format!("{text}{}", part(count, paths.len())), advice))
}

fn judge_route(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Route;
    if let Some(wrong) = kernel.settings.first() {
        let (text, advice) = (wrong.text.clone(), wrong.advice.clone());
        report.fails(step, wrong.code, Certainty::Certain, text, advice);
        return;
    }
    if let Some(harm) = first_harm(&kernel.paths, |path| route_harm(path, evidence)) {
        let harm = match kernel.links_down.first() {
            Some(name) if harm.0 == Cause::NoRoute => (
                Cause::LinkDown,
                format!("the interface {} is down, and {}", name.0, harm.1),
                BRING_UP,
            ),
            _ => harm,
        };
        report.fails(step, harm.0, Certainty::Certain, harm.1, harm.2);
        return;
    }
    let text = match kernel.paths.first().map(|path| &path.first.end) {
        Some(WalkEnd::Sent {
            interface, gateway, ..
        }) => match gateway {
            Some(gateway) => format!("by {} to the gateway {gateway}", interface.0),
            None => format!("by {}", interface.0),
        },
        Some(WalkEnd::Local { .. }) => "to a process of this node".to_owned(),
        _ => {
            report.step(step, StepState::Unknown, "it does not get so far");
            return;
        }
    };
    let text = match kernel.paths_left_out {
        0 => text,
        count => format!("{text}; {count} more backends were not followed"),
    };
    report.step(step, StepState::Ok, text);
}

fn route_harm(path: &PathEvidence, evidence: &Evidence) -> Option<Harm> {
    let to = server(path, evidence);
    let is_translated = matches!(path.own, OwnVerdict::Translated { .. });
    match &path.first.end {
        WalkEnd::NotRouted(_) if is_loopback(evidence) => Some((
            Cause::LoopbackNotRouted,
            "packets from loopback addresses do not leave this node".to_owned(),
            "connect from another address of this node, or set net.ipv4.conf.all.route_localnet to 1",
        )),
        WalkEnd::NotRouted(Route::Unreachable) => {
            Some((
                Cause::NoRoute,
                format!("this node has no route to {to}"),
                "look at the routes of the network plugin: `ip route get ADDRESS`, `ip rule`",
            ))
        }
        WalkEnd::NotRouted(Route::Blackhole | Route::Prohibited) => Some((
            Cause::RouteDiscards,
            format!("a route or a rule of this node discards packets to {to} (blackhole, prohibit)"),
            "look at `ip route get ADDRESS` and `ip rule`",
        )),
        WalkEnd::NotRouted(Route::InvalidSource) => Some((
            Cause::ReversePath,
            "the kernel does not accept the client's address from the interface where it comes in (rp_filter)".to_owned(),
            "give the client's address a route by that interface, or set rp_filter of it to 2 or 0",
        )),
        WalkEnd::NotRouted(Route::Failed(error)) => Some((
            Cause::NoRoute,
            format!("the kernel has no route to {to}: {error}"),
            "look at `ip route get ADDRESS`",
        )),
        WalkEnd::Local { destination, .. } if is_translated && !is_on_this_node(path, evidence) => Some((
            Cause::BackendAddressTaken,
            format!("an interface of this node has the address of {to}, so its packets do not leave: {}", destination.ip()),
            "if the address is not meant to be here, remove it: `ip address show to ADDRESS`",
        )),
        _ => None,
    }
}

fn is_loopback(evidence: &Evidence) -> bool {
    matches!(&evidence.target, Target::Flow(flow) if flow.from().is_loopback())
}

/// True if the backend of a way is one of this node, by the state of the agent; without one it is taken for such.
fn is_on_this_node(path: &PathEvidence, evidence: &Evidence) -> bool {
    let OwnVerdict::Translated { backend, .. } = path.own else {
        return true;
    };
    let Some(explanation) = &evidence.explanation else {
        return true;
    };
    let Verdict::Backends(delivery) = &explanation.trace.verdict else {
        return true;
    };
    let candidate = delivery
        .candidates
        .iter()
        .find(|candidate| candidate.endpoint() == backend);
    candidate.is_none_or(|candidate| candidate.local)
}

fn judge_link(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Link;
    let down = |path: &PathEvidence| {
        let link = path.link.as_ref().filter(|link| is_down(link))?;
        Some((
            Cause::LinkDown,
            format!(
                "the interface {} to {} is down",
                link.name.0,
                server(path, evidence)
            ),
            BRING_UP,
        ))
    };
    let client_down = kernel.client_link.as_ref().filter(|link| is_down(link));
    if let Some(link) = client_down {
        report.fails(
            step,
            Cause::LinkDown,
            Certainty::Certain,
            format!("the interface {} of the client is down", link.name.0),
            BRING_UP,
        );
        return;
    }
    if let Some((code, text, advice)) = first_harm(&kernel.paths, down) {
        report.fails(step, code, Certainty::Certain, text, advice);
        return;
    }
    let failed = |path: &PathEvidence| {
        let (address, _) = path
            .neighbour
            .as_ref()
            .filter(|(_, neighbour)| neighbour.state.has_failed())?;
        Some((
            Cause::NeighbourFailed,
            format!(
                "{} is not there on its link: nobody answers for {address}",
                server(path, evidence)
            ),
            "see whether the machine or the pod is there, and has this address: `ip neigh show`",
        ))
    };
    if let Some((code, text, advice)) = first_harm(&kernel.paths, failed) {
        // A backend of this node whose interface is down is looked for elsewhere.
        let is_local = kernel
            .paths
            .iter()
            .any(|path| is_on_this_node(path, evidence));
        match kernel.links_down.first().filter(|_| is_local) {
            Some(name) => report.fails(
                step,
                Cause::LinkDown,
                Certainty::Observed,
                format!("the interface {} is down, and {text}", name.0),
                BRING_UP,
            ),
            None => report.fails(step, code, Certainty::Observed, text, advice),
        }
    }
    judge_filters(kernel, report);
    if let Some(text) = bridged_answer(kernel) {
        report.fails(
            step,
            Cause::BridgedAnswer,
            Certainty::Possible,
            text,
            "load br_netfilter and set net.bridge.bridge-nf-call-iptables=1 (and -ip6tables), or give pods a route by the node",
        );
    }
    if report.has(step) {
        return;
    }
    let links = kernel.paths.iter().filter_map(|path| path.link.as_ref());
    let smallest = links.clone().min_by_key(|link| link.mtu);
    match (smallest, &kernel.client_link) {
        (Some(link), Some(client)) if link.mtu < client.mtu => report.step(
            step,
            StepState::Ok,
            format!(
                "up; {} takes {} bytes and {} {}: large packets rely on ICMP errors (fragmentation needed)",
                link.name.0, link.mtu, client.name.0, client.mtu
            ),
        ),
        (Some(_), _) => report.step(step, StepState::Ok, "up, and no neighbour has failed"),
        (None, _) => report.step(step, StepState::Ok, "none: it stays on this node"),
    }
}

/// What looks at the packets beside nftables.
fn judge_filters(kernel: &KernelEvidence, report: &mut Report) {
    let links = kernel.paths.iter().filter_map(|path| path.link.as_ref());
    let links = links.chain(&kernel.client_link);
    let programs = links
        .filter(|link| link.has_xdp)
        .map(|link| format!("{} has a program of XDP", link.name.0));
    let filters = kernel
        .filters
        .iter()
        .filter(|(_, filters)| !filters.is_empty())
        .map(|(name, filters)| {
            let dropped = match filters.dropped {
                0 => String::new(),
                dropped => format!(", which dropped {dropped} packets"),
            };
            format!("{} has filters of tc{dropped}", name.0)
        });
    let mut named: Vec<String> = programs.chain(filters).collect();
    named.sort();
    named.dedup();
    if named.is_empty() {
        return;
    }
    report.fails(
        StepName::Link,
        Cause::FilterUnclear,
        Certainty::Possible,
        format!(
            "programs beside nftables see these packets, and may drop them: {}",
            named.join("; ")
        ),
        "look at `tc -s filter show dev NAME ingress`, egress too, and `ip -d link show NAME`",
    );
}

/// A server on the client's own bridge answers past this node, so that nothing translates its answers back.
fn bridged_answer(kernel: &KernelEvidence) -> Option<String> {
    let client = kernel
        .client_link
        .as_ref()
        .filter(|link| link.kind.as_deref() == Some("bridge"))?;
    if kernel.bridges_call_rules {
        return None;
    }
    let is_bridged = |path: &&PathEvidence| {
        let kept = matches!(
            path.own,
            OwnVerdict::Translated {
                is_masqueraded: false,
                ..
            }
        );
        kept && path
            .link
            .as_ref()
            .is_some_and(|link| link.name == client.name)
    };
    let path = kernel.paths.iter().find(is_bridged)?;
    let OwnVerdict::Translated { backend, .. } = path.own else {
        return None;
    };
    Some(format!(
        "client and backend {backend} are on the bridge {}, which passes the answers by without translation \
         (bridge-nf-call-iptables is off)",
        client.name.0
    ))
}

fn judge_answer(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Answer;
    if kernel.client_route.is_some() {
        let text = format!(
            "this node has no route to the client{}",
            client_of(evidence)
        );
        let advice = "look at the routes of this node to the client: `ip route get ADDRESS`";
        report.fails(step, Cause::NoRouteBack, Certainty::Certain, text, advice);
        return;
    }
    let harm = |path: &PathEvidence| {
        if let Some((text, advice)) = answer_harm(path) {
            return Some((Cause::RuleStopsAnswer, text, advice));
        }
        match &path.answer.as_ref()?.end {
            WalkEnd::NotRouted(Route::InvalidSource) => Some((
                Cause::AnswerReversePath,
                format!(
                    "the kernel does not accept answers of {} from the interface where they come in (rp_filter)",
                    server(path, evidence)
                ),
                "give the backend a route by that interface, or set rp_filter of it to 2 or 0",
            )),
            WalkEnd::NotRouted(_) => Some((
                Cause::NoRouteBack,
                format!(
                    "this node has no route for the answer to the client{}",
                    client_of(evidence)
                ),
                "look at the routes of this node to the client: `ip route get ADDRESS`",
            )),
            _ => None,
        }
    };
    if let Some((code, text, advice)) = first_harm(&kernel.paths, harm) {
        let answers = kernel.paths.iter().filter_map(|path| path.answer.as_ref());
        let surest = answers
            .filter(|answer| !matches!(answer.end, WalkEnd::Sent { .. } | WalkEnd::Local { .. }))
            .map(certainty)
            .min();
        let certainty = surest.unwrap_or(Certainty::Certain);
        report.fails(step, code, certainty, text, advice);
        return;
    }
    if let Some((code, text, advice)) = first_harm(&kernel.paths, |path| other_way(path, kernel)) {
        report.fails(step, code, Certainty::Possible, text, advice);
        return;
    }
    let is_known = kernel.paths.iter().any(|path| path.answer.is_some());
    let (state, text) = if is_known {
        (StepState::Ok, "the answer would reach the client")
    } else {
        (StepState::Unknown, "it does not get so far")
    };
    report.step(step, state, text);
}

/// An answer that leaves by another interface than the one where the client is.
fn other_way(path: &PathEvidence, kernel: &KernelEvidence) -> Option<Harm> {
    let client = kernel.client_link.as_ref()?;
    match &path.answer.as_ref()?.end {
        WalkEnd::Sent { interface, .. } if *interface != client.name => Some((
            Cause::NoRouteBack,
            format!(
                "the answer leaves by {}, but the client is at {}",
                interface.0, client.name.0
            ),
            "look at the routes of this node to the client: `ip route get ADDRESS`",
        )),
        _ => None,
    }
}

fn client_of(evidence: &Evidence) -> String {
    match &evidence.target {
        Target::Flow(flow) => format!(" {}", flow.from()),
        _ => String::new(),
    }
}

fn judge_limits(kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Limits;
    let usage = kernel
        .conntrack
        .as_ref()
        .map(|usage| (usage.entries, usage.limit));
    if let Some((used, limit)) = usage.filter(|(used, limit)| used >= limit) {
        report.fails(
            step,
            Cause::ConntrackFull,
            Certainty::Certain,
            format!("the table of tracked connections is full: {used} of {limit}"),
            "raise it: `sysctl -w net.netfilter.nf_conntrack_max=…`, and see who opens so many: `conntrack -L`",
        );
    }
    if let Some((used, _)) = kernel.own_ports.filter(|(used, limit)| used >= limit) {
        report.fails(
            step,
            Cause::SourcePortsUsedUp,
            Certainty::Certain,
            format!("{used} connections of this node to this destination: no port is left for more"),
            "widen net.ipv4.ip_local_port_range, or keep connections open instead of opening new ones",
        );
    }
    let ports = |path: &PathEvidence| {
        let used = path
            .source_ports_used
            .filter(|used| *used >= MASQUERADE_PORTS)?;
        let OwnVerdict::Translated { backend, .. } = path.own else {
            return None;
        };
        Some((
            Cause::SourcePortsUsedUp,
            format!("{used} masqueraded connections to {backend}: no source port is left for more"),
            "use more backends, or keep connections open instead of opening new ones",
        ))
    };
    if let Some((code, text, advice)) = first_harm(&kernel.paths, ports) {
        report.fails(step, code, Certainty::Certain, text, advice);
    }
    if !report.has(step) {
        let text = usage.map_or_else(
            || "conntrack has room".to_owned(),
            |(used, limit)| format!("conntrack has room: {used} of {limit}"),
        );
        report.step(step, StepState::Ok, text);
    }
}

/// True if no packet passes an interface.
const fn is_down(link: &Link) -> bool {
    !link.is_up
        || !link.has_carrier && !link.is_loopback
        || matches!(
            link.state,
            LinkState::Down | LinkState::LowerLayerDown | LinkState::NotPresent
        )
}
