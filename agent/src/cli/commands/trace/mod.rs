//! `contiv trace`

pub(in crate::cli) mod desired;
pub(crate) mod ends;
mod kernel;
pub(in crate::cli) mod resolve;

use std::io::Write;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_model::Flow;
use serde_json::Value;

use self::{
    desired::TraceTarget,
    ends::{Destination, Source, Target},
    resolve::{Unresolved, resolve},
};
use crate::cli::{Outcome, Terminal, UsageError, output::format::TextOutput, selection::complete};

/// Explain where a packet goes on a node: service, backends, masquerade, reject or drop
///
/// Asks the agent for the desired state of the kernel; with -f no agent is needed. As in: contiv trace --from 10.244.1.5 --to
/// 10.96.0.10:53/udp. Exit codes: 0 success; 1 there is no answer, some input is invalid, or the kernel differs; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// The address of the client, and after a % the interface of this node by which its packets come in
    #[arg(long, value_name = "ADDR[%IFACE]")]
    from: Source,

    /// What it connects to, as in 10.96.0.1:443/tcp, IPv6 between brackets, without a protocol it is tcp; or a service, as in
    /// web or shop/web:http
    #[arg(long, value_name = "ADDR:PORT|SERVICE", add = ArgValueCompleter::new(complete::services))]
    to: Target,

    /// Ask the kernel of this machine too, and show every difference; exit code 1 if there is one. As root
    #[arg(long)]
    kernel: bool,

    /// What to print
    #[arg(short, long, default_value = "text")]
    output: TextOutput,

    #[command(flatten)]
    target: TraceTarget,
}

impl Trace {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        // Addresses are checked before any agent is queried.
        let flow = match &self.to {
            Target::Address(destination) => Ok(self.flow(*destination)?),
            Target::Service(target) => Err(target),
        };
        let (source, is_good) = self.target.open(terminal)?;
        let Some(source) = source else {
            return Ok(Outcome::PartialFailure);
        };
        let flow = flow.or_else(|target| {
            let destination = resolve(target, self.from.address, &source);
            anyhow::Ok(self.flow(destination.map_err(Unresolved::into_error)?)?)
        })?;
        let (text, json, agrees): (_, Value, _) = if self.kernel {
            let comparison = kernel::compare(&source, &flow)?;
            (
                comparison.to_string(),
                serde_json::to_value(&comparison)?,
                comparison.agrees(),
            )
        } else {
            let trace = source.trace(&flow)?;
            (trace.to_string(), serde_json::to_value(&trace)?, true)
        };
        match self.output {
            TextOutput::Text => write!(terminal.out, "{text}")?,
            TextOutput::Data(format) => write!(terminal.out, "{}", format.print(json, false)?)?,
        }
        Ok(Outcome::success_if(is_good && agrees))
    }

    fn flow(&self, Destination { address, protocol }: Destination) -> Result<Flow, UsageError> {
        let flow = Flow::new(self.from.address, address, protocol)
            .map_err(|error| UsageError(error.to_string()))?;
        Ok(match &self.from.interface {
            Some(interface) => flow.by_interface(interface.clone()),
            None => flow,
        })
    }
}
