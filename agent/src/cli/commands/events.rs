//! `contiv events`

use std::{collections::BTreeMap, io::Write, thread, time::Duration};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_model::ServiceId;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use super::agent_lists::{AgentList, NodeAnswers, ask_nodes};
use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        suggest::suggest,
        table::Cell,
        table_options::TableOptions,
        watch::{Frame, width},
    },
    selection::{
        complete,
        filter::{Filter, Matcher},
        name::Name,
    },
    source::{
        agent_argument::AgentArgument,
        agents_argument::{Agents, AgentsArgument},
        views::{EventView, OutcomeView, ServiceView},
    },
};

/// The polling interval with --watch.
const EVENTS_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Print the running agent's events, and how long each took to reach the kernel
///
/// TOOK is the agent's own work; WAITED, in the wide form, is how long the store's message waited for it. Next to each renderer
/// is the time from when the agent began to handle the change until the kernel received its part. Exit codes: 0 success; 1 the agent
/// does not answer; 2 wrong usage.
#[derive(Debug, Args)]
#[command(alias = "event")]
pub(crate) struct Events {
    /// Only those that changed this service, as NAME (of the namespace default, or that of -n) or NAMESPACE/NAME
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
    service: Option<Name>,

    #[command(flatten)]
    filter: Filter,

    /// Only the newest
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: usize,

    /// Only those that are not older, as in 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "last")]
    since: Option<Duration>,

    /// Output format; the name of an event is its number
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    table: TableOptions,

    /// Go on, and print what happens
    #[arg(short, long, conflicts_with = "sort_by")]
    watch: bool,

    #[command(flatten)]
    agents: AgentsArgument,
}

impl Events {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        match self.agents.agents()? {
            Agents::One(agent) if self.watch => self.watch(&agent, terminal),
            Agents::Several(agents) if self.watch => self.watch_nodes(&agents, terminal),
            agents => {
                let mut all = AgentList::of(&agents, |agent| self.list_of(agent))?;
                if matches!(agents, Agents::Several(_)) {
                    self.merge(&mut all.listing);
                }
                let Frame { out, err, is_good } = all.print(&self.output, &self.table)?;
                terminal.err.write_all(err.as_bytes())?;
                terminal.out.write_all(out.as_bytes())?;
                Ok(Outcome::success_if(is_good))
            }
        }
    }

    /// Sorts the events of several agents by time, and keeps the last of them if that is requested.
    fn merge(&self, listing: &mut Listing) {
        listing.items.sort_by_cached_key(|item| {
            let start = item.value["start"].as_str();
            start.and_then(|start| start.parse::<Timestamp>().ok())
        });
        if self.since.is_none() {
            let older = listing.items.len().saturating_sub(self.last);
            listing.items.drain(..older);
        }
    }

    /// Prints the events of several agents as they come. One that does not answer is named once, and asked on.
    fn watch_nodes(
        &self,
        agents: &[AgentArgument],
        terminal: &mut Terminal,
    ) -> anyhow::Result<Outcome> {
        // The numbers of the next events by agent; none before its first answer.
        let mut next: BTreeMap<String, u64> = BTreeMap::new();
        let (mut is_first, mut problems) = (true, String::new());
        loop {
            let NodeAnswers { answers, err, .. } = ask_nodes(agents, |agent| {
                let address = agent.agent.to_string();
                let (mut events, following) = match next.get(&address) {
                    None => {
                        let all = fetch(agent, &self.query())?;
                        let following = all.last().map_or(1, |(event, _)| event.seq_num + 1);
                        (self.newest(all, agent)?, following)
                    }
                    Some(from) => settled_from(agent, *from)?,
                };
                if next.contains_key(&address) && !events.is_empty() {
                    let matcher = self.filter.matcher(agent)?;
                    events.retain(|(event, _)| self.is_selected(event, &matcher));
                }
                Ok((address, following, events))
            });
            let mut all = Listing::of_nodes();
            for (node, (address, following, events)) in answers {
                next.insert(address, following);
                if !events.is_empty() {
                    all.add_node(&node, list(events));
                }
            }
            if problems != err {
                terminal.err.write_all(err.as_bytes())?;
                problems = err;
            }
            if !all.items.is_empty() {
                if is_first {
                    self.merge(&mut all);
                }
                let text = all.print(&self.output, &self.table, width(), false)?;
                terminal.out.write_all(text.as_bytes())?;
            }
            is_first = false;
            terminal.out.flush()?;
            thread::sleep(EVENTS_POLL_INTERVAL);
        }
    }

    /// The selected events of an agent.
    fn list_of(&self, agent: &AgentArgument) -> anyhow::Result<AgentList> {
        let events = self.newest(fetch(agent, &self.query())?, agent)?;
        Ok(AgentList {
            err: if events.is_empty() {
                format!("no events found; {}\n", self.hint(agent)?)
            } else {
                String::new()
            },
            listing: list(events),
            is_good: true,
            is_single: false,
        })
    }

    /// The selected ones, and only the last of them if that is requested.
    fn newest(&self, all: Vec<Event>, agent: &AgentArgument) -> anyhow::Result<Vec<Event>> {
        let matcher = self.filter.matcher(agent)?;
        let mut events = all;
        events.retain(|(event, _)| self.is_selected(event, &matcher));
        if self.since.is_none() && self.is_narrow() {
            events.drain(..events.len().saturating_sub(self.last));
        }
        Ok(events)
    }

    fn watch(&self, agent: &AgentArgument, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let all = fetch(agent, &self.query())?;
        let mut next = all.last().map_or(1, |(event, _)| event.seq_num + 1);
        let mut matcher = self.filter.matcher(agent)?;
        self.print(self.newest(all, agent)?, terminal)?;
        loop {
            terminal.out.flush()?;
            thread::sleep(EVENTS_POLL_INTERVAL);
            let mut events;
            (events, next) = settled_from(agent, next)?;
            if !events.is_empty() {
                matcher = self.filter.matcher(agent)?;
            }
            events.retain(|(event, _)| self.is_selected(event, &matcher));
            self.print(events, terminal)?;
        }
    }

    /// The query of the request. The events of a service can be anywhere.
    fn query(&self) -> String {
        match self.since {
            Some(age) => {
                let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
                format!(
                    "since={}",
                    Timestamp::now().as_second().saturating_sub(seconds)
                )
            }
            None if self.is_narrow() => "from=0".to_owned(),
            None => format!("last={}", self.last),
        }
    }

    /// True if a filter is set.
    const fn is_narrow(&self) -> bool {
        self.service.is_some() || !self.filter.selects_all()
    }

    fn service(&self) -> Option<ServiceId> {
        let name = self.service.as_ref()?;
        let namespace = name.namespace_or(self.filter.namespace.as_deref().unwrap_or("default"));
        Some(ServiceId::new(namespace, name.name.as_str()))
    }

    fn is_selected(&self, event: &EventView, matcher: &Matcher) -> bool {
        match self.service() {
            Some(service) => event.services.contains(&service),
            None => {
                !self.is_narrow()
                    || event
                        .services
                        .iter()
                        .any(|service| matcher.matches(service))
            }
        }
    }

    /// A hint for a user who finds nothing. A deleted service has events too.
    fn hint(&self, agent: &AgentArgument) -> anyhow::Result<String> {
        if let Some(service) = self.service() {
            let values: Vec<ServiceView> = agent.get("/services")?;
            let known: Vec<String> = values
                .iter()
                .map(|service| service.id.to_string())
                .collect();
            let name = service.to_string();
            if !known.contains(&name)
                && let Some(meant) = suggest(&name, &known)
            {
                return Ok(format!(
                    "the agent has no service {name}; did you mean {meant}?"
                ));
            }
        }
        Ok("--last and --since select events".to_owned())
    }

    fn print(&self, events: Vec<Event>, terminal: &mut Terminal) -> anyhow::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let text = list(events).print(&self.output, &self.table, width(), false)?;
        Ok(terminal.out.write_all(text.as_bytes())?)
    }
}

/// An event, and the agent's JSON of it.
pub(super) type Event = (EventView, Value);

/// The events of an agent that the query of this request selects.
pub(super) fn fetch(agent: &AgentArgument, query: &str) -> anyhow::Result<Vec<Event>> {
    agent.list(&format!("/controller/event-history?{query}"))
}

/// The events from a number on whose results are known, and the number of the next one: an event is printed together with the results of
/// renderers, so it waits for them.
fn settled_from(agent: &AgentArgument, from: u64) -> anyhow::Result<(Vec<Event>, u64)> {
    let mut events = fetch(agent, &format!("from={from}"))?;
    let settled = events.iter().take_while(|(event, _)| is_settled(event));
    events.truncate(settled.count());
    let next = events.last().map_or(from, |(event, _)| event.seq_num + 1);
    Ok((events, next))
}

/// A row for each event.
pub(super) fn list(events: Vec<Event>) -> Listing {
    let header = vec![
        "SEQ",
        "TIME",
        "KIND",
        "TOOK",
        "CHANGED",
        "RENDERERS",
        "WHAT",
    ];
    let items = events.into_iter().map(|(event, value)| Item {
        name: event.seq_num.to_string(),
        value,
        cells: (row(&event), wide_cells(&event)),
    });
    Listing {
        header: (header, vec!["WAITED", "REVISION", "SERVICES"]),
        items: items.collect(),
    }
}

/// True if every renderer has finished with it, or will not soon.
fn is_settled(event: &EventView) -> bool {
    let is_pending = event
        .renderers
        .values()
        .any(|outcome| matches!(outcome, OutcomeView::Pending));
    !is_pending || Timestamp::now().duration_since(event.start).as_secs() >= 2
}

fn row(event: &EventView) -> Vec<Cell> {
    let time = event
        .start
        .to_zoned(TimeZone::system())
        .strftime("%H:%M:%S%.3f")
        .to_string();
    let changed = if event.changed == 0 {
        String::new()
    } else {
        event.changed.to_string()
    };
    vec![
        event.seq_num.to_string().into(),
        time.into(),
        event.kind.clone().into(),
        milliseconds(event.duration_ms).into(),
        changed.into(),
        renderers(event),
        event.description.clone().into(),
    ]
}

fn renderers(event: &EventView) -> Cell {
    let mut style = TextStyle::Plain;
    let outcome = |(name, outcome): (&String, &OutcomeView)| match outcome {
        OutcomeView::Pending => {
            style = if style == TextStyle::Bad {
                style
            } else {
                TextStyle::Warning
            };
            format!("{name} pending")
        }
        OutcomeView::Applied {
            sent_after_ms: Some(after),
            ..
        } => {
            format!("{name} +{}", milliseconds(*after))
        }
        OutcomeView::Applied { duration_ms, .. } => {
            format!("{name} {}", milliseconds(*duration_ms))
        }
        OutcomeView::Failed { error } => {
            style = TextStyle::Bad;
            format!("{name} FAILED: {error}")
        }
    };
    let text = event
        .renderers
        .iter()
        .map(outcome)
        .collect::<Vec<_>>()
        .join(", ");
    Cell::styled(text, style)
}

fn wide_cells(event: &EventView) -> Vec<Cell> {
    let services = event
        .services
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",");
    vec![
        milliseconds(event.waited_ms).into(),
        event.revision.to_string().into(),
        services.into(),
    ]
}

/// With a suitable number of digits.
pub(crate) fn milliseconds(ms: f64) -> String {
    match ms {
        0.0..1.0 => format!("{:.0}us", ms * 1000.0),
        1.0..100.0 => format!("{ms:.1}ms"),
        100.0..10_000.0 => format!("{ms:.0}ms"),
        _ => format!("{:.1}s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_digits_that_are_of_interest() {
        for (ms, expected) in [
            (0.0421, "42us"),
            (1.26, "1.3ms"),
            (99.94, "99.9ms"),
            (412.3, "412ms"),
            (26_214.0, "26.2s"),
        ] {
            assert_eq!(milliseconds(ms), expected);
        }
    }

    #[test]
    fn failure_is_reported_before_anything_else() {
        let event: EventView = serde_json::from_value(serde_json::json!({
            "seq_num": 3, "kind": "change", "description": "1 put", "start": "2026-01-02T03:04:05Z", "duration_ms": 0.1,
            "renderers": {
                "dry-run": {"status": "pending"},
                "nftables": {"status": "failed", "error": "no", "duration_ms": 1.0},
                "route": {"status": "applied", "with": 3, "report": {}, "duration_ms": 2.0, "sent_after_ms": 0.3},
            },
        }))
        .unwrap();
        let text = "dry-run pending, nftables FAILED: no, route +300us";
        assert_eq!(renderers(&event), Cell::styled(text, TextStyle::Bad));
    }
}
