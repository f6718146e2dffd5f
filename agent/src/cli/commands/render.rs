//! `contiv render`

use std::io::Write;

use clap::{Args, builder::ValueParserFactory};
use contiv_model::Snapshot;
use contiv_renderer::dry_run;

use crate::cli::{
    Outcome, Terminal,
    output::{
        format::{DataFormat, Format, FormatParser},
        table::Table,
    },
    source::{input::Manifests, node_settings::NodeSettings, offline::desired_state},
};

/// Print the dataplane for manifests; needs no privileges and no store
///
/// As in: kubectl get -A -o yaml svc,endpointslices,pods,nodes | contiv render -f -. It is the dataplane of the node named by
/// --node-name; otherwise of this machine, if the input has its node or no nodes; otherwise of the first node. The settings are
/// those of an agent on this machine: flags, environment and configuration file. Exit codes: 0 success; 1 a manifest is invalid
/// (the others are rendered); 2 wrong usage or configuration.
#[derive(Debug, Args)]
pub(crate) struct Render {
    #[command(flatten)]
    manifests: Manifests,

    /// What to print
    #[arg(short, long, default_value = "nft")]
    output: Output,

    #[command(flatten)]
    settings: NodeSettings,
}

#[derive(Debug, Clone)]
enum Output {
    Nft,
    Table,
    /// The complete input of renderers.
    Data(DataFormat),
}

impl From<DataFormat> for Output {
    fn from(format: DataFormat) -> Self {
        Self::Data(format)
    }
}

impl Format for Output {
    const FOR_PEOPLE: &'static [(&'static str, &'static str, Self)] = &[
        ("nft", "The ruleset, in the language of nft", Self::Nft),
        ("table", "The services, for people", Self::Table),
    ];
}

impl ValueParserFactory for Output {
    type Parser = FormatParser<Self>;

    fn value_parser() -> Self::Parser {
        FormatParser::new()
    }
}

impl Render {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let parsed = self.manifests.read()?;
        self.manifests.report(&parsed, &mut terminal.err)?;
        let desired = desired_state(&parsed, &self.settings, false, terminal)?;
        let Some(snapshot) = desired.snapshot() else {
            return Ok(Outcome::PartialFailure);
        };
        let text = match self.output {
            Output::Nft => format!("{}\n", dry_run::nft(&snapshot).trim_end()),
            Output::Table => table(&snapshot),
            Output::Data(format) => format.print(dry_run::json(&snapshot), false)?,
        };
        write!(terminal.out, "{text}")?;
        Ok(Outcome::success_if(desired.is_good))
    }
}

fn table(snapshot: &Snapshot) -> String {
    let mut table = Table::new(&dry_run::COLUMNS);
    for row in dry_run::rows(snapshot) {
        table.push(row.to_vec());
    }
    table.within(None).to_string()
}
