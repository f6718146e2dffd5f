//! `contiv status`

mod answers;
mod cluster;
mod nodes;
mod overview;
mod text;

use clap::Args;
use futures::executor::block_on;

use crate::cli::{
    Outcome, Terminal, UsageError,
    output::{
        error_chain::first_line,
        listing::Output,
        table::printable,
        watch::{Frame, WatchArgument, size},
    },
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, AgentsArgument, ask_all},
    },
};
use answers::Answers;
use cluster::{ClusterArguments, ClusterStatus};
use nodes::{ClusterState, NoAnswer, NodeState};
use overview::Overview;

/// Print the state of the running agent on one screen, or that of several, or of all agents of a Kubernetes cluster
///
/// Of several agents there is a line for each.
/// With --cluster there is a line for each node: the agents' pods are found by their label and asked through the API server
/// (port-forward), with the rights of your kubeconfig. Exit codes: 0 it is healthy; 1 it does not answer, or needs attention: it is
/// not ready, the store cannot be watched or has no Node object of this node, a renderer fails, objects are in quarantine, two
/// services ask for one address, the kernel was found to differ, deletions are held, or a node of the cluster has no agent; 2 wrong
/// usage.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Output format; wide lists every problem and warning and cuts nothing, name is that of the node
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    watch: WatchArgument,

    #[command(flatten)]
    agents: AgentsArgument,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl Status {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        if self.agents.is_given() {
            if let Some(flag) = self.cluster.cluster_flag() {
                let problem = format!(
                    "--agent and --agents name agents, and {flag} those of a cluster; give one of them"
                );
                return Err(UsageError(problem).into());
            }
        } else if self.cluster.is_chosen() {
            let cluster = ClusterStatus::open(self.cluster)?;
            return self
                .watch
                .run(terminal, || cluster.read_frame(&self.output));
        }
        match self.agents.agents()? {
            Agents::One(agent) => self.watch.run(terminal, || self.read_frame(&agent)),
            Agents::Several(agents) => self.watch.run(terminal, || {
                let ask = |agent: &AgentArgument| (agent.agent.to_string(), node_state(agent));
                ClusterState::of_addresses(ask_all(&agents, ask)).frame(&self.output)
            }),
        }
    }

    fn read_frame(&self, agent: &AgentArgument) -> anyhow::Result<Frame> {
        let (answers, overview) = *ask(agent)?;
        let size = size().filter(|_| self.output == Output::Table);
        let out = match &self.output {
            Output::Table => text::render(&overview, size, jiff::Timestamp::now()),
            Output::Wide => text::render_all(&overview, jiff::Timestamp::now()),
            Output::Data(format) => format.print(answers.to_json(), false)?,
            Output::Name => printable(overview.status.node.clone()) + "\n",
        };
        Ok(Frame {
            out,
            err: String::new(),
            is_good: overview.is_healthy(),
        })
    }
}

fn ask(agent: &AgentArgument) -> anyhow::Result<Box<(Answers, Overview)>> {
    let answers = block_on(Answers::ask(async |path: &str| agent.get(path)))?;
    let overview = answers.read()?;
    Ok(Box::new((answers, overview)))
}

/// The state of an agent that was named by its address, which stands for the node if there is no answer.
fn node_state(agent: &AgentArgument) -> NodeState {
    let answer = ask(agent).map_err(|error| NoAnswer::new("no answer", &first_line(&error)));
    let node = match &answer {
        Ok(answer) => printable(answer.1.status.node.clone()),
        Err(_) => agent.agent.to_string(),
    };
    NodeState {
        node,
        pod: None,
        answer,
    }
}

#[cfg(test)]
mod tests;
