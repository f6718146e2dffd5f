//! Words for what several steps name.

use std::net::SocketAddr;

use contiv_model::trace::Verdict;
use contiv_renderer::packet_path::OwnVerdict;

use super::evidence::{Evidence, PathEvidence, Target};

/// The backend of a way, or the destination itself.
pub(super) fn server(path: &PathEvidence, evidence: &Evidence) -> String {
    match (path.own, &evidence.target) {
        (OwnVerdict::Translated { backend, .. }, _) => format!("backend {backend}"),
        (_, Target::Flow(flow)) => SocketAddr::new(flow.to(), flow.port()).to_string(),
        _ => "its destination".to_owned(),
    }
}

/// Of several ways, how many of them: none if all.
pub(super) fn part(number: usize, paths: usize) -> String {
    if number == paths {
        String::new()
    } else {
        format!(" ({number} of {paths} backends)")
    }
}

/// True if the connection is one to a service that backends serve, by the state of the agent.
pub(super) fn is_served(evidence: &Evidence) -> bool {
    evidence
        .explanation
        .as_ref()
        .is_some_and(|explanation| matches!(explanation.trace.verdict, Verdict::Backends(_)))
}
