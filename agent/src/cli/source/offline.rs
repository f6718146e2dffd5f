//! The effect of manifests on a node, without an agent.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::IpAddr,
};

use contiv_external_workloads::{DerivedList, DerivedSlices};
use contiv_model::{
    Event, NodeFacts, Object, Processor, Resync, Snapshot,
    wire::{self, Findings},
};
use contiv_proto::{Key, Kind, message::endpointslice::EndpointSlice, value};
use contiv_store::{
    Entry, Problem,
    manifest::{ManifestObject, ParsedManifests},
};

use super::{
    input::print_problems,
    node_settings::{NodeConfig, NodeSettings},
    unserved,
};
use crate::cli::{Terminal, output::suggest::suggest};
use crate::config::{self, Config};

/// The desired state of a node.
pub(crate) struct DesiredState {
    /// The state of the node; none if no input is usable: such input does not mean an empty state.
    pub(crate) processor: Option<Processor>,
    /// True if the input has no problems.
    pub(crate) is_good: bool,
}

impl DesiredState {
    /// The state for renderers.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.processor.as_ref().map(Processor::snapshot)
    }
}

/// The effect of the input on a node with these settings. Prints problems; also that the input has no Node object, if
/// everything depends on it (`is_node_needed`), even if no node was named.
pub(crate) fn desired_state(
    parsed: &ParsedManifests,
    settings: &NodeSettings,
    is_node_needed: bool,
    terminal: &mut Terminal,
) -> anyhow::Result<DesiredState> {
    let nodes = parsed
        .objects
        .iter()
        .filter(|object| object.key.kind() == Kind::Node);
    let names: BTreeSet<&str> = nodes.map(|object| object.key.name()).collect();
    let NodeConfig {
        config,
        local_addresses,
    } = settings.for_one_of(&names, &mut terminal.err)?;
    let (objects, problems) = validate(parsed, &mut terminal.err)?;
    let is_good = parsed.problems.is_empty() && problems.is_empty();
    if objects.is_empty() && !is_good {
        return Ok(DesiredState {
            processor: None,
            is_good,
        });
    }
    let processor = processor_with(objects, &config, local_addresses);
    let unserved: Vec<_> = processor.unserved_services().collect();
    write!(
        terminal.err,
        "{}",
        unserved::notes(
            unserved
                .iter()
                .map(|service| (&service.id, &service.not_served))
        )
    )?;
    let facts = processor.node_facts();
    let is_named = !names.is_empty() || config.node_name != config::default_node_name()?;
    let is_unknown = is_node_needed && facts == NodeFacts::default();
    if !names.contains(config.node_name.as_str()) && (is_named || is_unknown) {
        print_missing_node(&config.node_name, &names, &mut terminal.err)?;
    }
    Ok(DesiredState {
        processor: Some(processor),
        is_good,
    })
}

fn print_missing_node(name: &str, nodes: &BTreeSet<&str>, err: &mut impl Write) -> io::Result<()> {
    write!(
        err,
        "note: the input has no object of this node, {name}: no node port is served, and no client counts as local"
    )?;
    let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
    if let Some(near) = suggest(name, &nodes) {
        write!(err, "; did you mean {near}?")?;
    }
    writeln!(err)
}

/// A processor with these objects.
pub(crate) fn processor_with(
    objects: Vec<Object>,
    config: &Config,
    local_addresses: Option<BTreeSet<IpAddr>>,
) -> Processor {
    let mut processor = Processor::new(config.processor());
    processor.apply(local_addresses.map(Event::LocalAddresses));
    processor.resync(Resync {
        objects,
        ..Resync::default()
    });
    processor
}

/// The usable objects, with slices of external workloads, which no controller makes here. Prints the problems of all others, and
/// what is ignored.
pub(crate) fn validate(
    parsed: &ParsedManifests,
    err: &mut impl Write,
) -> io::Result<(Vec<Object>, Vec<Problem>)> {
    let (derived, replaced) = derived_slices(parsed, err)?;
    let mut objects = derived;
    let mut problems = Vec::new();
    for found in parsed
        .objects
        .iter()
        .filter(|found| !replaced.contains(&found.key))
    {
        let problem = |field: String, reason: String, is_warning: bool| Problem {
            source: found.source.clone(),
            object: Some(found.key.to_string()),
            field: Some(field),
            reason,
            is_warning,
        };
        // Without a store no object is older: of two that claim one address the smaller id wins.
        match wire::validate(&found.object, 0) {
            Ok((object, Findings { invalid, warnings })) => {
                objects.extend(object);
                let invalid = invalid
                    .into_iter()
                    .map(|error| problem(error.field, error.problem, true));
                let warnings = warnings
                    .into_iter()
                    .map(|warning| problem(warning.field, warning.reason, true));
                for warning in invalid.chain(warnings) {
                    writeln!(err, "warning: {warning}")?;
                }
            }
            Err(fields) => {
                problems.extend(
                    fields
                        .into_iter()
                        .map(|error| problem(error.field, error.problem, false)),
                );
            }
        }
    }
    print_problems(&problems, err)?;
    Ok((objects, problems))
}

/// The slices of the external workloads among manifests, and the keys of manifests that they replace: slices that the controller
/// made in the cluster where the manifests come from. Names workloads that are behind no service.
fn derived_slices(
    parsed: &ParsedManifests,
    err: &mut impl Write,
) -> io::Result<(Vec<Object>, BTreeSet<Key>)> {
    let entry = |found: &ManifestObject| {
        let value = found.object.encode().ok()?.into();
        Some(Entry {
            key: found.key.to_path(),
            value,
            create_revision: 0,
            mod_revision: 0,
        })
    };
    let mut entries: Vec<Entry> = parsed.objects.iter().filter_map(entry).collect();
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    let DerivedList { replaced, entries } = DerivedSlices::default().list(&entries, 0);
    let decode = |entry: &Entry| value::decode::<EndpointSlice>(&entry.value).ok();
    let slices: Vec<EndpointSlice> = entries.iter().filter_map(decode).collect();
    let targets = slices.iter().flat_map(|slice| {
        let targets = slice
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.target_ref.as_ref());
        targets.map(|target| (slice.namespace.as_str(), target.name.as_str()))
    });
    let behind: BTreeSet<(&str, &str)> = targets.collect();
    for key in parsed.objects.iter().map(|found| &found.key) {
        if key.kind() == Kind::ExternalWorkload && !behind.contains(&(key.namespace(), key.name()))
        {
            writeln!(
                err,
                "note: ExternalWorkload {}/{} is behind no service: none of its namespace selects its labels, or it has no \
                 address of that service's family",
                key.namespace(),
                key.name()
            )?;
        }
    }
    let objects = slices
        .into_iter()
        .filter_map(|slice| wire::validate(&slice.into(), 0).ok()?.0)
        .collect();
    Ok((
        objects,
        replaced
            .iter()
            .filter_map(|path| Key::parse(path).ok()?)
            .collect(),
    ))
}
