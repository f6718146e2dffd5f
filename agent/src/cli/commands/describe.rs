//! `contiv describe`

mod state;
mod text;

use std::{fmt::Write as _, io::Write as _};

use clap::Args;
use contiv_model::ServiceId;
use contiv_proto::Kind;
use serde_json::Value;

use self::state::{AgentState, Description};
use crate::cli::{
    Outcome, Terminal, UsageError,
    output::{listing::Output, suggest::suggest, table::printable, watch::width},
    selection::resources::{ObjectSelector, ResourceRequest, Resources},
    source::agent_argument::AgentArgument,
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
    agent: AgentArgument,
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
        let state = AgentState::read(&self.agent)?;
        let (mut found, mut err) = (Vec::new(), String::new());
        for request in &requests {
            select(request, &state, &mut found, &mut err);
        }
        terminal.err.write_all(err.as_bytes())?;
        let out = match &self.output {
            Output::Table => text::render(&found, width()),
            Output::Wide => text::render(&found, None),
            Output::Name => found
                .iter()
                .flat_map(|one| [printable(one.id.to_string()), "\n".to_owned()])
                .collect(),
            Output::Data(format) => {
                let mut values: Vec<Value> = found.iter().map(Description::to_json).collect();
                let value = if values.len() == 1 && self.resources.is_single() {
                    values.remove(0)
                } else {
                    Value::Array(values)
                };
                format.print(value, false)?
            }
        };
        terminal.out.write_all(out.as_bytes())?;
        let is_named =
            |request: &ResourceRequest| matches!(request.objects, ObjectSelector::Keys(_));
        let is_good = err.is_empty() || !requests.iter().any(is_named);
        Ok(Outcome::success_if(is_good))
    }
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
