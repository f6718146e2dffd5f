//! `contiv top`

mod rates;
mod screen;
mod view;

use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::{
    rates::{Load, Order, Sample, Usage},
    view::View,
};
use super::agent_lists::{NodeAnswers, ask_nodes};
use crate::cli::{
    Outcome, Terminal, chain,
    output::{
        format::DataFormat,
        keys::Keys,
        listing::Output,
        table::Layout,
        watch::{redraw, size},
    },
    selection::filter::Filter,
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, AgentsArgument},
        balance::BalanceView,
        views::{CountersView, EventView},
    },
};

/// The events that latency is measured over.
const LATENCY_EVENTS: usize = 500;

/// Show the current load: new connections of services, changes, and how fast they reach the kernel
///
/// Attempts to connect are the kernel's own count, of the selected services: each is either SERVED, sent to a backend, or REFUSED, and
/// says why: no-endpoints (no backend anywhere: the client gets an error), policy (no backend on this node, where a policy wants one:
/// dropped), source-ranges (the client is in none of them: dropped). A repetition from the same address and port is no attempt. NEW/S
/// are served ones. Changes are those of all services. On a terminal the screen is updated until q, Esc or Ctrl-C; s sorts by the next
/// column, and / selects services by a part of their name. Exit codes: 0 success; 1 the agent does not answer, or the kernel's counters
/// cannot be read;
/// 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print once, after one interval
    #[arg(long)]
    once: bool,

    /// How long attempts are counted before each look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Sort services by new connections per second, by all so far, by refused ones, or by name
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    sort_by: Order,

    /// How many services are shown
    #[arg(long, value_name = "N", default_value_t = 20)]
    services: usize,

    /// Count new connections by backend meanwhile: FURTHEST OFF is the backend whose share differs most from the wanted one
    #[arg(long)]
    balance: bool,

    /// Output format; json and yaml are an object for each interval, name is the services, in the order of --sort-by
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    agents: AgentsArgument,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let shortest = Duration::from_millis(200);
    if interval < shortest {
        Err("at least 200ms: each look reads all counters".to_owned())
    } else {
        Ok(interval)
    }
}

impl Top {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let agents = self.agents.agents()?;
        let mut load = Load::default();
        let mut problems = self.add_samples(&agents, &mut load)?;
        let mut printed = String::new();
        let mut view = View::new(self.sort_by);
        let mut keys = if self.draws_screen() {
            Keys::of_terminal()
        } else {
            Keys::none()
        };
        let mut layout = None;
        let mut next_sample = Instant::now() + self.interval;
        loop {
            let left = next_sample.saturating_duration_since(Instant::now());
            if let Some(key) = keys.wait(left) {
                if !view.on_key(&key) {
                    return Ok(Outcome::Success);
                }
                self.show(&load, &view, &problems, &mut layout, terminal)?;
                continue;
            }
            next_sample = Instant::now() + self.interval;
            match self.add_samples(&agents, &mut load) {
                Ok(of_agents) => problems = of_agents,
                Err(error) if self.once => return Err(error),
                // The agent may be restarting: the last state stays on the screen, with a note.
                Err(error) => {
                    writeln!(terminal.err, "error: {}", chain(&error))?;
                    continue;
                }
            }
            if !self.draws_screen() && problems != printed {
                terminal.err.write_all(problems.as_bytes())?;
                printed.clone_from(&problems);
            }
            self.show(&load, &view, &problems, &mut layout, terminal)?;
            if self.once {
                return Ok(Outcome::success_if(!has_errors(&problems)));
            }
        }
    }

    /// True if the screen of a terminal is kept up to date.
    fn draws_screen(&self) -> bool {
        self.output == Output::Table && !self.once && std::io::stdout().is_terminal()
    }

    /// `problems` are those of agents, and `layout` that of custom columns, which have one header.
    fn show(
        &self,
        load: &Load,
        view: &View,
        problems: &str,
        layout: &mut Option<Layout>,
        terminal: &mut Terminal,
    ) -> anyhow::Result<()> {
        let size = size().filter(|_| self.output == Output::Table);
        let text = match &self.output {
            Output::Table | Output::Wide => {
                screen::render(load, view, self.services, size, self.draws_screen()) + "\n"
            }
            // An object on each line.
            Output::Data(DataFormat::Json) => format!("{}\n", self.to_json(load)),
            Output::Data(format @ DataFormat::Yaml) => {
                format!("---\n{}", format.print(self.to_json(load), false)?)
            }
            // A row for each service.
            Output::Data(DataFormat::CustomColumns(columns)) => {
                let usages = self.usages(load).into_iter().map(serde_json::to_value);
                let table = columns.table(&usages.collect::<Result<Vec<_>, _>>()?)?;
                let (text, continued) = table.continued(layout.take(), None);
                *layout = Some(continued);
                text
            }
            Output::Data(format) => format.print(self.to_json(load), false)?,
            Output::Name => {
                let names = self
                    .usages(load)
                    .into_iter()
                    .map(|usage| usage.service.to_string());
                names.flat_map(|name| [name, "\n".to_owned()]).collect()
            }
        };
        if self.draws_screen() {
            let text = format!("{problems}{}", text.trim_end());
            return Ok(redraw(&text, &mut terminal.out)?);
        }
        terminal.out.write_all(text.as_bytes())?;
        Ok(terminal.out.flush()?)
    }

    /// For programs.
    fn to_json(&self, load: &Load) -> Value {
        json!({
            "at": Timestamp::now(),
            "connections_per_second": load.total(),
            "changes_per_second": load.changes(),
            "latency_ms": load.latency(),
            "services": self.usages(load),
        })
    }

    fn usages(&self, load: &Load) -> Vec<Usage> {
        load.first(self.sort_by, "", self.services)
    }

    /// Adds a sample of each agent; a line for each of several that does not answer.
    fn add_samples(&self, agents: &Agents, load: &mut Load) -> anyhow::Result<String> {
        let agents = match agents {
            Agents::One(agent) => {
                load.add(vec![(String::new(), self.sample(agent)?)]);
                return Ok(String::new());
            }
            Agents::Several(agents) => agents,
        };
        let NodeAnswers { answers, err, .. } = ask_nodes(agents, |agent| self.sample(agent));
        if answers.is_empty() {
            bail!("no agent answers\n{}", err.trim_end());
        }
        load.add(answers);
        Ok(err)
    }

    fn sample(&self, agent: &AgentArgument) -> anyhow::Result<Sample> {
        let counters: CountersView = agent.get("/counters")?;
        let at = Timestamp::now();
        let events: Vec<EventView> =
            agent.get(&format!("/controller/event-history?last={LATENCY_EVENTS}"))?;
        let matcher = self.filter.matcher(agent)?;
        let counted: Vec<_> = counters
            .services
            .into_iter()
            .filter(|of| matcher.matches(&of.service))
            .collect();
        let refused = counted
            .iter()
            .map(|of| (of.service.clone(), of.refused))
            .collect();
        let refused_by = counted
            .iter()
            .map(|of| (of.service.clone(), of.refused_by.clone()))
            .collect();
        let connections = counted
            .into_iter()
            .map(|of| (of.service, of.connections))
            .collect();
        let balance = self.balance.then(|| BalanceView::of(agent)).transpose()?;
        let furthest_off = balance.map(|balance| balance.furthest_off());
        Ok(Sample {
            at,
            connections,
            refused,
            refused_by,
            furthest_off: furthest_off.unwrap_or_default(),
            events,
        })
    }
}

/// Whether an agent did not answer: that one is left out is only a note.
fn has_errors(problems: &str) -> bool {
    problems.lines().any(|line| line.starts_with("error:"))
}
