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
pub fn differences(desired: &Trace, actual: &Evaluation) -> Vec<String> {
    let mut differences = match &desired.verdict {
        Verdict::Backends(delivery) => delivery_differences(delivery, actual),
        Verdict::Rejected(_) => verdict_differences("should be rejected", actual, |ending| {
            matches!(ending, FlowOutcome::Rejected { .. })
        }),
        Verdict::Dropped(_) => verdict_differences("should be dropped", actual, |ending| {
            matches!(ending, FlowOutcome::Dropped { .. })
        }),
        Verdict::Egress => verdict_differences("should be masqueraded", actual, |ending| {
            *ending == FlowOutcome::Egress
        }),
        Verdict::Routed | Verdict::Untouched => {
            verdict_differences("should be left alone", actual, |ending| {
                *ending == FlowOutcome::Untouched
            })
        }
    };
    let client = actual.client.kind();
    if !differences.is_empty() && client != desired.client {
        let (actual, desired) = (words(client), words(desired.client));
        differences.insert(
            0,
            format!("the client is treated as {actual} instead of {desired}; this may explain the other differences"),
        );
    }
    differences
}

const fn words(client: Client) -> &'static str {
    match client {
        Client::LocalPod => "a pod of this node",
        Client::Node => "this node itself",
        Client::External => "an external client",
    }
}

/// For flows without a desired backend.
fn verdict_differences(
    desired: &str,
    actual: &Evaluation,
    is_desired: impl Fn(&FlowOutcome) -> bool,
) -> Vec<String> {
    let wrong = actual
        .shares
        .iter()
        .filter(|share| !is_desired(&share.ending));
    wrong
        .map(|share| format!("the connection {desired}, but {}", share.ending))
        .collect()
}

/// Outcomes with a backend: the percentage of new connections, and whether they are masqueraded.
type Backends = BTreeMap<SocketAddr, (f64, bool)>;

fn delivery_differences(desired: &Delivery, actual: &Evaluation) -> Vec<String> {
    let candidates = desired.candidates.iter();
    let desired_backends: Backends = candidates
        .map(|it| (it.endpoint(), (it.share, desired.is_hidden_from(it))))
        .collect();
    let mut actual_backends = Backends::new();
    let mut differences = Vec::new();
    for share in &actual.shares {
        let percent = actual.percent(share.slots);
        match &share.ending {
            FlowOutcome::Served {
                backend,
                masqueraded,
            } => {
                actual_backends.insert(*backend, (percent, *masqueraded));
            }
            other => {
                let part = if share.slots == actual.slots() {
                    String::new()
                } else {
                    format!(" {percent:.1} % of the time")
                };
                differences.push(format!(
                    "the connection should reach a backend, but{part} {other}"
                ));
            }
        }
    }
    if actual_backends.is_empty() {
        return differences;
    }
    let tolerance = if desired.affinity == Affinity::ClientAddress {
        TOLERANCE_BY_CLIENT
    } else {
        TOLERANCE
    };
    let both: BTreeSet<_> = desired_backends
        .keys()
        .chain(actual_backends.keys())
        .collect();
    for backend in both {
        match (desired_backends.get(backend), actual_backends.get(backend)) {
            (Some((percent, _)), None) => differences.push(format!(
                "no connection reaches {backend}, which should get {percent:.1} % of them"
            )),
            (None, Some((percent, _))) => differences.push(format!(
                "{percent:.1} % of connections go to {backend}, which should not get any"
            )),
            (Some(desired), Some(actual)) => {
                differences.extend(backend_differences(*backend, *desired, *actual, tolerance));
            }
            (None, None) => (),
        }
    }
    differences.extend(choice_differences(desired.affinity, actual.choice));
    differences.extend(memory_differences(&desired_backends, actual));
    differences
}

fn backend_differences(
    backend: SocketAddr,
    desired: (f64, bool),
    actual: (f64, bool),
    tolerance: f64,
) -> Vec<String> {
    let mut differences = Vec::new();
    if (desired.0 - actual.0).abs() > tolerance {
        differences.push(format!(
            "{backend} gets {:.1} % of connections, but should get {:.1} %",
            actual.0, desired.0
        ));
    }
    differences.extend(source_differences(backend, desired.1, actual.1));
    differences
}

fn source_differences(backend: SocketAddr, desired: bool, actual: bool) -> Option<String> {
    match (desired, actual) {
        (true, false) => Some(format!(
            "{backend} sees the client's address, which should be masqueraded: its replies may not return through this node"
        )),
        (false, true) => Some(format!(
            "{backend} sees this node's address, but should see the client's"
        )),
        _ => None,
    }
}

fn choice_differences(desired: Affinity, actual: Option<Choice>) -> Option<String> {
    let actual = actual?;
    let agree = match desired {
        Affinity::None => actual == Choice::Random,
        Affinity::Timeout { seconds } => {
            actual
                == Choice::Sticky {
                    timeout: Some(seconds),
                }
        }
        Affinity::ClientAddress => actual == Choice::ClientAddress,
    };
    let desired = match desired {
        Affinity::None => Choice::Random,
        Affinity::Timeout { seconds } => Choice::Sticky {
            timeout: Some(seconds),
        },
        Affinity::ClientAddress => Choice::ClientAddress,
    };
    (!agree).then(|| format!("a backend is chosen {actual}, but should be chosen {desired}"))
}

/// An affinity entry of the client must lead to a desired backend.
fn memory_differences(desired: &Backends, actual: &Evaluation) -> Vec<String> {
    match &actual.remembered {
        None => Vec::new(),
        Some(FlowOutcome::Served {
            backend,
            masqueraded,
        }) => match desired.get(backend) {
            Some((_, hidden)) => source_differences(*backend, *hidden, *masqueraded)
                .into_iter()
                .collect(),
            None => {
                vec![format!(
                    "the affinity entry of this client is {backend}, which should not get its connections"
                )]
            }
        },
        Some(other) => {
            vec![format!(
                "the affinity entry of this client has a backend, but its next connection {other}"
            )]
        }
    }
}
