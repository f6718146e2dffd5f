//! `contiv render`

use std::io::Write;

use clap::{Args, ValueEnum};
use contiv_model::{NodeName, Object, Processor, ProcessorConfig, Resync, wire};
use contiv_proto::Kind;
use contiv_renderer::dry_run;
use contiv_store::{Problem, manifest::Parsed};

use super::{
    Outcome, Terminal,
    input::{Manifests, print_problems},
};

/// Print the dataplane that manifests lead to; needs no privileges and no store
///
/// As in: kubectl get -A -o yaml svc,endpointslices,pods,nodes | contiv render -f -
#[derive(Debug, Args)]
pub(super) struct Render {
    #[command(flatten)]
    manifests: Manifests,

    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Nft)]
    output: Output,

    /// Whose dataplane [default: the only node of the input, or the first by name]
    #[arg(long, value_name = "NAME", env = "CONTIV_NODE_NAME")]
    node_name: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// The ruleset, in the language of nft
    Nft,
    /// Everything that renderers are told
    Json,
    /// The services, for people
    Table,
}

impl Render {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let parsed = self.manifests.read()?;
        self.manifests.report(&parsed, &mut terminal.err)?;
        let (objects, problems) = validate(&parsed);
        print_problems(&problems, &mut terminal.err)?;
        let is_good = parsed.problems.is_empty() && problems.is_empty();
        if objects.is_empty() && !is_good {
            // An empty dataplane is not what this input means.
            return Ok(Outcome::good_if(false));
        }

        let node = match &self.node_name {
            Some(name) => name.clone(),
            None => choose_node(&parsed, terminal)?,
        };
        let mut processor = Processor::new(ProcessorConfig::new(NodeName::new(node)));
        processor.resync(Resync { objects, ..Resync::default() });
        let snapshot = processor.snapshot();
        let text = match self.output {
            Output::Nft => dry_run::nft(&snapshot),
            Output::Json => serde_json::to_string_pretty(&dry_run::json(&snapshot))?,
            Output::Table => dry_run::table(&snapshot),
        };
        writeln!(terminal.out, "{}", text.trim_end())?;
        Ok(Outcome::good_if(is_good))
    }
}

/// What the processor can use, and what is wrong with the rest.
fn validate(parsed: &Parsed) -> (Vec<Object>, Vec<Problem>) {
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

/// The node whose view is printed. Which one it is decides what is local and where node ports answer, so it is said
/// when there was a choice.
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
