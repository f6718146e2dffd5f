//! The expected outcome of a flow, from kube-proxy's tables and independent of our code.
//!
//! Sources: Kubernetes' `TestInternalExternalMasquerade` (27 cells of source × frontend × policy), `CategorizeEndpoints` (which
//! endpoints count), and the outcomes without endpoints.

use std::collections::BTreeSet;

use contiv_tests::{cluster::Frontend, lab::Host};

use super::matrix::{Flow, Mode, Policies, Source};

/// The expected outcome of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExpectedOutcome {
    /// Each of these answers at times, and no other.
    Answered(BTreeSet<&'static str>),
    /// Rejected at once: there is no backend anywhere.
    Rejected,
    /// No answer at all: there are backends, but the policy leaves none.
    Dropped,
}

/// The backends that may serve, and whether the client is masqueraded.
#[derive(Debug, Clone, Copy)]
enum Cell {
    All,
    AllHidden,
    Local,
    LocalHidden,
}

/// A row of the 27 cells: both policies Cluster, external policy Local, internal policy Local.
fn row(mode: Mode, source: Source, frontend: Frontend) -> [Cell; 3] {
    use Cell::{All, AllHidden, Local, LocalHidden};
    use Frontend::{ClusterIp, ExternalIp, LoadBalancer, NodePort};
    match (source, frontend) {
        // The table's overrides.
        (Source::Pod | Source::Backend, ClusterIp) if mode == Mode::MasqueradeAll => {
            [AllHidden, AllHidden, LocalHidden]
        }
        (Source::Pod | Source::Backend, NodePort | LoadBalancer | ExternalIp)
            if mode == Mode::NoDetection =>
        {
            [AllHidden, Local, AllHidden]
        }
        (_, ClusterIp) if mode == Mode::NoDetection => [All, All, Local],
        // Differs from kube-proxy, which does not masquerade on the way to a cluster IP then: pods count as external.
        (Source::Pod | Source::Backend, _) if mode == Mode::NoPodCidrs => {
            row(mode, Source::External, frontend)
        }
        (Source::Pod | Source::Backend, ClusterIp) => [All, All, Local],
        // The table has no external IPs: they behave like load balancers.
        (Source::Pod | Source::Backend, NodePort | LoadBalancer | ExternalIp) => {
            [AllHidden, All, AllHidden]
        }
        (Source::Node | Source::External, ClusterIp) => [AllHidden, AllHidden, LocalHidden],
        (Source::Node, NodePort | LoadBalancer | ExternalIp) => [AllHidden, AllHidden, AllHidden],
        (Source::External, NodePort | LoadBalancer | ExternalIp) => [AllHidden, Local, AllHidden],
    }
}

fn cell(flow: &Flow) -> Cell {
    let [both_cluster, external_local, internal_local] = row(flow.mode, flow.source, flow.frontend);
    match (flow.policies, flow.frontend) {
        (Policies::Cluster, _) => both_cluster,
        // If both are Local, each frontend uses only one of them.
        (Policies::InternalLocal, _) | (Policies::BothLocal, Frontend::ClusterIp) => internal_local,
        (Policies::ExternalLocal | Policies::BothLocal, _) => external_local,
    }
}

/// The ready ones, or without any, those terminating but still serving.
fn usable(flow: &Flow, counts: impl Fn(&Host) -> bool) -> BTreeSet<&'static str> {
    let names = |hosts: &[&'static Host]| {
        hosts
            .iter()
            .filter(|host| counts(host))
            .map(|host| host.name)
            .collect::<BTreeSet<_>>()
    };
    let ready = names(&flow.endpoints.ready);
    if ready.is_empty() {
        names(&flow.endpoints.terminating)
    } else {
        ready
    }
}

/// The expected outcome of this flow.
pub(crate) fn expected(flow: &Flow, this_node: &Host) -> ExpectedOutcome {
    let all = usable(flow, |_| true);
    let local = usable(flow, |host| host.node == this_node.name);
    if all.is_empty() {
        return ExpectedOutcome::Rejected;
    }
    let may_serve = match cell(flow) {
        Cell::All | Cell::AllHidden => all,
        Cell::Local | Cell::LocalHidden => local,
    };
    if may_serve.is_empty() {
        ExpectedOutcome::Dropped
    } else {
        ExpectedOutcome::Answered(may_serve)
    }
}

/// Whether the client must be masqueraded for the backend `by`.
pub(crate) fn is_hidden(flow: &Flow, by: &str) -> bool {
    // A client that is its own backend could not match the reply from its own address.
    let itself = flow.source == Source::Backend && by == "pod1";
    // Nothing says that the pods of the other node are in the cluster.
    let leaves = flow.mode == Mode::Egress
        && matches!(flow.source, Source::Pod | Source::Backend)
        && by == "pod3";
    itself || leaves || matches!(cell(flow), Cell::AllHidden | Cell::LocalHidden)
}
