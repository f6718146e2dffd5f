//! `contiv why`

use std::{collections::BTreeSet, io::Write, net::IpAddr, str::FromStr};

use anyhow::{Context, bail};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_model::{Flow, NotServed, PodId};
use contiv_node::{
    Explanation,
    diagnosis::{AgentState, Cause, Diagnosis, Evidence, Target as Ends, diagnose},
};
use serde::Deserialize;

use super::{
    agent_lists::{NodeAnswers, ask_nodes, by_node, nodes_json},
    trace::{
        desired::{Source, Sources, TraceTarget, query_of},
        ends::{self, Target},
        resolve::{Unresolved, resolve},
    },
};
use crate::{
    cli::{
        Outcome, Terminal, UsageError,
        output::format::TextOutput,
        selection::{complete, name::Name},
        source::{
            agent_absence,
            http_client::{self, Server},
        },
    },
    kernel_evidence,
};

/// Find out why a connection fails on this node: the steps of its way, and the one cause
///
/// The agent looks at its state, the service, its table, the rules of other programs, routes, links, the way of the answer, and at what
/// real attempts of this client met in the last minutes. Without an agent, and with -f or --store, it is the kernel of this machine that is
/// looked at; as root. As in: contiv why --from pod/web-1 --to shop/db. Exit codes: 0 nothing stops the connection; 1 a cause was
/// found, or may be one, or it is not known; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The client: an address, and after a % the interface by which its packets come in; or pod/NAME, pod/NAMESPACE/NAME
    #[arg(long, value_name = "CLIENT")]
    from: Client,

    /// What it connects to, as in 10.96.0.1:443/tcp, IPv6 between brackets, without a protocol it is tcp; or a service, as in
    /// web or shop/web:http
    #[arg(long, value_name = "ADDR:PORT|SERVICE", add = ArgValueCompleter::new(complete::services))]
    to: Target,

    /// Try each backend once from this node too, for at most four seconds: a connection of TCP, or an
    /// empty datagram
    #[arg(long)]
    probe: bool,

    /// What to print
    #[arg(short, long, default_value = "text")]
    output: TextOutput,

    #[command(flatten)]
    target: TraceTarget,
}

/// The client on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Client {
    Address(ends::Source),
    Pod(Name),
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("pod/") {
            Some(name) => name.parse().map(Self::Pod),
            None => text
                .parse()
                .map(Self::Address)
                .map_err(|error: String| format!("{error}; name a pod as in pod/web-1")),
        }
    }
}

/// A pod in the agent's JSON.
#[derive(Debug, Deserialize)]
struct PodView {
    id: PodId,
    #[serde(default)]
    ips: BTreeSet<IpAddr>,
}

impl Why {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let (sources, is_good) = self.target.open(terminal)?;
        let source = match sources {
            Sources::None => return Ok(Outcome::PartialFailure),
            Sources::One(source) => source,
            Sources::Several(agents) => {
                let asked = ask_nodes(&agents, |agent| self.ask(&Source::Agent(agent.clone())));
                return self.print_nodes(asked, terminal);
            }
        };
        let diagnosis = match source.agent() {
            Some(agent) => match self.ask(&source) {
                Err(error) if agent.agent.is_local() && is_without_answer(&error) => {
                    self.without_agent(&error)?
                }
                asked => asked?,
            },
            None => self.by_manifests(&source)?,
        };
        match &self.output {
            TextOutput::Text => write!(terminal.out, "{diagnosis}")?,
            TextOutput::Data(format) => {
                let text = format.print(serde_json::to_value(&diagnosis)?, false)?;
                write!(terminal.out, "{text}")?;
            }
        }
        Ok(Outcome::success_if(is_good && diagnosis.is_good()))
    }

    /// First where it fails and where it works, then what each node says. A node that does not have the pod is left out if
    /// another one has it.
    fn print_nodes(
        &self,
        mut asked: NodeAnswers<Diagnosis>,
        terminal: &mut Terminal,
    ) -> anyhow::Result<Outcome> {
        let has_pod = |diagnosis: &Diagnosis| {
            let cause = diagnosis.cause.as_ref();
            cause.is_none_or(|cause| cause.code != Cause::NoSuchPod)
        };
        if asked
            .answers
            .iter()
            .any(|(_, diagnosis)| has_pod(diagnosis))
        {
            asked.answers.retain(|(_, diagnosis)| has_pod(diagnosis));
        }
        terminal.err.write_all(asked.err.as_bytes())?;
        match &self.output {
            TextOutput::Text => {
                let end = |(_, diagnosis): &(String, Diagnosis)| match diagnosis {
                    Diagnosis {
                        cause: Some(cause), ..
                    } => format!("fails ({})", cause.text),
                    Diagnosis {
                        unknown: Some(_), ..
                    } => "not known".to_owned(),
                    _ => "works".to_owned(),
                };
                let text = |diagnosis: &Diagnosis| diagnosis.to_string();
                write!(terminal.out, "{}", by_node(&asked.answers, end, text))?;
            }
            TextOutput::Data(format) => {
                let value = nodes_json(&asked.answers)?;
                write!(terminal.out, "{}", format.print(value, false)?)?;
            }
        }
        let mut all = asked.answers.iter();
        let is_good = asked.is_good && all.all(|(_, diagnosis)| diagnosis.is_good());
        Ok(Outcome::success_if(is_good))
    }

    /// The diagnosis of the agent.
    fn ask(&self, source: &Source) -> anyhow::Result<Diagnosis> {
        let Some(agent) = source.agent() else {
            bail!("no agent is asked");
        };
        let flow = match self.flow(source)? {
            Ok(flow) => flow,
            Err(ends) => return Ok(diagnose(&unresolved(ends))),
        };
        let path = format!("/why?{}&probe={}", query_of(&flow), self.probe);
        let text = http_client::get_plain(&agent.agent, &path)?;
        serde_json::from_str(&text)
            .context("the agent is not of this version: it does not answer /why as expected")
    }

    /// Without an agent the kernel tells what is served.
    fn without_agent(&self, error: &anyhow::Error) -> anyhow::Result<Diagnosis> {
        let (Client::Address(from), Target::Address(to)) = (&self.from, &self.to) else {
            bail!(
                "{error:#}; without an agent give addresses for --from and --to, or manifests with -f"
            );
        };
        let flow = with_interface(flow_of(from, *to)?)?;
        let agent = if http_client::is_absence(error) {
            let advice = agent_absence::advice();
            let advice = if advice.is_empty() {
                "start the agent".to_owned()
            } else {
                advice
            };
            AgentState::Stopped { advice }
        } else {
            let error = format!("{error:#}");
            AgentState::Hangs { error }
        };
        Ok(self.diagnose_here(flow, agent, None))
    }

    fn by_manifests(&self, source: &Source) -> anyhow::Result<Diagnosis> {
        let flow = match self.flow(source)? {
            Ok(flow) => flow,
            Err(ends) => return Ok(diagnose(&unresolved(ends))),
        };
        let flow = with_interface(flow)?;
        let explanation = source.trace(&flow)?;
        Ok(self.diagnose_here(flow, AgentState::Manifests, Some(explanation)))
    }

    /// Looks at the kernel of this machine.
    fn diagnose_here(
        &self,
        flow: Flow,
        agent: AgentState,
        explanation: Option<Explanation>,
    ) -> Diagnosis {
        let probes = self.probe && kernel_evidence::can_probe(flow.protocol());
        let kernel = kernel_evidence::read(&flow, explanation.as_ref(), true, probes);
        diagnose(&Evidence {
            target: Ends::Flow(flow),
            agent,
            explanation,
            kernel,
        })
    }

    /// The connection, or what is missing of its ends.
    fn flow(&self, source: &Source) -> anyhow::Result<Result<Flow, Ends>> {
        let from = match &self.from {
            Client::Address(from) => from.clone(),
            Client::Pod(name) => {
                let is_ipv4 = match &self.to {
                    Target::Address(to) => Some(to.address.is_ipv4()),
                    Target::Service(_) => None,
                };
                match pod(name, source, is_ipv4)? {
                    Ok(address) => ends::Source {
                        address,
                        interface: None,
                    },
                    Err(text) => return Ok(Err(Ends::NoPod(text))),
                }
            }
        };
        let to = match &self.to {
            Target::Address(to) => *to,
            Target::Service(target) => match resolve(target, from.address, source) {
                Ok(to) => to,
                Err(unresolved) => return no_service(unresolved).map(Err),
            },
        };
        flow_of(&from, to).map(Ok)
    }
}

fn flow_of(from: &ends::Source, to: ends::Destination) -> anyhow::Result<Flow> {
    let flow = Flow::new(from.address, to.address, to.protocol)
        .map_err(|error| UsageError(error.to_string()))?;
    Ok(match &from.interface {
        Some(interface) => flow.by_interface(interface.clone()),
        None => flow,
    })
}

fn with_interface(flow: Flow) -> Result<Flow, UsageError> {
    kernel_evidence::with_interface(flow).map_err(|error| UsageError(error.to_string()))
}

/// True if the agent cannot tell more than its kernel.
fn is_without_answer(error: &anyhow::Error) -> bool {
    http_client::is_absence(error) || http_client::is_silence(error)
}

/// The addresses of a pod that the agent knows.
pub(super) fn pod_addresses(agent: &Server, id: &PodId) -> anyhow::Result<BTreeSet<IpAddr>> {
    let text = http_client::get_plain(agent, "/objects/pods")?;
    let pods: Vec<PodView> =
        serde_json::from_str(&text).context("the agent is not of this version")?;
    let found = pods.into_iter().find(|pod| pod.id == *id);
    Ok(found.map(|pod| pod.ips).unwrap_or_default())
}

/// The address of a pod, of this family if it is known, or why there is none.
fn pod(
    name: &Name,
    source: &Source,
    is_ipv4: Option<bool>,
) -> anyhow::Result<Result<IpAddr, String>> {
    let Some(agent) = source.agent() else {
        return Err(
            UsageError("--from: without an agent give the address of the pod".to_owned()).into(),
        );
    };
    let id = PodId::new(name.namespace_or("default"), name.name.as_str());
    let of_family = |ip: &IpAddr| is_ipv4.is_none_or(|is_ipv4| ip.is_ipv4() == is_ipv4);
    let address = pod_addresses(&agent.agent, &id)?
        .into_iter()
        .find(of_family);
    Ok(address.ok_or_else(|| {
        format!(
            "the agent knows no such address of pod {id}: an agent has only the pods of its node"
        )
    }))
}

/// What is to be said of a service without an address to connect to.
fn no_service(unresolved: Unresolved) -> anyhow::Result<Ends> {
    let code = match &unresolved {
        Unresolved::NoSuchService(_) => Cause::NoSuchService,
        Unresolved::Quarantined(_) => Cause::Quarantined,
        Unresolved::NotServed { reason, .. } => match reason {
            NotServed::ExternalName => Cause::ExternalName,
            NotServed::Headless => Cause::Headless,
            NotServed::OtherProxy(_) => Cause::OtherProxy,
            NotServed::NoAddress => Cause::NoAddress,
        },
        Unresolved::OtherFamily(_) => Cause::OtherFamily,
        Unresolved::NoSuchPort(_) | Unresolved::Failed(_) => return Err(unresolved.into_error()),
    };
    Ok(Ends::NoService(code, unresolved.to_string()))
}

fn unresolved(target: Ends) -> Evidence {
    Evidence {
        target,
        agent: AgentState::Manifests,
        explanation: None,
        kernel: Err("it was not looked at: there is no connection to follow".to_owned()),
    }
}
