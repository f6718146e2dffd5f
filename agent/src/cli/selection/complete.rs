//! Shell completion with names that the running agent knows. Without an agent there are none.

use std::{collections::BTreeSet, env, ffi::OsStr, time::Duration};

use clap_complete::engine::CompletionCandidate;
use contiv_model::ServiceId;
use contiv_proto::Kind;
use serde::Deserialize;

use crate::cli::source::{agent_argument::DEFAULT_AGENT, http_client};
use crate::environment::variable;

/// The time limit for a completion: a user waits no longer after pressing a key.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// Services, as NAME in the namespace default and as NAMESPACE/NAME.
pub(crate) fn services(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(
        current,
        known_services().iter().flat_map(|id| {
            let short = (&*id.namespace == "default").then(|| id.name.to_string());
            short.into_iter().chain([id.to_string()])
        }),
    )
}

/// The arguments of `contiv get` and `contiv delete`: kinds, and after the kind of services their names.
pub(crate) fn resources(current: &OsStr) -> Vec<CompletionCandidate> {
    // The shell passes the whole line; the word to complete is the last one.
    let words: Vec<String> = env::args().collect();
    let before = &words[..words.len().saturating_sub(1)];
    let kind = before
        .iter()
        .filter_map(|word| word.parse::<Kind>().ok())
        .next_back();
    match (kind, current.to_string_lossy().split_once('/')) {
        (Some(Kind::Service), _) => services(current),
        (Some(_), _) => Vec::new(),
        (None, Some((kind, _))) if kind.parse() == Ok(Kind::Service) => candidates(
            current,
            known_services()
                .iter()
                .map(|id| format!("{kind}/{}", id.name)),
        ),
        (None, _) => candidates(
            current,
            Kind::ALL.map(|kind| kind.keyword().to_owned()).into_iter(),
        ),
    }
}

/// The namespaces that have services.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(
        current,
        known_services().iter().map(|id| id.namespace.to_string()),
    )
}

/// The candidates that continue the current word, each once.
fn candidates(current: &OsStr, all: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let all: BTreeSet<String> = all.filter(|name| name.starts_with(&*current)).collect();
    all.into_iter().map(CompletionCandidate::new).collect()
}

/// The services of the agent; empty if it does not answer.
fn known_services() -> Vec<ServiceId> {
    #[derive(Deserialize)]
    struct Named {
        id: ServiceId,
    }
    let server = variable("CONTIV_AGENT").unwrap_or_else(|| DEFAULT_AGENT.into());
    let Ok(server) = server.to_string_lossy().parse() else {
        return Vec::new();
    };
    let answer = http_client::get_within(&server, "/services", COMPLETION_TIMEOUT);
    let services: Option<Vec<Named>> = answer
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok());
    services
        .into_iter()
        .flatten()
        .map(|service| service.id)
        .collect()
}
