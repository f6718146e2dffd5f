//! `contiv refused`

use std::{collections::BTreeMap, net::IpAddr};

use clap::Args;
use contiv_model::{Frontend, ServiceId};
use serde::Deserialize;

use super::list_query::{ListEntry, ListQuery};
use crate::cli::{
    Outcome, Terminal,
    output::{color::TextStyle, table::Cell},
};

/// Print who was refused: attempts to connect to services that this node rejected or dropped, with the reason and the clients
///
/// REASON is no-endpoints (no backend on any node: rejected), policy (a policy allows only backends of this node, and there is
/// none: dropped) or source-ranges (the client is in none: dropped). ATTEMPTS counts since a day without any; CLIENTS are those
/// of the last two minutes with their attempts. Exit codes: 0 success; 1 the agent does not answer; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Refused {
    #[command(flatten)]
    query: ListQuery,
}

/// Refused attempts in the agent's JSON.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RefusedView {
    pub(super) service: ServiceId,
    frontend: Frontend,
    refused_by: BTreeMap<String, u64>,
    clients: Vec<ClientView>,
    more_clients: usize,
}

#[derive(Debug, Clone, Deserialize)]
struct ClientView {
    address: IpAddr,
    attempts: usize,
}

/// How many clients a row names.
const NAMED_CLIENTS: usize = 3;

impl Refused {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        self.query.run::<RefusedView>(terminal)
    }
}

impl ListEntry for RefusedView {
    const PATH: &'static str = "/refused";
    const NOUN: &'static str = "refused attempt";
    const TITLES: &'static [&'static str] = &["FRONTEND", "REASON", "ATTEMPTS", "CLIENTS"];
    // That nobody was refused is good news.
    const IS_ONE_EXPECTED: bool = false;

    fn service(&self) -> &ServiceId {
        &self.service
    }

    fn cells(&self) -> Vec<Cell> {
        let reasons: Vec<&str> = self.refused_by.keys().map(String::as_str).collect();
        let attempts: u64 = self.refused_by.values().sum();
        vec![
            self.frontend.to_string().into(),
            Cell::styled(reasons.join(","), TextStyle::Warning),
            attempts.to_string().into(),
            clients(self).into(),
        ]
    }
}

/// The first clients, and how many more there are.
fn clients(refused: &RefusedView) -> String {
    let first = refused.clients.iter().take(NAMED_CLIENTS);
    let mut names: Vec<String> = first
        .map(|client| format!("{} ({})", client.address, client.attempts))
        .collect();
    let more = refused.more_clients + refused.clients.len().saturating_sub(NAMED_CLIENTS);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    if names.is_empty() {
        return "none lately".to_owned();
    }
    names.join(", ")
}
