//! Compares the final content of the kernel with that of a fresh start.

use std::{collections::BTreeMap, fmt::Write, iter};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Service},
    kernel::{Elements, read_elements, without_unused_chains},
    lab::{Lab, Result, wait_until},
};

use super::run_state::{EVENT_TIMEOUT, put_until_accepted};

/// Asserts that the kernel's content equals that of a fresh start, byte for byte.
pub(super) fn assert_it_is_right<'lab>(
    lab: &'lab Lab,
    etcd: &Etcd<'lab>,
    agent: Agent<'lab>,
    options: &AgentOptions,
) -> Result<()> {
    let last = Service::new("last", 200, &[lab.pod4.host]);
    put_until_accepted(etcd, &last)?;
    agent.wait_until_applied(&last)?;
    // From here on deletions in etcd are applied.
    wait_until("no deletion is held any more", EVENT_TIMEOUT, || {
        let _ = agent.http("POST", "/controller/confirm-deletions");
        agent
            .status()
            .is_ok_and(|status| status["synced"] == true && status.get("held_deletions").is_none())
    })?;
    agent.wait_until_applied(&last)?;
    agent.stop()?;
    let found = canonical(lab)?;
    lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
    // An agent without a memory of the past.
    let fresh = Agent::start_on(&lab.node, "fresh", options)?;
    fresh.wait_until_applied(&last)?;
    fresh.stop()?;
    let expected = canonical(lab)?;
    assert!(
        found == expected,
        "the kernel has, where it should have: {:#?}",
        differences(&found, &expected)
    );
    println!(
        "{:8} bytes of the table are as a fresh start writes them",
        expected.len()
    );
    Ok(())
}

/// The first lines that differ.
fn differences<'a>(found: &'a str, expected: &'a str) -> Vec<(&'a str, &'a str)> {
    const MAX_SHOWN_LINES: usize = 20;
    let lines = found
        .lines()
        .chain(iter::repeat(""))
        .zip(expected.lines().chain(iter::repeat("")));
    let longest = found.lines().count().max(expected.lines().count());
    lines
        .take(longest)
        .filter(|(found, expected)| found != expected)
        .take(MAX_SHOWN_LINES)
        .collect()
}

/// The table as text independent of its history. Three things depend on it: the slots of backends, unused chains, and the order
/// in which sets and chains were created.
fn canonical(lab: &Lab) -> Result<String> {
    let elements = without_unused_chains(read_elements(&lab.node)?);
    assert!(
        elements
            .get("services4")
            .is_some_and(|services| !services.is_empty()),
        "{elements:?}"
    );
    let mut text = String::new();
    for (set, elements) in &elements {
        for (element, count) in elements {
            let _ = writeln!(text, "{set}: {element} ({count})");
        }
    }
    let listed = lab
        .node
        .exec(&["nft", "--stateless", "list", "table", "inet", "contiv"])?;
    for (header, body) in blocks(&listed) {
        if !is_unused_pick(&header, &elements) {
            let _ = writeln!(text, "{header}\n{body}");
        }
    }
    Ok(text)
}

/// Sets, maps and chains by their first line, without elements, which are compared by their content.
fn blocks(listed: &str) -> BTreeMap<String, String> {
    let mut blocks = BTreeMap::new();
    let mut header = String::new();
    let mut in_elements = false;
    for line in listed.lines() {
        if line.starts_with("\t\telements = {") {
            in_elements = true;
        }
        if in_elements {
            in_elements = !line.ends_with('}');
        } else if line.starts_with('\t') && line.ends_with('{') && !line.starts_with("\t\t") {
            line.clone_into(&mut header);
            blocks.insert(header.clone(), String::new());
        } else if let Some(body) = blocks.get_mut(&header)
            && line.starts_with('\t')
        {
            body.push_str(line);
            body.push('\n');
        }
    }
    blocks
}

fn is_unused_pick(header: &str, elements: &Elements) -> bool {
    let Some(name) = header
        .trim()
        .strip_prefix("chain ")
        .and_then(|rest| rest.strip_suffix(" {"))
    else {
        return false;
    };
    let leads_there = |element: &String| element.ends_with(&format!("goto {name}"));
    name.starts_with("pick") && !elements.values().flat_map(BTreeMap::keys).any(leads_there)
}
