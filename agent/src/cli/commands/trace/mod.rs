//! `contiv trace`

pub(in crate::cli) mod desired;
pub(crate) mod ends;
mod kernel;
pub(in crate::cli) mod resolve;

use std::io::Write;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_model::{Flow, FlowEnd, VerdictKind};
use contiv_node::Explanation;
use serde_json::Value;

use self::{
    desired::{Sources, TraceTarget},
    ends::{Destination, ServiceTarget, Source, Target},
    resolve::{Unresolved, resolve},
};
use super::agent_lists::{NodeAnswers, ask_nodes, by_node, nodes_json};
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
        let (sources, is_good) = self.target.open(terminal)?;
        let source = match sources {
            Sources::None => return Ok(Outcome::PartialFailure),
            Sources::One(source) => source,
            Sources::Several(_) if self.kernel => {
                let problem = "--kernel asks the kernel of this machine: name only its agent";
                return Err(UsageError(problem.to_owned()).into());
            }
            Sources::Several(agents) => {
                let asked = ask_nodes(&agents, |agent| {
                    let source = desired::Source::Agent(agent.clone());
                    let flow = match &flow {
                        Ok(flow) => flow.clone(),
                        Err(target) => self.resolved(target, &source)?,
                    };
                    source.trace(&flow)
                });
                return self.print_nodes(&asked, terminal);
            }
        };
        let flow = flow.or_else(|target| self.resolved(target, &source))?;
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

    /// The connection to a named service.
    fn resolved(&self, target: &ServiceTarget, source: &desired::Source) -> anyhow::Result<Flow> {
        let destination = resolve(target, self.from.address, source);
        let destination = destination.map_err(Unresolved::into_error)?;
        Ok(self.flow(destination)?)
    }

    /// First where it is served and where not, then what each node says.
    fn print_nodes(
        &self,
        asked: &NodeAnswers<Explanation>,
        terminal: &mut Terminal,
    ) -> anyhow::Result<Outcome> {
        terminal.err.write_all(asked.err.as_bytes())?;
        match &self.output {
            TextOutput::Text => {
                let end = |(_, explanation): &(String, Explanation)| {
                    verdict(FlowEnd::of(&explanation.trace).verdict).to_owned()
                };
                let text = |explanation: &Explanation| explanation.to_string();
                write!(terminal.out, "{}", by_node(&asked.answers, end, text))?;
            }
            TextOutput::Data(format) => {
                let value = nodes_json(&asked.answers)?;
                write!(terminal.out, "{}", format.print(value, false)?)?;
            }
        }
        Ok(Outcome::success_if(asked.is_good))
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

const fn verdict(verdict: VerdictKind) -> &'static str {
    match verdict {
        VerdictKind::Served => "served",
        VerdictKind::Rejected => "rejected",
        VerdictKind::Dropped => "dropped",
        VerdictKind::Routed => "routed",
        VerdictKind::NoService => "no service",
    }
}
