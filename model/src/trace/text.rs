//! The text form of a trace: a label and a sentence on each line.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    Affinity, Candidate, Client, Delivery, Detection, DropReason, FrontendKind, Masquerade,
    MatchedPort, Pool, RejectReason, Rule, Trace, Verdict,
};
use crate::BackendState;

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "flow", &self.flow)?;
        let client = match (self.client, self.detection) {
            (Client::LocalPod, _) => "a pod of this node",
            (Client::Node, _) => "this node itself",
            (Client::External, Detection::Known) => {
                "external: neither this node nor one of its pods"
            }
            (Client::External, Detection::Unknown) => {
                "external: no range or interface of pods is known, so pods of this node count as external too"
            }
            (Client::External, Detection::NeedsInterface) => {
                "external, if it does not come from a pod of this node: say by which interface, as in ADDR%IFACE"
            }
        };
        line(f, "client", client)?;
        match &self.matched_port {
            Some(port) => line(f, "service", port)?,
            None => line(f, "service", "none has this address, port and protocol")?,
        }
        for claim in &self.lost {
            let (service, frontend, holder) = (&claim.service, claim.frontend, &claim.holder);
            line(
                f,
                "lost",
                format_args!(
                    "{service} asks for {frontend} as well; {holder} holds it: the older one does, or where that cannot be \
                     told the first by name"
                ),
            )?;
        }
        match &self.verdict {
            Verdict::Backends(delivery) => write_delivery(f, delivery)?,
            Verdict::Rejected(reason) => {
                line(
                    f,
                    "verdict",
                    "REJECTED: the client is refused at once (TCP reset or ICMP error)",
                )?;
                line(f, "why", reason)?;
            }
            Verdict::Dropped(reason) => {
                line(f, "verdict", "DROPPED: the client gets no answer")?;
                line(f, "why", reason)?;
            }
            Verdict::Routed => {
                line(
                    f,
                    "verdict",
                    "ROUTED: it is left as it is, and routes lead to the backends",
                )?;
                line(
                    f,
                    "why",
                    "the renderer route carries this service; `ip route get` says where to",
                )?;
            }
            Verdict::Egress => {
                line(
                    f,
                    "verdict",
                    "EGRESS: it leaves the cluster with the address of this node",
                )?;
                line(
                    f,
                    "why",
                    "masquerade-egress, and the destination is in none of the non-masquerade-cidrs",
                )?;
            }
            Verdict::Untouched => {
                line(
                    f,
                    "verdict",
                    "UNTOUCHED: no service answers there; routing and other tools decide",
                )?;
            }
        }
        self.reasons
            .iter()
            .try_for_each(|reason| line(f, "why", reason))
    }
}

fn line(f: &mut Formatter<'_>, label: &str, sentence: impl Display) -> fmt::Result {
    writeln!(f, "{label:<9} {sentence}")
}

impl Display for MatchedPort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, port {}/{}", self.service, self.port, self.protocol)?;
        if !self.name.is_empty() {
            write!(f, " ({})", self.name)?;
        }
        f.write_str(match self.kind {
            FrontendKind::ClusterIp => ", by its cluster IP",
            FrontendKind::LoadBalancer => ", by its load-balancer address",
            FrontendKind::ExternalIp => ", by its external IP",
            FrontendKind::NodePort => ", by its node port",
        })
    }
}

fn write_delivery(f: &mut Formatter<'_>, delivery: &Delivery) -> fmt::Result {
    match delivery.candidates.len() {
        1 => line(f, "verdict", "SERVED by one backend")?,
        count => line(
            f,
            "verdict",
            format_args!("SERVED by one of {count} backends"),
        )?,
    }
    line(
        f,
        "why",
        format_args!("{}; {}", rule(delivery.rule), pool(delivery)),
    )?;
    let width = delivery
        .candidates
        .iter()
        .map(|it| it.endpoint().to_string().len())
        .max()
        .unwrap_or(0);
    for candidate in &delivery.candidates {
        line(f, "backend", row(candidate, width)?)?;
    }
    for failing in &delivery.failing {
        line(
            f,
            "left out",
            format_args!("{failing}, failing: it does not answer clients of this node"),
        )?;
    }
    line(f, "source", source(delivery.masquerade))?;
    if delivery.masquerade.is_hidden() {
        for candidate in delivery
            .candidates
            .iter()
            .filter(|candidate| candidate.stays)
        {
            let endpoint = candidate.endpoint();
            line(
                f,
                "",
                format_args!("but kept if {endpoint} is chosen: that is this node itself"),
            )?;
        }
    } else {
        for candidate in delivery
            .candidates
            .iter()
            .filter(|candidate| candidate.hairpin)
        {
            let endpoint = candidate.endpoint();
            line(
                f,
                "",
                format_args!("but hidden if {endpoint} is chosen: the client is that backend"),
            )?;
        }
        for candidate in delivery
            .candidates
            .iter()
            .filter(|candidate| candidate.egress)
        {
            let endpoint = candidate.endpoint();
            line(
                f,
                "",
                format_args!(
                    "but masqueraded if {endpoint} is chosen: that is outside the cluster"
                ),
            )?;
        }
    }
    if delivery
        .candidates
        .iter()
        .any(|candidate| delivery.is_hidden_from(candidate))
    {
        for (interface, source) in &delivery.masquerade_sources {
            line(
                f,
                "",
                format_args!("masqueraded as {source} where it leaves by {interface}"),
            )?;
        }
    }
    match delivery.affinity {
        Affinity::None => line(
            f,
            "affinity",
            "none: each connection draws a backend at random, by weight",
        ),
        Affinity::Timeout { seconds } => line(
            f,
            "affinity",
            format_args!(
                "a client keeps its backend until {seconds} s after its last new connection"
            ),
        ),
        Affinity::ClientAddress => line(
            f,
            "affinity",
            "the client's address decides: the same backend while the backends stay",
        ),
    }
}

/// One backend; endpoints are padded to this width.
fn row(candidate: &Candidate, width: usize) -> Result<String, fmt::Error> {
    let Candidate { share, weight, .. } = candidate;
    let mut row = String::new();
    write!(
        row,
        "{:<width$}  {share:>5.1} %, weight {weight}",
        candidate.endpoint().to_string()
    )?;
    row.push_str(if candidate.local {
        ", on this node"
    } else {
        ", elsewhere"
    });
    row.push_str(match candidate.state {
        BackendState::Ready => ", ready",
        BackendState::Terminating => ", terminating",
        BackendState::Failing => ", failing",
    });
    Ok(row)
}

const fn rule(rule: Rule) -> &'static str {
    match rule {
        Rule::InternalCluster => "internal policy Cluster: backends anywhere",
        Rule::InternalLocal => "internal policy Local: only backends on this node",
        Rule::ExternalCluster => "external policy Cluster: backends anywhere",
        Rule::ExternalLocal => "external policy Local: only backends on this node",
        Rule::ExternalLocalFromInside => {
            "external policy Local, but the client is on this node: backends anywhere"
        }
    }
}

fn pool(delivery: &Delivery) -> String {
    match delivery.pool {
        Pool::Ready => "all that are ready".to_owned(),
        Pool::Topology { left_out } => format!(
            "of the ready ones those preferred here (topology hints or local backends first); left out: {left_out}"
        ),
        Pool::Terminating => "none is ready, so those terminating but still serving".to_owned(),
        Pool::Failing => {
            "all are failing: they do not answer clients of this node, but there is no other"
                .to_owned()
        }
    }
}

const fn source(masquerade: Masquerade) -> &'static str {
    match masquerade {
        Masquerade::KeptForPod => "kept: a local pod connects to a cluster IP",
        Masquerade::KeptForAll => {
            "kept: to a cluster IP, and no client is masqueraded there (local-detect none)"
        }
        Masquerade::KeptForPodByExternalLocal => {
            "kept: a local pod connects to an external address, external policy Local"
        }
        Masquerade::KeptByExternalLocal => {
            "kept: external policy Local preserves the client's address"
        }
        Masquerade::HiddenNotAPod => {
            "masqueraded: to a cluster IP, and not from a local pod; the answer must come back through this node"
        }
        Masquerade::HiddenForAll => {
            "masqueraded: to a cluster IP, and every client is (masquerade-all)"
        }
        Masquerade::HiddenByExternalCluster => {
            "masqueraded: external policy Cluster; the answer must come back through this node"
        }
        Masquerade::HiddenForNode => {
            "masqueraded: this node itself connects; the answer must come back to where it was translated"
        }
    }
}

impl Display for RejectReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBackends => f.write_str(
                "no backend anywhere is ready, or terminating and still serving",
            ),
            Self::BackendsOfOtherFamily => f.write_str(
                "all backends are of the other address family, IPv4 or IPv6; look at ipFamilies of the service and at what \
                 its pods have",
            ),
            Self::UnknownPort(service) => {
                write!(f, "the address is the cluster IP of {service}, which has no such port and protocol")
            }
        }
    }
}

impl Display for DropReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceRanges(ranges) => {
                f.write_str("the client is in none of the source ranges that may connect:")?;
                ranges.iter().try_for_each(|range| write!(f, " {range}"))
            }
            Self::InternalPolicyLocal => {
                f.write_str("internal policy Local, and no backend on this node; other nodes have some")
            }
            Self::ExternalPolicyLocal => f.write_str(
                "external policy Local, and no backend on this node; the load balancer should use another node",
            ),
            Self::Interface(name) => {
                write!(f, "it is received at {name}, where services do not answer (service-interfaces)")
            }
            Self::UnallocatedAddress(range) => {
                write!(f, "no service has this address of the service range {range}")
            }
        }
    }
}
