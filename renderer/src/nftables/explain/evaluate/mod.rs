//! Executes the rules of `layout` for a new connection, with the elements of a table. Pure.
//!
//! [`Tables`] supplies the elements: rendered ones, or those of the kernel. So the planner can be compared with
//! [`contiv_model::trace()`], and the kernel with both.

mod branch;
mod client;
mod differences;
mod evaluation;
#[cfg(test)]
mod rendered;
mod tables;
mod text;
mod walk;

use std::collections::BTreeMap;

use contiv_model::Flow;

use self::{branch::Branch, tables::Lookup, walk::walk};
use crate::nftables::layout::{Family, Field};

#[cfg(test)]
pub(crate) use self::rendered::RenderedTables;
pub(crate) use self::tables::{SetLookup, Tables};
pub use self::{
    client::{Client, PodDetection},
    differences::differences,
    evaluation::{Choice, Evaluation, FlowOutcome, Share},
};

/// Evaluates a flow.
pub(crate) fn evaluate<T: Tables>(tables: &mut T, flow: &Flow) -> Result<Evaluation, T::Error> {
    let mut lookup = Lookup::new(tables, Family::of(&flow.to()));
    let client = Client::of(&mut lookup, flow)?;
    let mut answer = Evaluation {
        client,
        choice: None,
        shares: Vec::new(),
        remembered: None,
    };
    // The unspecified address is the key of node ports; no packet has it.
    if flow.to().is_unspecified() {
        answer.shares = vec![Share {
            slots: 1,
            ending: FlowOutcome::Untouched,
        }];
        return Ok(answer);
    }
    let branches = walk(&mut lookup, flow)?;
    answer.choice = choice(&branches);
    let mut slots: BTreeMap<FlowOutcome, u32> = BTreeMap::new();
    for (branch, outcome) in branches {
        if branch.is_remembered {
            answer.remembered = Some(outcome);
        } else {
            *slots.entry(outcome).or_default() += branch.slots;
        }
    }
    answer.shares = slots
        .into_iter()
        .map(|(ending, slots)| Share { slots, ending })
        .collect();
    // With a foreign verdict or value the result would mean nothing.
    if let Some(set) = lookup.foreign() {
        answer.shares = vec![Share {
            slots: 1,
            ending: FlowOutcome::Foreign { set: set.name() },
        }];
    }
    Ok(answer)
}

/// How a slot is drawn; none where the connection ends without a draw.
fn choice(branches: &[(Branch, FlowOutcome)]) -> Option<Choice> {
    let mut drawn = branches
        .iter()
        .filter_map(|(branch, _)| Some((branch, branch.drawn_by?)));
    Some(match drawn.clone().next()? {
        (_, Field::ClientHash(..)) => Choice::ClientAddress,
        (branch, _) if branch.asks_memory => Choice::Sticky {
            timeout: drawn.find_map(|(branch, _)| branch.timeout),
        },
        _ => Choice::Random,
    })
}

#[cfg(test)]
mod tests;
