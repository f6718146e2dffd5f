//! What manifests mean to a node, without an agent.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_model::{Event, Object, Processor, Resync, Snapshot, wire};
use contiv_proto::Kind;
use contiv_store::{Problem, manifest::Parsed};

use super::{
    Terminal,
    input::print_problems,
    node_settings::{NodeConfig, NodeSettings},
};
use crate::config::Config;

/// What a node is to be like.
pub(super) struct Desired {
    /// None if nothing of the input can be used: an empty state is not what such input means.
    pub(super) snapshot: Option<Snapshot>,
    /// Nothing is wrong with the input.
    pub(super) is_good: bool,
}

/// What the input means to a node by these settings. Problems are printed.
pub(super) fn desire(
    parsed: &Parsed,
    settings: &NodeSettings,
    terminal: &mut Terminal,
) -> anyhow::Result<Desired> {
    let nodes = parsed.objects.iter().filter(|object| object.key.kind() == Kind::Node);
    let names: BTreeSet<&str> = nodes.map(|object| object.key.name()).collect();
    let NodeConfig { config, local_addresses } = settings.of_one_of(&names, &mut terminal.err)?;
    let (objects, problems) = validate(parsed);
    print_problems(&problems, &mut terminal.err)?;
    let is_good = parsed.problems.is_empty() && problems.is_empty();
    if objects.is_empty() && !is_good {
        return Ok(Desired { snapshot: None, is_good });
    }
    Ok(Desired { snapshot: Some(process(objects, &config, local_addresses)), is_good })
}

/// What renderers are told of these objects.
pub(super) fn process(
    objects: Vec<Object>,
    config: &Config,
    local_addresses: Option<BTreeSet<IpAddr>>,
) -> Snapshot {
    let mut processor = Processor::new(config.processor());
    processor.apply(local_addresses.map(Event::LocalAddresses));
    processor.resync(Resync { objects, ..Resync::default() });
    processor.snapshot()
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
