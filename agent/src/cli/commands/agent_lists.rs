//! The lists of one agent or of several, as one.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write,
};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

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

/// So many nodes with the same end are named in the first line.
const NAMED_NODES: usize = 5;

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
        let NodeAnswers {
            answers,
            err,
            is_good,
        } = ask_nodes(agents, list);
        (all.err, all.is_good) = (err, is_good);
        for (node, one) in answers {
            add_lines(&mut all.err, &node, &one.err);
            all.is_good &= one.is_good;
            all.listing.add_node(&node, one.listing);
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

/// The answers of several agents.
#[derive(Debug)]
pub(super) struct NodeAnswers<T> {
    /// With the names of the nodes, in the order of the agents.
    pub(super) answers: Vec<(String, T)>,
    /// A line for each agent that does not answer, or is left out.
    pub(super) err: String,
    /// All have answered.
    pub(super) is_good: bool,
}

/// Asks several agents, some at a time: each also for its node, of which only the first agent counts.
pub(super) fn ask_nodes<T: Send>(
    agents: &[AgentArgument],
    ask: impl Fn(&AgentArgument) -> anyhow::Result<T> + Sync,
) -> NodeAnswers<T> {
    let asked = ask_all(agents, |agent| {
        let status: StatusView = agent.get("/status")?;
        let node = printable(status.node);
        let answer = ask(agent).with_context(|| node.clone())?;
        anyhow::Ok((agent.agent.to_string(), node, answer))
    });
    let mut all = NodeAnswers {
        answers: Vec::new(),
        err: String::new(),
        is_good: true,
    };
    let mut first = FirstOfNode::default();
    for answer in asked {
        // Writing to a `String` cannot fail.
        let _ = match answer {
            Ok((address, node, one)) => match first.add(&node, &address) {
                Ok(()) => {
                    all.answers.push((node, one));
                    continue;
                }
                Err(reason) => writeln!(all.err, "note: {reason}"),
            },
            Err(error) => {
                all.is_good = false;
                // What this machine's kernel does meanwhile is left out.
                writeln!(all.err, "error: {}", first_line(&error))
            }
        };
    }
    all
}

/// The answers for people: first each end with its nodes, then each answer once, with the nodes that gave it.
pub(super) fn by_node<T>(
    answers: &[(String, T)],
    end: impl Fn(&(String, T)) -> String,
    text: impl Fn(&T) -> String,
) -> String {
    let (mut ends, mut texts) = (Vec::new(), Vec::new());
    for answer in answers {
        add_to_group(&mut ends, end(answer), &answer.0);
        add_to_group(&mut texts, text(&answer.1), &answer.0);
    }
    // What most nodes say comes last.
    ends.sort_by_key(|(_, nodes): &(String, Vec<&str>)| nodes.len());
    let ends = ends.iter();
    let ends = ends.map(|(end, nodes)| format!("{end} on {}", few(nodes)));
    let mut all = ends.collect::<Vec<_>>().join("; ");
    if !all.is_empty() {
        all.push('\n');
    }
    for (text, nodes) in &texts {
        // Writing to a `String` cannot fail.
        let _ = write!(all, "\nNODE {}\n{}\n", nodes.join(", "), text.trim_end());
    }
    all
}

/// The first of these nodes, and how many more there are.
fn few(nodes: &[&str]) -> String {
    match nodes.split_at_checked(NAMED_NODES) {
        Some((first, more)) if !more.is_empty() => {
            format!("{} and {} more", first.join(", "), more.len())
        }
        _ => nodes.join(", "),
    }
}

fn add_to_group<'a>(groups: &mut Vec<(String, Vec<&'a str>)>, value: String, node: &'a str) {
    match groups.iter_mut().find(|(known, _)| *known == value) {
        Some((_, nodes)) => nodes.push(node),
        None => groups.push((value, vec![node])),
    }
}

/// The answers for programs: a list of objects, each with its node.
pub(super) fn nodes_json<T: Serialize>(answers: &[(String, T)]) -> serde_json::Result<Value> {
    let with_node = |(node, answer): &(String, T)| {
        let mut value = serde_json::to_value(answer)?;
        if let Value::Object(fields) = &mut value {
            fields.insert("node".to_owned(), node.as_str().into());
        }
        Ok(value)
    };
    answers.iter().map(with_node).collect()
}

/// Adds the lines of a node.
pub(super) fn add_lines(err: &mut String, node: &str, lines: &str) {
    for line in lines.lines() {
        // Writing to a `String` cannot fail.
        let _ = writeln!(err, "{node}: {line}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_first_with_the_rare_ones_before_the_usual() {
        let answers = [("n1", "a"), ("n2", "b"), ("n3", "a")];
        let answers = answers.map(|(node, answer)| (node.to_owned(), answer));
        let end = |(_, answer): &(String, &str)| {
            let end = if *answer == "a" { "works" } else { "fails" };
            end.to_owned()
        };
        let text = by_node(&answers, end, |answer| format!("the way {answer}\n"));
        assert_eq!(
            text,
            "fails on n2; works on n1, n3\n\nNODE n1, n3\nthe way a\n\nNODE n2\nthe way b\n"
        );
    }
}
