//! Compares the desired outcome of a flow with that of a table, and describes the differences.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use contiv_model::{
    Trace,
    trace::{Affinity, Client, Delivery, Verdict},
};

use super::{Choice, Evaluation, FlowOutcome};

/// Shares of slots are the weights in lowest terms, so they may differ only by rounding.
const TOLERANCE: f64 = 0.05;
/// Slots chosen by a hash of the client's address: six times its standard deviation.
const TOLERANCE_BY_CLIENT: f64 = 10.0;

/// All differences between the desired outcome and that of the table; empty if they agree.
pub fn differences(wanted: &Trace, found: &Evaluation) -> Vec<String> {
    let mut differences = match &wanted.verdict {
        Verdict::Backends(delivery) => of_delivery(delivery, found),
        Verdict::Rejected(_) => {
            of_verdict("is to be rejected", found, |ending| matches!(ending, FlowOutcome::Rejected { .. }))
        }
        Verdict::Dropped(_) => {
            of_verdict("is to be dropped", found, |ending| matches!(ending, FlowOutcome::Dropped { .. }))
        }
        Verdict::Egress => of_verdict("is to be masqueraded", found, |ending| *ending == FlowOutcome::Egress),
        Verdict::Routed | Verdict::Untouched => {
            of_verdict("is to be left alone", found, |ending| *ending == FlowOutcome::Untouched)
        }
    };
    let client = found.client.kind();
    if !differences.is_empty() && client != wanted.client {
        let (found, wanted) = (words(client), words(wanted.client));
        differences.insert(
            0,
            format!("the client counts as {found}, and is to count as {wanted}; that may explain the rest"),
        );
    }
    differences
}

const fn words(client: Client) -> &'static str {
    match client {
        Client::LocalPod => "a pod of this node",
        Client::Node => "this node itself",
        Client::Outside => "a client outside",
    }
}

/// For flows without a desired backend.
fn of_verdict(wanted: &str, found: &Evaluation, is_wanted: impl Fn(&FlowOutcome) -> bool) -> Vec<String> {
    let wrong = found.shares.iter().filter(|share| !is_wanted(&share.ending));
    wrong.map(|share| format!("the connection {wanted}, and {}", share.ending)).collect()
}

/// Outcomes with a backend: the percentage of new connections, and whether they are masqueraded.
type Backends = BTreeMap<SocketAddr, (f64, bool)>;

fn of_delivery(wanted: &Delivery, found: &Evaluation) -> Vec<String> {
    let candidates = wanted.candidates.iter();
    let wanted_backends: Backends =
        candidates.map(|it| (it.endpoint(), (it.share, wanted.is_hidden_from(it)))).collect();
    let mut found_backends = Backends::new();
    let mut differences = Vec::new();
    for share in &found.shares {
        let percent = found.percent(share.slots);
        match &share.ending {
            FlowOutcome::Served { backend, masqueraded } => {
                found_backends.insert(*backend, (percent, *masqueraded));
            }
            other => {
                let part = if share.slots == found.slots() {
                    String::new()
                } else {
                    format!(" {percent:.1} % of the time")
                };
                differences.push(format!("the connection is to reach a backend, and{part} {other}"));
            }
        }
    }
    if found_backends.is_empty() {
        return differences;
    }
    let tolerance = if wanted.affinity == Affinity::ClientAddress { TOLERANCE_BY_CLIENT } else { TOLERANCE };
    let both: BTreeSet<_> = wanted_backends.keys().chain(found_backends.keys()).collect();
    for backend in both {
        match (wanted_backends.get(backend), found_backends.get(backend)) {
            (Some((percent, _)), None) => differences
                .push(format!("no connection reaches {backend}, which is to get {percent:.1} % of them")),
            (None, Some((percent, _))) => differences
                .push(format!("{percent:.1} % of connections go to {backend}, which is not to get any")),
            (Some(wanted), Some(found)) => {
                differences.extend(of_backend(*backend, *wanted, *found, tolerance));
            }
            (None, None) => (),
        }
    }
    differences.extend(of_choice(wanted.affinity, found.choice));
    differences.extend(of_memory(&wanted_backends, found));
    differences
}

fn of_backend(backend: SocketAddr, wanted: (f64, bool), found: (f64, bool), tolerance: f64) -> Vec<String> {
    let mut differences = Vec::new();
    if (wanted.0 - found.0).abs() > tolerance {
        differences
            .push(format!("{backend} gets {:.1} % of connections, and is to get {:.1} %", found.0, wanted.0));
    }
    differences.extend(of_source(backend, wanted.1, found.1));
    differences
}

fn of_source(backend: SocketAddr, wanted: bool, found: bool) -> Option<String> {
    match (wanted, found) {
        (true, false) => Some(format!(
            "{backend} sees the client's address, which is to be masqueraded: its answers may not come back this way"
        )),
        (false, true) => Some(format!("{backend} sees this node's address, and is to see the client's")),
        _ => None,
    }
}

fn of_choice(wanted: Affinity, found: Option<Choice>) -> Option<String> {
    let found = found?;
    let agree = match wanted {
        Affinity::None => found == Choice::Random,
        Affinity::Timeout { seconds } => found == Choice::Sticky { timeout: Some(seconds) },
        Affinity::ClientAddress => found == Choice::ClientAddress,
    };
    let wanted = match wanted {
        Affinity::None => Choice::Random,
        Affinity::Timeout { seconds } => Choice::Sticky { timeout: Some(seconds) },
        Affinity::ClientAddress => Choice::ClientAddress,
    };
    (!agree).then(|| format!("a backend is chosen {found}, and is to be chosen {wanted}"))
}

/// An affinity entry of the client must lead to a desired backend.
fn of_memory(wanted: &Backends, found: &Evaluation) -> Vec<String> {
    match &found.remembered {
        None => Vec::new(),
        Some(FlowOutcome::Served { backend, masqueraded }) => match wanted.get(backend) {
            Some((_, hidden)) => of_source(*backend, *hidden, *masqueraded).into_iter().collect(),
            None => {
                vec![format!("this client is remembered with {backend}, which is not to get its connections")]
            }
        },
        Some(other) => {
            vec![format!("this client is remembered with a backend, and its next connection {other}")]
        }
    }
}
