//! `contiv flows`

use std::{io::Write, str::FromStr};

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser},
};
use clap_complete::engine::ArgValueCompleter;
use contiv_model::{PodId, ServiceId};
use ipnetwork::IpNetwork;
use jiff::{Timestamp, tz::TimeZone};
use serde::Deserialize;
use serde_json::Value;

use super::{trace::desired::percent_encoded, why::pod_addresses};
use crate::cli::{
    Outcome, Terminal, UsageError,
    output::{
        color::TextStyle,
        format::DataFormat,
        listing::{Item, Listing, Output},
        table::{Cell, Layout, Table},
        table_options::TableOptions,
        watch::width,
    },
    selection::{complete, filter::Filter, filter::Matcher, name::Name},
    source::{agent_argument::AgentArgument, http_client},
};

/// Print the connections through services on this node: client, backend and state, also the refused ones of the last minutes
///
/// VERDICT is served (sent to a backend), unanswered (the backend has not answered) or refused, with the reason: no-endpoints, policy,
/// source-ranges (as in contiv refused), or backend-reset (nothing listens there). If there are very many, a sample is shown, which
/// is said. Bytes, in the wide form, need the kernel's `nf_conntrack_acct=1`. Exit codes: 0 success; 1 the agent does not answer; 2 wrong
/// usage.
#[derive(Debug, Args)]
#[command(alias = "flow")]
pub(crate) struct Flows {
    /// Only those of this service, as NAME (of the namespace default, or that of -n) or NAMESPACE/NAME
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
    service: Option<Name>,

    #[command(flatten)]
    filter: Filter,

    /// Only those of this client: an address, a range as in 10.244.1.0/24, or pod/NAME, pod/NAMESPACE/NAME
    #[arg(long, value_name = "CLIENT")]
    client: Option<Client>,

    /// Only those with this verdict
    #[arg(long, value_parser = PossibleValuesParser::from(VERDICTS.map(|(name, help)| PossibleValue::new(name).help(help))))]
    verdict: Option<String>,

    /// Go on, and print connections as they begin (new), end (closed) and are forgotten by the kernel (ended); of those that
    /// began meanwhile. With -o json a line each
    #[arg(
        short,
        long,
        visible_short_alias = 'f',
        visible_alias = "follow",
        conflicts_with = "sort_by"
    )]
    watch: bool,

    /// Output format; the name of a connection is its client
    #[arg(short, long, default_value = "table")]
    output: Output,

    #[command(flatten)]
    table: TableOptions,

    #[command(flatten)]
    agent: AgentArgument,
}

/// The client on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Client {
    Range(IpNetwork),
    Pod(Name),
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("pod/") {
            Some(name) => name.parse().map(Self::Pod),
            None => text.parse().map(Self::Range).map_err(|_| {
                format!("{text:?} is neither an address nor a range, as in 10.244.1.5 or 10.244.1.0/24, nor a pod, as in pod/web-1")
            }),
        }
    }
}

/// A line of the agent.
#[derive(Debug, Deserialize)]
struct Line {
    event: String,
    /// Of notices.
    text: Option<String>,
    #[serde(flatten)]
    flow: Option<FlowView>,
}

/// A connection in the agent's JSON.
#[derive(Debug, Deserialize)]
struct FlowView {
    at: Timestamp,
    service: ServiceId,
    frontend: String,
    client: String,
    backend: Option<String>,
    source: Option<String>,
    verdict: String,
    reason: Option<String>,
    tcp_state: Option<String>,
    is_answered: bool,
    started: Option<Timestamp>,
    traffic: Option<TrafficView>,
}

#[derive(Debug, Deserialize)]
struct TrafficView {
    bytes_sent: u64,
    bytes_received: u64,
}

const NOTICE: &str = "notice";
const VERDICTS: [(&str, &str); 3] = [
    ("served", "Sent to a backend"),
    ("unanswered", "Sent to a backend that has not answered"),
    ("refused", "By a rule or by the backend"),
];

impl Flows {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let query = self.query()?;
        let matcher = self.filter.matcher(&self.agent)?;
        if self.watch {
            self.follow(&query, &matcher, terminal)?;
            return Ok(Outcome::Success);
        }
        let text = http_client::get(&self.agent.agent, &format!("/flows?{query}"))?;
        let mut items = Vec::new();
        for text in text.lines() {
            let (line, value) = parse(text)?;
            match line.flow {
                Some(flow) if matcher.matches(&flow.service) => items.push(item(&flow, value)),
                Some(_) => {}
                None => notice(&line, terminal)?,
            }
        }
        if items.is_empty() {
            writeln!(terminal.err, "no connections found; --watch waits for some")?;
        }
        let header = (HEADER.to_vec(), WIDE_HEADER.to_vec());
        let listing = Listing { header, items };
        let out = listing.print(&self.output, &self.table, width(), false)?;
        write!(terminal.out, "{out}")?;
        Ok(Outcome::Success)
    }

    /// The filters for the agent.
    fn query(&self) -> anyhow::Result<String> {
        let mut query = Vec::new();
        let mut add = |name: &str, value: &str| {
            query.push(format!("{name}={}", percent_encoded(value)));
        };
        let namespace = self.filter.namespace.as_deref();
        if let Some(name) = &self.service {
            add(
                "namespace",
                name.namespace_or(namespace.unwrap_or("default")),
            );
            add("service", &name.name);
        } else if let Some(namespace) = namespace {
            add("namespace", namespace);
        }
        match &self.client {
            Some(Client::Range(range)) => add("client", &range.to_string()),
            Some(Client::Pod(name)) => {
                let id = PodId::new(name.namespace_or("default"), name.name.as_str());
                let addresses = pod_addresses(&self.agent.agent, &id)?;
                if addresses.is_empty() {
                    return Err(UsageError(format!(
                        "--client: the agent knows no address of pod {id}: an agent has only the pods of its node"
                    ))
                    .into());
                }
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                add("client", &addresses.join(","));
            }
            None => {}
        }
        if let Some(verdict) = &self.verdict {
            add("verdict", verdict);
        }
        Ok(query.join("&"))
    }

    /// Prints lines as they come, until the agent ends.
    fn follow(
        &self,
        query: &str,
        matcher: &Matcher,
        terminal: &mut Terminal,
    ) -> anyhow::Result<()> {
        let mut layout = None;
        http_client::follow(
            &self.agent.agent,
            &format!("/flows?follow=true&{query}"),
            |lines| {
                let mut items = Vec::new();
                for text in lines.lines().filter(|line| !line.trim().is_empty()) {
                    let (line, value) = parse(text)?;
                    match line.flow {
                        Some(flow) if !matcher.matches(&flow.service) => {}
                        Some(flow) if self.output.is_table() => {
                            let time = time(flow.at);
                            let mut item = item(&flow, value);
                            item.cells.0.splice(0..0, [time.into(), line.event.into()]);
                            // What happened says more.
                            item.cells.0.remove(STATE_COLUMN + 2);
                            items.push(item);
                        }
                        Some(flow) => items.push(item(&flow, value)),
                        None if self.output == Output::Data(DataFormat::Json) => {
                            writeln!(terminal.out, "{value}")?;
                        }
                        None => notice(&line, terminal)?,
                    }
                }
                self.print(items, &mut layout, terminal)?;
                Ok(terminal.out.flush()?)
            },
        )
    }

    fn print(
        &self,
        items: Vec<Item>,
        layout: &mut Option<Layout>,
        terminal: &mut Terminal,
    ) -> anyhow::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        match &self.output {
            Output::Table | Output::Wide => {
                let is_wide = self.output == Output::Wide;
                let mut header = HEADER.to_vec();
                header.splice(0..0, ["TIME", "EVENT"]);
                header.remove(STATE_COLUMN + 2);
                header.extend(WIDE_HEADER.iter().filter(|_| is_wide));
                let mut table = Table::new(&header).without_header(self.table.no_headers);
                for Item {
                    cells: (mut row, more),
                    ..
                } in items
                {
                    row.extend(more.into_iter().filter(|_| is_wide));
                    table.push(row);
                }
                let (text, used) = table.continued(layout.take(), width().filter(|_| !is_wide));
                *layout = Some(used);
                write!(terminal.out, "{text}")?;
            }
            // A line for each.
            Output::Data(DataFormat::Json) => {
                for item in items {
                    writeln!(terminal.out, "{}", item.value)?;
                }
            }
            Output::Data(format) => {
                for item in items {
                    let is_yaml = *format == DataFormat::Yaml;
                    let begin = if is_yaml { "---\n" } else { "" };
                    let text = format.print(item.value, true)?;
                    write!(terminal.out, "{begin}{text}")?;
                }
            }
            Output::Name => {
                for item in items {
                    writeln!(terminal.out, "{}", item.name)?;
                }
            }
        }
        Ok(())
    }
}

const HEADER: [&str; 5] = ["SERVICE", "CLIENT", "BACKEND", "STATE", "VERDICT"];
const STATE_COLUMN: usize = 3;
const WIDE_HEADER: [&str; 5] = ["FRONTEND", "SOURCE", "SENT", "RECEIVED", "LASTED"];

fn parse(text: &str) -> anyhow::Result<(Line, Value)> {
    let value: Value = serde_json::from_str(text)?;
    Ok((serde_json::from_value(value.clone())?, value))
}

fn notice(line: &Line, terminal: &mut Terminal) -> anyhow::Result<()> {
    if line.event == NOTICE
        && let Some(text) = &line.text
    {
        writeln!(terminal.err, "note: {text}")?;
    }
    Ok(())
}

fn item(flow: &FlowView, value: Value) -> Item {
    Item {
        name: flow.client.clone(),
        value,
        cells: (row(flow), wide_cells(flow)),
    }
}

fn row(flow: &FlowView) -> Vec<Cell> {
    let answered = if flow.is_answered { "answered" } else { "" };
    let (verdict, style) = match (&*flow.verdict, &flow.reason) {
        ("served", _) => ("served".to_owned(), TextStyle::Plain),
        (verdict, Some(reason)) => (format!("{verdict}: {reason}"), TextStyle::Warning),
        (verdict, None) => (verdict.to_owned(), TextStyle::Warning),
    };
    vec![
        flow.service.to_string().into(),
        flow.client.clone().into(),
        flow.backend.clone().unwrap_or_default().into(),
        flow.tcp_state.as_deref().unwrap_or(answered).into(),
        Cell::styled(verdict, style),
    ]
}

fn wide_cells(flow: &FlowView) -> Vec<Cell> {
    let traffic = |count: fn(&TrafficView) -> u64| {
        let bytes = flow.traffic.as_ref().map(count);
        bytes.map_or_else(String::new, |bytes| bytes.to_string())
    };
    let lasted = flow.started.map(|start| flow.at.duration_since(start));
    let lasted = lasted.filter(|lasted| !lasted.is_zero());
    vec![
        flow.frontend.clone().into(),
        flow.source.clone().unwrap_or_default().into(),
        traffic(|traffic| traffic.bytes_sent).into(),
        traffic(|traffic| traffic.bytes_received).into(),
        lasted
            .map_or_else(String::new, |lasted| {
                format!("{:.1}s", lasted.as_secs_f64())
            })
            .into(),
    ]
}

fn time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system())
        .strftime("%H:%M:%S")
        .to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(cells: &[Cell]) -> Vec<&str> {
        cells.iter().map(Cell::text).collect()
    }

    #[test]
    fn refused_and_served_connections_have_their_cells() {
        let refused = json!({
            "event": "refused", "at": "2026-01-02T03:04:05Z", "service": "shop/web", "frontend": "10.96.0.1:80/tcp",
            "client": "10.0.0.9:4000", "destination": "10.96.0.1:80", "verdict": "refused", "reason": "policy",
            "is_answered": false,
        });
        let (line, value) = parse(&refused.to_string()).unwrap();
        let item = item(&line.flow.unwrap(), value);
        let expected = ["shop/web", "10.0.0.9:4000", "", "", "refused: policy"];
        assert_eq!(texts(&item.cells.0), expected);
        let served = json!({
            "event": "ended", "at": "2026-01-02T03:04:07.5Z", "id": 7, "service": "shop/web", "frontend": "node port 30080/udp",
            "client": "10.0.0.9:4000", "destination": "10.0.0.1:30080", "backend": "10.244.1.7:53", "source": "10.0.0.1:4000",
            "verdict": "served", "is_answered": true, "started": "2026-01-02T03:04:05Z",
            "traffic": {"packets_sent": 1, "bytes_sent": 60, "packets_received": 2, "bytes_received": 120},
        });
        let (line, _) = parse(&served.to_string()).unwrap();
        let flow = line.flow.unwrap();
        let expected = [
            "shop/web",
            "10.0.0.9:4000",
            "10.244.1.7:53",
            "answered",
            "served",
        ];
        assert_eq!(texts(&row(&flow)), expected);
        let expected = ["node port 30080/udp", "10.0.0.1:4000", "60", "120", "2.5s"];
        assert_eq!(texts(&wide_cells(&flow)), expected);
    }

    #[test]
    fn notice_is_no_connection() {
        let (line, _) = parse(r#"{"event":"notice","text":"a sample","one_in":4}"#).unwrap();
        assert!(line.flow.is_none());
        assert_eq!(line.text.as_deref(), Some("a sample"));
    }

    #[test]
    fn client_is_address_range_or_pod() {
        assert_eq!(
            "10.0.0.9".parse(),
            Ok(Client::Range("10.0.0.9/32".parse().unwrap()))
        );
        assert_eq!(
            "fd00::/64".parse(),
            Ok(Client::Range("fd00::/64".parse().unwrap()))
        );
        assert_eq!(
            "pod/shop/a".parse(),
            Ok(Client::Pod("shop/a".parse().unwrap()))
        );
        for wrong in ["web", "pod/", "10.0.0.0/33"] {
            assert!(wrong.parse::<Client>().is_err(), "{wrong}");
        }
    }
}
