//! The arguments `--agent` and `--agents` of commands that ask several agents, and requests to all of them.

use std::{
    fs,
    panic::resume_unwind,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use clap::Args;

use super::{
    agent_argument::{AgentArgument, AgentSource, DEFAULT_AGENT},
    http_client::Server,
};
use crate::cli::UsageError;

/// How long one of several agents may take for an answer, so that one does not keep back the others. It answers within 3 s, if only
/// to report that it is busy.
const LIMIT_OF_SEVERAL: Duration = Duration::from_secs(4);
/// How many agents are asked at a time.
const MAX_CONCURRENT_AGENTS: usize = 32;

/// The agents to query.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentsArgument {
    // Must come before `agents`, as in `AgentArgument`.
    #[command(flatten)]
    source: AgentSource,

    /// Where the agent listens (its --listen), with or without http://; several times to ask several agents, with NODE of each
    #[arg(id = "agent", long, env = "CONTIV_AGENT", value_name = "URL", default_value = DEFAULT_AGENT)]
    agents: Vec<Server>,

    /// Ask all agents of a file: a URL on each line, comments after #; one is printed in the form of several
    #[arg(id = "agents", long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The agents that a command asks.
#[derive(Debug)]
pub(crate) enum Agents {
    One(AgentArgument),
    /// Each only once, in the order of the arguments.
    Several(Vec<AgentArgument>),
}

impl AgentsArgument {
    /// True if agents are named on the command line.
    pub(crate) fn is_given(&self) -> bool {
        self.file.is_some() || self.source.is_given()
    }

    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// [`UsageError`] when it cannot be read, has an invalid line, or no agent.
    pub(crate) fn agents(&self) -> Result<Agents, UsageError> {
        let mut servers = Vec::new();
        if self.file.is_none() || self.source.is_given() {
            servers.clone_from(&self.agents);
        }
        if let Some(file) = &self.file {
            let name = file.display();
            let text = fs::read_to_string(file)
                .map_err(|error| UsageError(format!("--agents: failed to read {name}: {error}")))?;
            let found = parse(&text).map_err(|(line, problem)| {
                UsageError(format!("--agents: {name}, line {line}: {problem}"))
            })?;
            if found.is_empty() {
                return Err(UsageError(format!("--agents: {name} names no agent")));
            }
            servers.extend(found);
        }
        if let [server] = &servers[..]
            && self.file.is_none()
        {
            let agent = AgentArgument::new(self.source.clone(), server.clone());
            return Ok(Agents::One(agent));
        }
        // The form of what is printed depends on how many arguments there are, and not on whether they are equal.
        let mut agents: Vec<AgentArgument> = Vec::new();
        for server in servers {
            if agents.iter().all(|known| known.agent != server) {
                let agent = AgentArgument::new(self.source.clone(), server);
                agents.push(agent.within(LIMIT_OF_SEVERAL));
            }
        }
        Ok(Agents::Several(agents))
    }
}

/// The agents of a file; or the number of the first invalid line, and its problem.
fn parse(text: &str) -> Result<Vec<Server>, (usize, String)> {
    let mut servers = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let url = line.split('#').next().unwrap_or_default().trim();
        if !url.is_empty() {
            servers.push(url.parse().map_err(|problem| (number + 1, problem))?);
        }
    }
    Ok(servers)
}

/// Asks all agents, some at a time, and returns their answers in the same order.
pub(crate) fn ask_all<T: Send>(
    agents: &[AgentArgument],
    ask: impl Fn(&AgentArgument) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let ask_next = || {
        let mut answers = Vec::new();
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(agent) = agents.get(position) else {
                return answers;
            };
            answers.push((position, ask(agent)));
        }
    };
    let mut answers: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..agents.len().min(MAX_CONCURRENT_AGENTS))
            .map(|_| scope.spawn(ask_next))
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .flat_map(|answers| answers.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    answers.sort_by_key(|(position, _)| *position);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        agents: AgentsArgument,
    }

    fn agents(arguments: &[&str]) -> Result<(bool, Vec<String>), String> {
        let Cli { agents } = Cli::try_parse_from(["contiv"].iter().chain(arguments))
            .unwrap_or_else(|error| panic!("{error}"));
        let (is_one, agents) = match agents.agents().map_err(|error| error.to_string())? {
            Agents::One(agent) => (true, vec![agent]),
            Agents::Several(agents) => (false, agents),
        };
        let names = agents.iter().map(|agent| agent.agent.to_string());
        Ok((is_one, names.collect()))
    }

    #[test]
    fn agents_are_named_by_arguments_and_by_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let two = file("two", "# rack 1\nn1\n\n  http://n2:80 # the other\n");
        let (n1, n2) = ("http://n1:9999", "http://n2:80");
        for (arguments, expected) in [
            (&["--agent", "n1"][..], (true, vec![n1])),
            (
                &["--agent", "n1", "--agent", "http://n1:9999/"],
                (false, vec![n1]),
            ),
            (
                &["--agent", "http://n2", "--agent", "n1"],
                (false, vec![n2, n1]),
            ),
            (&["--agents", &two], (false, vec![n1, n2])),
            (
                &["--agents", &two, "--agent", "n3"],
                (false, vec!["http://n3:9999", n1, n2]),
            ),
        ] {
            let names = expected.1.into_iter().map(str::to_owned).collect();
            assert_eq!(agents(arguments), Ok((expected.0, names)), "{arguments:?}");
        }
        let wrong = file("wrong", "n1\nhttps://n2\n");
        let empty = file("empty", "# nothing\n");
        for (path, expected) in [
            (wrong.as_str(), "line 2: the agent serves http only"),
            (&empty, "names no agent"),
            ("/nowhere", "failed to read /nowhere"),
        ] {
            let error = agents(&["--agents", path]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn answers_are_in_order_and_some_are_waited_for_at_a_time() {
        let file: String = (1..=100)
            .flat_map(|port| ["n:".to_owned(), port.to_string(), "\n".to_owned()])
            .collect();
        let source = AgentSource::default();
        let new = |server| AgentArgument::new(source.clone(), server);
        let agents: Vec<_> = parse(&file).unwrap().into_iter().map(new).collect();
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ports = ask_all(&agents, |agent| {
            let count = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(count, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            running.fetch_sub(1, Ordering::SeqCst);
            agent.agent.port()
        });
        assert_eq!(ports, (1..=100).collect::<Vec<u16>>());
        let most = most.into_inner();
        assert!((2..=MAX_CONCURRENT_AGENTS).contains(&most), "{most}");
    }
}
