//! The network of the node: routes, links, and the tables that all connections share.

use std::net::IpAddr;

use contiv_model::trace::Verdict;
use contiv_renderer::packet_path::{
    DownLink, Link, LinkState, Listening, MASQUERADE_PORTS, Neighbour, OwnVerdict, Route, WalkEnd,
};
use contiv_renderer::shared_tables::{Loss, TableUse};

use super::{
    cause::Cause,
    evidence::{Evidence, KernelEvidence, NextHopEvidence, PathEvidence, Target},
    report::{Certainty, Report, StepName, StepState},
    rules::{answer_harm, certainty},
    sizes,
    wording::{part, server},
};

const BRING_UP: &str = "bring it up, and see why it went down: `ip link show`";

/// What stops the packets of a way, or may.
struct Harm {
    code: Cause,
    certainty: Certainty,
    text: String,
    advice: &'static str,
}

impl Harm {
    const fn certain(code: Cause, text: String, advice: &'static str) -> Self {
        Self {
            code,
            certainty: Certainty::Certain,
            text,
            advice,
        }
    }

    fn report(self, step: StepName, report: &mut Report) {
        report.fails(step, self.code, self.certainty, self.text, self.advice);
    }
}

pub(super) fn judge(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    judge_route(evidence, kernel, report);
    judge_link(evidence, kernel, report);
    judge_answer(evidence, kernel, report);
    judge_limits(kernel, report);
}

/// The first harm of those that are surest, with how many ways have one.
fn first_harm<'a>(
    paths: &'a [PathEvidence],
    harm: impl Fn(&'a PathEvidence) -> Option<Harm>,
) -> Option<Harm> {
    let harmed: Vec<Harm> = paths.iter().filter_map(harm).collect();
    let count = harmed.len();
    let mut first = harmed.into_iter().min_by_key(|harm| harm.certainty)?;
    first.text.push_str(&part(count, paths.len()));
    Some(first)
}

fn judge_route(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let step = StepName::Route;
    if let Some(wrong) = kernel.settings.first() {
        let (text, advice) = (wrong.text.clone(), wrong.advice.clone());
        report.fails(step, wrong.code, Certainty::Certain, text, advice);
        return;
    }
    if let Some(harm) = first_harm(&kernel.paths, |path| route_harm(path, evidence, kernel)) {
        harm.report(step, report);
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

fn route_harm(path: &PathEvidence, evidence: &Evidence, kernel: &KernelEvidence) -> Option<Harm> {
    let to = server(path, evidence);
    let is_translated = matches!(path.own, OwnVerdict::Translated { .. });
    let mut harm = match &path.first.end {
        WalkEnd::NotRouted(_) if is_loopback(evidence) => Harm::certain(
            Cause::LoopbackNotRouted,
            "packets from loopback addresses do not leave this node".to_owned(),
            "connect from another address of this node, or set net.ipv4.conf.all.route_localnet to 1",
        ),
        WalkEnd::NotRouted(Route::Unreachable) => no_route(path, evidence, kernel),
        WalkEnd::NotRouted(Route::Blackhole | Route::Prohibited) => Harm::certain(
            Cause::RouteDiscards,
            format!("a route or a rule of this node discards packets to {to} (blackhole, prohibit)"),
            "look at `ip route get ADDRESS` and `ip rule`",
        ),
        WalkEnd::NotRouted(Route::InvalidSource) => Harm::certain(
            Cause::ReversePath,
            "the kernel does not accept the client's address from the interface where it comes in (rp_filter)".to_owned(),
            "give the client's address a route by that interface, or set rp_filter of it to 2 or 0",
        ),
        WalkEnd::NotRouted(Route::Failed(error)) => Harm::certain(
            Cause::NoRoute,
            format!("the kernel has no route to {to}: {error}"),
            "look at `ip route get ADDRESS`",
        ),
        WalkEnd::Local { destination, .. } if is_translated && !is_on_this_node(path, evidence) => {
            let mut taken = Harm::certain(
                Cause::BackendAddressTaken,
                format!("an interface of this node has the address of {to}, so its packets do not leave: {}", destination.ip()),
                "if the address is not meant to be here, remove it: `ip address show to ADDRESS`",
            );
            // A process that answers at a further address of this node is what it should be, as far as anybody can see.
            match path.listening {
                Some(Listening::Here(_)) => return None,
                Some(Listening::Elsewhere(_) | Listening::Nowhere) => {}
                None => taken.certainty = Certainty::Possible,
            }
            taken
        }
        _ => return None,
    };
    // The tables of a VRF are asked in another way, and the check of sources depends on where the client is.
    let is_guess = kernel.is_client_guessed && harm.code == Cause::ReversePath;
    if kernel.has_vrf || is_guess {
        harm.certainty = Certainty::Possible;
    }
    Some(harm)
}

fn no_route(path: &PathEvidence, evidence: &Evidence, kernel: &KernelEvidence) -> Harm {
    let text = format!("this node has no route to {}", server(path, evidence));
    let address = backend_address(path, evidence);
    let leads_there = |down: &&DownLink| {
        let networks = &down.networks;
        let is_in = |address| networks.iter().any(|network| network.contains(address));
        down.is_only_one || address.is_some_and(is_in)
    };
    if let Some(down) = kernel.links_down.iter().find(leads_there) {
        let text = format!("the interface {} is down, and {text}", down.name.0);
        return Harm::certain(Cause::LinkDown, text, BRING_UP);
    }
    let down: Vec<&str> = kernel.links_down.iter().map(|down| &*down.name.0).collect();
    let remark = match down[..] {
        [] => String::new(),
        _ => format!(" (down, without their routes: {})", down.join(", ")),
    };
    Harm::certain(
        Cause::NoRoute,
        format!("{text}{remark}"),
        "look at the routes of the network plugin: `ip route get ADDRESS`, `ip rule`",
    )
}

fn backend_address(path: &PathEvidence, evidence: &Evidence) -> Option<IpAddr> {
    match (path.own, &evidence.target) {
        (OwnVerdict::Translated { backend, .. }, _) => Some(backend.ip()),
        (_, Target::Flow(flow)) => Some(flow.to()),
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
        let to = server(path, evidence);
        let text = format!("the interface {} to {to} is down", link.name.0);
        Some(Harm::certain(Cause::LinkDown, text, BRING_UP))
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
    if let Some(harm) = first_harm(&kernel.paths, down) {
        harm.report(step, report);
        return;
    }
    let hop = |path| next_hop_harm(path, evidence, kernel);
    let neighbour = |path| neighbour_harm(path, evidence, kernel);
    let harm = first_harm(&kernel.paths, hop).or_else(|| first_harm(&kernel.paths, neighbour));
    if let Some(harm) = harm {
        harm.report(step, report);
    }
    let size = |path| {
        let (certainty, text) = sizes::harm(path, evidence)?;
        Some(Harm {
            code: Cause::MtuTooSmall,
            certainty,
            text,
            advice: sizes::LET_ERRORS_PASS,
        })
    };
    if let Some(harm) = first_harm(&kernel.paths, size) {
        harm.report(step, report);
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
    let mut remarks = kernel
        .paths
        .iter()
        .filter_map(|path| sizes::remark(path, evidence));
    let text = match remarks.next() {
        Some(remark) => format!("up; {remark}"),
        None if kernel.paths.iter().any(|path| path.link.is_some()) => {
            "up, and no neighbour has failed".to_owned()
        }
        None => "none: it stays on this node".to_owned(),
    };
    report.step(step, StepState::Ok, text);
}

/// Some of several next hops of a route do not take packets.
fn next_hop_harm(
    path: &PathEvidence,
    evidence: &Evidence,
    kernel: &KernelEvidence,
) -> Option<Harm> {
    let WalkEnd::Sent {
        interface, gateway, ..
    } = &path.first.end
    else {
        return None;
    };
    let is_chosen =
        |it: &&NextHopEvidence| it.hop.interface == *interface && it.hop.gateway == *gateway;
    let has_failed = |it: &&NextHopEvidence| {
        let neighbour = it.neighbour.as_ref();
        it.hop.is_link_down || neighbour.is_some_and(|neighbour| neighbour.state.has_failed())
    };
    // With addresses alone the choice is the same for all connections of this client.
    let failed: Vec<&NextHopEvidence> = path
        .next_hops
        .iter()
        .filter(has_failed)
        .filter(|it| kernel.chooses_by_ports || is_chosen(it))
        .collect();
    let first = failed.first()?;
    let name = |it: &&NextHopEvidence| {
        let interface = &it.hop.interface.0;
        it.hop.gateway.map_or_else(
            || interface.to_string(),
            |gateway| format!("{gateway} by {interface}"),
        )
    };
    let names: Vec<String> = failed.iter().map(name).collect();
    let which = if kernel.chooses_by_ports {
        "connections that the kernel leads there fail, by their ports"
    } else {
        "connections from this address to the backend are led there"
    };
    let text = format!(
        "{} of {} next hops of the route to {} do not take packets ({}): {which}",
        failed.len(),
        path.next_hops.len(),
        server(path, evidence),
        names.join(", ")
    );
    let is_sure = |it: &&NextHopEvidence| {
        let neighbour = it.neighbour.as_ref();
        it.hop.is_link_down || neighbour.is_some_and(Neighbour::has_failed_lately)
    };
    Some(Harm {
        code: if first.hop.is_link_down {
            Cause::LinkDown
        } else {
            Cause::NeighbourFailed
        },
        certainty: if failed.iter().any(is_sure) {
            Certainty::Observed
        } else {
            Certainty::Possible
        },
        text,
        advice: "take the next hop out of the route, or bring it back: `ip route show`, `ip neigh show`",
    })
}

/// Nobody answers for the address to which the packet is passed.
fn neighbour_harm(
    path: &PathEvidence,
    evidence: &Evidence,
    kernel: &KernelEvidence,
) -> Option<Harm> {
    let (address, neighbour) = path.neighbour.as_ref()?;
    if !neighbour.state.has_failed() {
        return None;
    }
    let certainty = if neighbour.has_failed_lately() {
        Certainty::Observed
    } else {
        Certainty::Possible
    };
    let to = server(path, evidence);
    let text = format!("{to} is not there on its link: nobody answers for {address}");
    // A pod of this node whose interface is down is looked for elsewhere.
    let down = kernel.links_down.iter().find(|down| down.is_of_pod);
    Some(match down.filter(|_| is_on_this_node(path, evidence)) {
        Some(down) => Harm {
            code: Cause::LinkDown,
            certainty,
            text: format!("the interface {} is down, and {text}", down.name.0),
            advice: BRING_UP,
        },
        None => Harm {
            code: Cause::NeighbourFailed,
            certainty,
            text,
            advice: "see whether the machine or the pod is there, and has this address: `ip neigh show`",
        },
    })
}

/// What looks at the packets beside nftables. It is a cause only where packets are lost.
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
    let text = format!(
        "programs beside nftables see these packets, and may drop them: {}",
        named.join("; ")
    );
    report.fails(
        StepName::Link,
        Cause::FilterUnclear,
        Certainty::Possible,
        text,
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
        let off: Vec<&str> = kernel.without_ipv6.iter().map(|name| &*name.0).collect();
        match off[..] {
            [] => {
                let advice =
                    "look at the routes of this node to the client: `ip route get ADDRESS`";
                report.fails(step, Cause::NoRouteBack, Certainty::Certain, text, advice);
            }
            [first, ..] => {
                let text = format!("{text}, and IPv6 is turned off at {}", off.join(", "));
                let advice = format!(
                    "if the client is there, `sysctl -w net.ipv6.conf.{first}.disable_ipv6=0`"
                );
                report.fails(step, Cause::Ipv6Off, Certainty::Certain, text, advice);
            }
        }
        return;
    }
    let harm = |path: &PathEvidence| {
        let answer = path.answer.as_ref()?;
        if let Some((text, advice)) = answer_harm(path) {
            return Some(Harm {
                code: Cause::RuleStopsAnswer,
                certainty: certainty(answer),
                text,
                advice,
            });
        }
        match &answer.end {
            WalkEnd::NotRouted(Route::InvalidSource) => Some(Harm::certain(
                Cause::AnswerReversePath,
                format!(
                    "the kernel does not accept answers of {} from the interface where they come in (rp_filter)",
                    server(path, evidence)
                ),
                "give the backend a route by that interface, or set rp_filter of it to 2 or 0",
            )),
            WalkEnd::NotRouted(_) => Some(Harm::certain(
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
    let harm = first_harm(&kernel.paths, harm)
        .or_else(|| first_harm(&kernel.paths, |path| other_way(path, kernel)));
    if let Some(harm) = harm {
        harm.report(step, report);
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
        WalkEnd::Sent { interface, .. } if *interface != client.name => Some(Harm {
            code: Cause::NoRouteBack,
            certainty: Certainty::Possible,
            text: format!(
                "the answer leaves by {}, but the client is at {}",
                interface.0, client.name.0
            ),
            advice: "look at the routes of this node to the client: `ip route get ADDRESS`",
        }),
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
    judge_neighbour_table(kernel, report);
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
        Some(Harm::certain(
            Cause::SourcePortsUsedUp,
            format!("{used} masqueraded connections to {backend}: no source port is left for more"),
            "use more backends, or keep connections open instead of opening new ones",
        ))
    };
    if let Some(harm) = first_harm(&kernel.paths, ports) {
        harm.report(step, report);
    }
    if !report.has(step) {
        let text = usage.map_or_else(
            || "conntrack has room".to_owned(),
            |(used, limit)| format!("conntrack has room: {used} of {limit}"),
        );
        report.step(step, StepState::Ok, text);
    }
}

/// The kernel has no room to look for a neighbour that it does not know. Entries that others fixed count too, but not to the limit: so only
/// where it was full before.
fn judge_neighbour_table(kernel: &KernelEvidence, report: &mut Report) {
    let was_full = |table: &&TableUse| {
        let mut losses = table.losses.iter();
        table.entries >= table.limit
            && losses.any(|(loss, count)| *loss == Loss::Full && *count > 0)
    };
    let Some(table) = kernel.neighbours.as_ref().filter(was_full) else {
        return;
    };
    let is_unknown = |path: &PathEvidence| {
        matches!(path.first.end, WalkEnd::Sent { .. }) && path.neighbour.is_none()
    };
    if kernel.paths.iter().any(is_unknown) {
        report.fails(
            StepName::Limits,
            Cause::NeighboursFull,
            Certainty::Possible,
            format!(
                "the table of neighbours is full, {} of {}, and has no entry for the next machine of the way",
                table.entries, table.limit
            ),
            format!(
                "raise it: `sysctl -w {}=…`, and see who fills it: `ip neigh show`",
                table.table.limit_setting()
            ),
        );
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
