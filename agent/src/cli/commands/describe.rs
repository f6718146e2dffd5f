//! `contiv describe`

mod state;
mod text;

use std::{fmt::Write as _, io::Write as _};

use clap::Args;
use contiv_model::ServiceId;
use contiv_proto::Kind;
use serde_json::Value;

use self::state::{AgentState, Description};
use super::agent_lists::{NodeAnswers, add_lines, ask_nodes};
use crate::cli::{
    Outcome, Terminal, UsageError,
    output::{listing::Output, suggest::suggest, table::printable, watch::width},
    selection::resources::{ObjectSelector, ResourceRequest, Resources},
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, AgentsArgument},
    },
};

/// Print all that the running agent knows about services: whether each is served, its backends, connections, problems and events
///
/// As in: contiv describe svc web -n shop. A name that no service has describes all that begin with it. NODE and ZONE of a backend are those of its endpoint slice. Endpoints that are no backends are
/// listed below them, with the reason. Exit codes: 0 success; 1 the agent does not answer, or does not have a named service; 2 wrong
/// usage.
#[derive(Debug, Args)]
#[command(override_usage = "contiv describe svc [<NAME>...]\n       contiv describe svc/<NAME>...")]
pub(crate) struct Describe {
    #[command(flatten)]
    resources: Resources,

    /// Output format; wide cuts nothing
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    agents: AgentsArgument,
}

impl Describe {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let requests = self.resources.requests()?;
        if let Some(other) = requests.iter().find(|one| one.kind != Kind::Service) {
            let kind = other.kind;
            return Err(UsageError(format!(
                "services are described, as in svc web; `contiv get {kind} -o yaml` prints another object"
            ))
            .into());
        }
        let is_named =
            |request: &ResourceRequest| matches!(request.objects, ObjectSelector::Keys(_));
        let is_any_named = requests.iter().any(is_named);
        let mut found = Vec::new();
        let (err, is_good) = match self.agents.agents()? {
            Agents::One(agent) => {
                let (of_agent, missing) = read(&agent, &requests)?;
                found.extend(of_agent.into_iter().map(|one| (None, one)));
                let is_good = missing.is_empty() || !is_any_named;
                (missing, is_good)
            }
            Agents::Several(agents) => {
                let NodeAnswers {
                    answers,
                    mut err,
                    mut is_good,
                } = ask_nodes(&agents, |agent| read(agent, &requests));
                for (node, (of_node, missing)) in answers {
                    is_good &= missing.is_empty() || !is_any_named;
                    add_lines(&mut err, &node, &missing);
                    found.extend(of_node.into_iter().map(|one| (Some(node.clone()), one)));
                }
                (err, is_good)
            }
        };
        terminal.err.write_all(err.as_bytes())?;
        let out = match &self.output {
            Output::Table => text::render(&found, width()),
            Output::Wide => text::render(&found, None),
            Output::Name => found
                .iter()
                .flat_map(|(_, one)| [printable(one.id.to_string()), "\n".to_owned()])
                .collect(),
            Output::Data(format) => {
                let mut values: Vec<Value> = found.iter().map(to_json).collect();
                let is_one = found.iter().all(|(node, _)| node.is_none());
                let value = if values.len() == 1 && is_one && self.resources.is_single() {
                    values.remove(0)
                } else {
                    Value::Array(values)
                };
                format.print(value, false)?
            }
        };
        terminal.out.write_all(out.as_bytes())?;
        Ok(Outcome::success_if(is_good))
    }
}

/// The requested services of an agent, and what it does not have.
fn read(
    agent: &AgentArgument,
    requests: &[ResourceRequest],
) -> anyhow::Result<(Vec<Description>, String)> {
    let state = AgentState::read(agent)?;
    let (mut found, mut err) = (Vec::new(), String::new());
    for request in requests {
        select(request, &state, &mut found, &mut err);
    }
    Ok((found, err))
}

/// With the node, of several.
fn to_json((node, description): &(Option<String>, Description)) -> Value {
    let mut value = description.to_json();
    if let (Some(node), Value::Object(fields)) = (node, &mut value) {
        fields.insert("node".to_owned(), node.as_str().into());
    }
    value
}

/// Adds the requested services, for a name without one those that begin with it, and a line for each name that the agent does not
/// know.
fn select(
    request: &ResourceRequest,
    state: &AgentState,
    found: &mut Vec<Description>,
    err: &mut String,
) {
    match &request.objects {
        ObjectSelector::Keys(keys) => {
            for key in keys {
                let id = ServiceId::new(key.namespace(), key.name());
                if let Some(description) = state.describe(&id) {
                    found.push(description);
                    continue;
                }
                let before = found.len();
                let has_prefix = |one: &ServiceId| {
                    one.namespace == id.namespace && one.name.starts_with(&*id.name)
                };
                let with_prefix = state.services().filter(|(one, _)| has_prefix(one));
                found.extend(with_prefix.filter_map(|(one, _)| state.describe(one)));
                if found.len() > before {
                    continue;
                }
                let known: Vec<String> = state.services().map(|(id, _)| id.to_string()).collect();
                let hint = suggest(&id.to_string(), &known).map_or_else(
                    || "`contiv services -A --all` lists those there are".to_owned(),
                    |meant| format!("did you mean {meant}?"),
                );
                // Writing to a `String` cannot fail.
                let _ = writeln!(err, "error: the agent has no service {id}; {hint}");
            }
        }
        ObjectSelector::All {
            namespace,
            selector,
        } => {
            let before = found.len();
            let selected = state.services().filter(|(id, labels)| {
                namespace
                    .as_ref()
                    .is_none_or(|namespace| **namespace == *id.namespace)
                    && selector
                        .as_ref()
                        .is_none_or(|selector| selector.matches(labels))
            });
            found.extend(selected.filter_map(|(id, _)| state.describe(id)));
            if found.len() == before {
                let place = namespace.as_ref().map_or_else(String::new, |namespace| {
                    format!(" in namespace {namespace}; -A looks in every one")
                });
                let _ = writeln!(err, "no services found{place}");
            }
        }
    }
}
