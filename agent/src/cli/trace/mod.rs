//! `contiv trace`

mod desired;
pub(super) mod ends;
mod kernel;

use std::io::Write;

use clap::{Args, ValueEnum};
use contiv_model::Flow;
use serde_json::Value;

use self::{
    desired::Whom,
    ends::{Destination, Source},
};
use super::{Outcome, Terminal, UsageError};

/// Say where a packet goes on a node, and why: service, backends, masquerade, reject or drop
///
/// Asks the agent for what it wants the kernel to do; with -f no agent is needed. As in:
/// contiv trace --from 10.244.1.5 --to 10.96.0.10:53/udp. Exit codes: 0 all is well; 1 nobody could be asked, some input is
/// broken, or the kernel does something else; 2 wrong usage.
#[derive(Debug, Args)]
pub(super) struct Trace {
    /// The address of the client, and after a % the interface of this node by which its packets come in
    #[arg(long, value_name = "ADDR[%IFACE]")]
    from: Source,

    /// What it connects to, as in 10.96.0.1:443/tcp, IPv6 between brackets; without a protocol it is tcp
    #[arg(long, value_name = "ADDR:PORT/PROTO")]
    to: Destination,

    /// Ask the kernel of this machine too, and show every difference; exit code 1 if there is one. As root
    #[arg(long)]
    kernel: bool,

    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Sentences, for people
    Text,
    /// For programs
    Json,
    /// The same as YAML
    Yaml,
}

impl Trace {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let Destination { address, protocol } = self.to;
        let mut flow =
            Flow::new(self.from.address, address, protocol).map_err(|error| UsageError(error.to_string()))?;
        if let Some(interface) = &self.from.interface {
            flow = flow.by_interface(interface.clone());
        }
        let (source, is_good) = self.whom.open(terminal)?;
        let Some(source) = source else { return Ok(Outcome::SomeBad) };
        let (text, json, agrees): (_, Value, _) = if self.kernel {
            let comparison = kernel::compare(&source, &flow)?;
            (comparison.to_string(), serde_json::to_value(&comparison)?, comparison.agrees())
        } else {
            let trace = source.ask(&flow)?;
            (trace.to_string(), serde_json::to_value(&trace)?, true)
        };
        match self.output {
            Output::Text => write!(terminal.out, "{text}")?,
            Output::Json => writeln!(terminal.out, "{json:#}")?,
            Output::Yaml => write!(terminal.out, "{}", serde_saphyr::to_string(&json)?)?,
        }
        Ok(Outcome::good_if(is_good && agrees))
    }
}
