//! What manifests mean to a node, without an agent.

use std::io::Write;

use contiv_model::{NodeName, Object, Processor, ProcessorConfig, Resync, Snapshot, wire};
use contiv_proto::Kind;
use contiv_store::{Problem, manifest::Parsed};

use super::{Terminal, input::print_problems};

/// What a node is to be like.
pub(super) struct Desired {
    /// None if nothing of the input can be used: an empty state is not what such input means.
    pub(super) snapshot: Option<Snapshot>,
    /// Nothing is wrong with the input.
    pub(super) is_good: bool,
}

/// What the input means to the node of this name, or to one of the input if no name is given. Problems are printed.
pub(super) fn desire(
    parsed: &Parsed,
    node_name: Option<&str>,
    terminal: &mut Terminal,
) -> anyhow::Result<Desired> {
    let (objects, problems) = validate(parsed);
    print_problems(&problems, &mut terminal.err)?;
    let is_good = parsed.problems.is_empty() && problems.is_empty();
    if objects.is_empty() && !is_good {
        return Ok(Desired { snapshot: None, is_good });
    }
    let node = match node_name {
        Some(name) => name.to_owned(),
        None => choose_node(parsed, terminal)?,
    };
    let mut processor = Processor::new(ProcessorConfig::new(NodeName::new(node)));
    processor.resync(Resync { objects, ..Resync::default() });
    Ok(Desired { snapshot: Some(processor.snapshot()), is_good })
}

/// What the processor can use, and what is wrong with the rest.
pub(super) fn validate(parsed: &Parsed) -> (Vec<Object>, Vec<Problem>) {
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    for found in &parsed.objects {
        // No store, so none was there before the others: of two that claim one address the smaller id wins.
        match wire::validate(&found.object, 0) {
            Ok(object) => objects.extend(object),
            Err(fields) => problems.extend(fields.into_iter().map(|error| Problem {
                source: found.source.clone(),
                object: Some(found.key.to_string()),
                field: Some(error.field),
                reason: error.problem,
            })),
        }
    }
    (objects, problems)
}

/// The node whose view it is. Which one decides what is local and where node ports answer, so it is said when there was
/// a choice.
fn choose_node(parsed: &Parsed, terminal: &mut Terminal) -> anyhow::Result<String> {
    let nodes = parsed.objects.iter().filter(|object| object.key.kind() == Kind::Node);
    let mut names: Vec<&str> = nodes.map(|object| object.key.name()).collect();
    names.sort_unstable();
    match names.as_slice() {
        [] => Ok(String::new()),
        [only] => Ok((*only).to_owned()),
        [first, ..] => {
            let count = names.len();
            writeln!(
                terminal.err,
                "note: rendered for node {first}, the first of {count}; --node-name chooses another"
            )?;
            Ok((*first).to_owned())
        }
    }
}
