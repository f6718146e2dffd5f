//! The renderer `route`: its routes in the kernel, and their effect on packets.

mod advertised;
mod bird;
mod direct;
mod from_the_node;
mod others;

use std::{collections::BTreeSet, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Manifests, State},
    lab::{Lab, Namespace, Result, wait_until},
};

/// The time limit for expected events. Generous, so that a busy machine fails no test.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The table for routing daemons.
const ADVERTISED: &str = "67";
/// The table for the node's own connections.
const FROM_NODE: &str = "68";

/// The renderers `nftables` and `route`.
fn options(state: &Manifests, flags: &[&str]) -> AgentOptions {
    let flags = ["--renderers=route"]
        .iter()
        .chain(flags)
        .map(|flag| (*flag).to_owned())
        .collect();
    AgentOptions {
        flags,
        ..AgentOptions::with_store(state.url())
    }
}

fn start<'lab>(lab: &'lab Lab, state: &Manifests, flags: &[&str]) -> Result<Agent<'lab>> {
    Agent::start(lab, &options(state, flags))
}

/// The routes of a table in both families, as `ip` lists them.
fn routes(namespace: &Namespace, table: &str) -> Result<BTreeSet<String>> {
    let mut routes = BTreeSet::new();
    for family in ["-4", "-6"] {
        // Lists all tables, since listing a table without routes is an error.
        let listed = namespace.exec(&["ip", "-o", family, "route", "show", "table", "all"])?;
        let of_table = |line: &&str| line.contains(&format!(" table {table} "));
        routes.extend(
            listed
                .lines()
                .filter(of_table)
                .map(|line| line.trim().to_owned()),
        );
    }
    Ok(routes)
}

/// The addresses that a table has routes to.
fn addresses(namespace: &Namespace, table: &str) -> Result<BTreeSet<String>> {
    let address = |route: String| {
        let words: Vec<&str> = route
            .split_whitespace()
            .filter(|word| *word != "blackhole")
            .collect();
        words.first().map(|word| (*word).to_owned())
    };
    Ok(routes(namespace, table)?
        .into_iter()
        .filter_map(address)
        .collect())
}

fn wait_for_addresses(namespace: &Namespace, table: &str, expected: &[&str]) -> Result<()> {
    let expected: BTreeSet<String> = expected
        .iter()
        .map(|address| (*address).to_owned())
        .collect();
    let what = format!(
        "{} has exactly {expected:?} in table {table}",
        namespace.host.name
    );
    wait_until(&what, EVENT_TIMEOUT, || {
        addresses(namespace, table).is_ok_and(|found| found == expected)
    })
    .map(drop)
}
