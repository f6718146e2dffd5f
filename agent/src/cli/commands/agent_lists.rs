//! The lists of one agent or of several, as one.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write,
};

use crate::cli::{
    output::{
        error_chain::first_line,
        listing::{Listing, Output},
        table::printable,
        table_options::TableOptions,
        watch::{Frame, width},
    },
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, ask_all},
        views::StatusView,
    },
};

/// A list that an agent was asked for.
#[derive(Debug)]
pub(super) struct AgentList {
    pub(super) listing: Listing,
    /// Problems and notes.
    pub(super) err: String,
    pub(super) is_good: bool,
    /// One thing was requested by name.
    pub(super) is_single: bool,
}

impl AgentList {
    /// The list of an agent; or of several, with the node of each item, and a line for each agent that does not answer.
    ///
    /// # Errors
    /// When there is one agent, and `list` fails.
    pub(super) fn of(
        agents: &Agents,
        list: impl Fn(&AgentArgument) -> anyhow::Result<Self> + Sync,
    ) -> anyhow::Result<Self> {
        let agents = match agents {
            Agents::One(agent) => return list(agent),
            Agents::Several(agents) => agents,
        };
        let mut all = Self {
            listing: Listing::of_nodes(),
            err: String::new(),
            is_good: true,
            is_single: false,
        };
        let answers = ask_all(agents, |agent| {
            let status: StatusView = agent.get("/status")?;
            Ok((
                agent.agent.to_string(),
                printable(status.node),
                list(agent)?,
            ))
        });
        let mut first = FirstOfNode::default();
        for answer in answers {
            match answer {
                Ok((address, node, one)) => {
                    if let Err(note) = first.add(&node, &address) {
                        // Writing to a `String` cannot fail.
                        let _ = writeln!(all.err, "note: {note}");
                        continue;
                    }
                    for line in one.err.lines() {
                        let _ = writeln!(all.err, "{node}: {line}");
                    }
                    all.is_good &= one.is_good;
                    all.listing.add_node(&node, one.listing);
                }
                Err(error) => {
                    // What this machine's kernel does meanwhile is left out.
                    let _ = writeln!(all.err, "error: {}", first_line(&error));
                    all.is_good = false;
                }
            }
        }
        Ok(all)
    }

    /// # Errors
    /// When it cannot be printed in this format.
    pub(super) fn print(self, output: &Output, table: &TableOptions) -> anyhow::Result<Frame> {
        Ok(Frame {
            out: self.listing.print(output, table, width(), self.is_single)?,
            err: self.err,
            is_good: self.is_good,
        })
    }
}

/// The addresses that were the first of their nodes.
#[derive(Debug, Default)]
pub(super) struct FirstOfNode(BTreeMap<String, String>);

impl FirstOfNode {
    /// Adds the agent of a node; or returns a note if another address has answered for that.
    pub(super) fn add(&mut self, node: &str, address: &str) -> Result<(), String> {
        match self.0.entry(node.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(address.to_owned());
                Ok(())
            }
            Entry::Occupied(known) => Err(format!(
                "{address} is left out: it answers for the node {node}, as {} does",
                known.get()
            )),
        }
    }
}
