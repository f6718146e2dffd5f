//! The state of all agents of a cluster: as a table, and as JSON. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use contiv_node::plural::counted;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    answers::Answers,
    overview::Overview,
    text::{cut, unverified},
};
use crate::{
    cli::{
        commands::{agent_lists::FirstOfNode, events::milliseconds},
        output::{
            color::TextStyle,
            format::DataFormat,
            listing::Output,
            table::{Cell, Table, printable},
            watch::{Frame, width},
        },
        source::latency::Latency,
    },
    health::ago,
};

/// The columns of every table.
const COLUMNS: [&str; 7] = [
    "NODE",
    "VERSION",
    "STATE",
    "LAG",
    "DRIFT",
    "QUARANTINE",
    "P50/P99",
];
/// The further columns of a wide table.
const WIDE_COLUMNS: [&str; 4] = ["REVISION", "SERVICES", "UP", "POD"];

/// The agents of a cluster.
#[derive(Debug)]
pub(super) struct ClusterState {
    /// By node, and then by pod.
    pub(super) nodes: Vec<NodeState>,
    /// What could not be listed, for the user.
    pub(super) notes: Vec<String>,
}

/// The agent of a node.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) node: String,
    /// As NAMESPACE/NAME; none if the node has no agent.
    pub(super) pod: Option<String>,
    pub(super) answer: Result<Box<(Answers, Overview)>, NoAnswer>,
}

/// Why an agent was not asked, or has not answered.
#[derive(Debug)]
pub(super) struct NoAnswer {
    /// A word or two, for the table.
    state: String,
    reason: String,
}

impl NoAnswer {
    pub(super) fn new(state: &str, reason: &str) -> Self {
        Self {
            state: state.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The health of a node, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Healthy,
    NeedsAttention,
    NoAnswer,
}

impl NodeState {
    fn health(&self) -> Health {
        match &self.answer {
            Ok(answer) if answer.1.is_healthy() => Health::Healthy,
            Ok(_) => Health::NeedsAttention,
            Err(_) => Health::NoAnswer,
        }
    }

    fn state(&self) -> (String, TextStyle) {
        match &self.answer {
            Ok(answer) => state(&answer.1),
            Err(none) => (none.state.clone(), TextStyle::Bad),
        }
    }

    /// What needs attention, the most urgent first.
    fn problems(&self, now: Timestamp) -> Vec<String> {
        match &self.answer {
            Ok(answer) => problems(&answer.1, now),
            Err(NoAnswer { state, reason }) => vec![match &self.pod {
                Some(pod) => format!("{state}: {reason} (pod {pod})"),
                None => format!("{state}: {reason}"),
            }],
        }
    }

    fn cells(&self, now: Timestamp) -> (Vec<Cell>, Vec<Cell>) {
        let (state, style) = self.state();
        let (node, state) = (Cell::from(&self.node), Cell::styled(state, style));
        let dash = || Cell::from("-");
        let pod = self.pod.as_deref().map_or_else(dash, Cell::from);
        let Ok(answer) = &self.answer else {
            let cells = vec![node, dash(), state, dash(), dash(), dash(), dash()];
            return (cells, vec![dash(), dash(), dash(), pod]);
        };
        let overview = &answer.1;
        let status = &overview.status;
        let count = |count: usize| {
            let style = if count > 0 {
                TextStyle::Warning
            } else {
                TextStyle::Plain
            };
            Cell::styled(count.to_string(), style)
        };
        let latency = Latency::of(&overview.history);
        let latency =
            latency.map(|it| format!("{}/{}", milliseconds(it.p50), milliseconds(it.p99)));
        let cells = vec![
            node,
            Cell::from(&status.version),
            state,
            Cell::from(overview.lag().to_string()),
            overview.drift().map_or_else(|| Cell::from("off"), count),
            count(status.quarantined),
            latency.map_or_else(dash, Cell::from),
        ];
        let more = vec![
            Cell::from(status.revision.to_string()),
            Cell::from(overview.sizes.services.to_string()),
            status
                .started
                .map_or_else(dash, |started| ago(started, now).into()),
            pod,
        ];
        (cells, more)
    }

    fn to_json(&self, now: Timestamp) -> Value {
        let overview = self.answer.as_ref().ok().map(|answer| &answer.1);
        json!({
            "node": self.node,
            "pod": self.pod,
            "state": self.state().0,
            "healthy": self.health() == Health::Healthy,
            "problems": self.problems(now),
            "version": overview.map(|it| &it.status.version),
            "revision": overview.map(|it| it.status.revision),
            "lag_revisions": overview.map(Overview::lag),
            "drift": overview.and_then(Overview::drift),
            "quarantined": overview.map(|it| it.status.quarantined),
            "latency_ms": overview.and_then(|it| Latency::of(&it.history)),
            "agent": self.answer.as_ref().ok().map(|answer| answer.0.to_json()),
        })
    }
}

impl ClusterState {
    /// Agents that were asked by their addresses; the first of each node.
    pub(super) fn of_addresses(answers: Vec<(String, NodeState)>) -> Self {
        let mut first = FirstOfNode::default();
        let mut state = Self {
            nodes: Vec::new(),
            notes: Vec::new(),
        };
        for (address, node) in answers {
            match first.add(&node.node, &address) {
                Ok(()) => state.nodes.push(node),
                Err(note) => state.notes.push(note),
            }
        }
        state
    }

    /// What is printed.
    ///
    /// # Errors
    /// When a template does not fit.
    pub(super) fn frame(&self, output: &Output) -> anyhow::Result<Frame> {
        let now = Timestamp::now();
        let out = match output {
            Output::Table => self.table(false, width(), now),
            Output::Wide => self.table(true, None, now),
            // A row for each node.
            Output::Data(DataFormat::CustomColumns(columns)) => {
                let nodes: Vec<Value> = self.nodes.iter().map(|node| node.to_json(now)).collect();
                columns.table(&nodes)?.within(None).to_string()
            }
            Output::Data(format) => format.print(self.to_json(now), false)?,
            Output::Name => self.names(),
        };
        let notes = self.notes.iter();
        Ok(Frame {
            out,
            err: notes.flat_map(|note| ["note: ", note, "\n"]).collect(),
            is_good: self.is_healthy(),
        })
    }

    /// True if every node has an agent that answers and is healthy.
    pub(super) fn is_healthy(&self) -> bool {
        self.nodes
            .iter()
            .all(|node| node.health() == Health::Healthy)
    }

    /// A line for each agent, one for each problem, and a summary.
    pub(super) fn table(&self, is_wide: bool, width: Option<usize>, now: Timestamp) -> String {
        let more = WIDE_COLUMNS.iter().filter(|_| is_wide);
        let mut table = Table::new(&COLUMNS.iter().chain(more).copied().collect::<Vec<_>>());
        for node in &self.nodes {
            let (mut cells, more) = node.cells(now);
            cells.extend(more.into_iter().filter(|_| is_wide));
            table.push(cells);
        }
        let mut text = table.within(width).to_string();
        if !self.is_healthy() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "\nPROBLEMS");
        }
        for node in &self.nodes {
            for problem in node.problems(now) {
                let line = cut(&format!("{}: {problem}", node.node), width);
                let _ = writeln!(text, "{}", node.state().1.paint(line));
            }
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    /// How many nodes are in each state of health. A node with several pods counts once, with the worst health of its pods.
    fn summary(&self) -> String {
        let mut worst: BTreeMap<&str, Health> = BTreeMap::new();
        for node in &self.nodes {
            let known = worst.entry(&node.node).or_insert(Health::Healthy);
            *known = node.health().max(*known);
        }
        let count = |health| worst.values().filter(|one| **one == health).count();
        let (healthy, attention, none) = (
            count(Health::Healthy),
            count(Health::NeedsAttention),
            count(Health::NoAnswer),
        );
        let mut text = format!("{}: {healthy} healthy", counted(worst.len(), "node"));
        for (count, one, several) in [
            (attention, "needs attention", "need attention"),
            (none, "without an answer", "without an answer"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {}", if count == 1 { one } else { several });
            }
        }
        text
    }

    /// The names of the nodes, each once.
    pub(super) fn names(&self) -> String {
        let names: BTreeSet<&str> = self.nodes.iter().map(|node| node.node.as_str()).collect();
        let lines = names.into_iter().map(|name| printable(name.to_owned()));
        lines.flat_map(|name| [name, "\n".to_owned()]).collect()
    }

    /// The JSON form.
    pub(super) fn to_json(&self, now: Timestamp) -> Value {
        json!({
            "healthy": self.is_healthy(),
            "nodes": self.nodes.iter().map(|node| node.to_json(now)).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// The state in a word or two. Problems with a column of their own, such as drift, only change its colour.
fn state(overview: &Overview) -> (String, TextStyle) {
    let status = &overview.status;
    let is = |state: &str| {
        overview
            .renderers
            .iter()
            .any(|renderer| renderer.state == state)
    };
    let bad = if !status.ready {
        "not ready"
    } else if status.store_down.is_some() {
        "store down"
    } else if overview
        .renderers
        .iter()
        .any(|renderer| renderer.failures > 0)
    {
        "failing"
    } else if is("slow") {
        "slow"
    } else if status.held_deletions.is_some() {
        "deletions held"
    } else {
        let style = if overview.is_healthy() {
            TextStyle::Good
        } else {
            TextStyle::Warning
        };
        return ("ready".to_owned(), style);
    };
    (bad.to_owned(), TextStyle::Bad)
}

/// What needs attention; and what could not be verified.
fn problems(overview: &Overview, now: Timestamp) -> Vec<String> {
    let problems = overview.health_facts().problems(now);
    let unverified = overview.renderers.iter().filter_map(unverified);
    problems
        .into_iter()
        .map(|problem| problem.text)
        .chain(unverified)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    /// The answers of a healthy agent, changed by `change`.
    async fn answer(change: impl Fn(&str, &mut Value)) -> Box<(Answers, Overview)> {
        let answers = Answers::ask(async |path: &str| {
            let renderer = json!({
                "name": "nftables", "state": "idle", "applied_revision": 4709, "pending": "nothing", "failures": 0,
                "verification": {"checked": 7, "drift": 0},
            });
            let event = |number: u32| {
                json!({
                    "seq_num": number, "kind": "change", "description": "", "start": NOW, "duration_ms": 0.1,
                    "renderers": {"nftables": {"status": "applied", "duration_ms": 1.0, "sent_after_ms": number}},
                })
            };
            let mut value = match path {
                "/status" => json!({
                    "node": "n1", "version": "0.1.0", "started": "2026-01-01T03:04:05Z", "ready": true, "synced": true,
                    "revision": 4711, "quarantined": 0,
                }),
                "/renderers" => json!([renderer]),
                "/sizes" => {
                    json!({"services": 10_000, "service_ports": 20_000, "backends": 80_000})
                }
                "/quarantine" => json!([]),
                "/counters?top=5" => json!({"services": []}),
                _ => (1..=100).map(event).collect(),
            };
            change(path, &mut value);
            Ok(value)
        });
        let answers = answers.await.unwrap();
        let overview = answers.read().unwrap();
        Box::new((answers, overview))
    }

    fn node(node: &str, answer: Result<Box<(Answers, Overview)>, NoAnswer>) -> NodeState {
        NodeState {
            node: node.to_owned(),
            pod: Some(format!("contiv/contiv-agent-{node}")),
            answer,
        }
    }

    fn cluster(nodes: Vec<NodeState>) -> ClusterState {
        ClusterState {
            nodes,
            notes: Vec::new(),
        }
    }

    #[tokio::test]
    async fn healthy_cluster_is_one_line_per_node() {
        let nodes = vec![
            node("n1", Ok(answer(|_, _| ()).await)),
            node("node-2", Ok(answer(|_, _| ()).await)),
        ];
        let state = cluster(nodes);
        assert!(state.is_healthy());
        let expected = "\
NODE     VERSION   STATE   LAG   DRIFT   QUARANTINE   P50/P99
n1       0.1.0     ready   0     0       0            51.0ms/100ms
node-2   0.1.0     ready   0     0       0            51.0ms/100ms

2 nodes: 2 healthy
";
        assert_eq!(state.table(false, Some(80), now()), expected);
        assert_eq!(state.names(), "n1\nnode-2\n");
        let value = state.to_json(now());
        assert_eq!(
            (
                &value["healthy"],
                &value["nodes"][0]["agent"]["sizes"]["backends"]
            ),
            (&json!(true), &json!(80_000))
        );
    }

    #[tokio::test]
    async fn problems_of_a_cluster_are_listed_within_80_columns() {
        let long = "ip-10-0-12-34.eu-central-1.compute.internal";
        let drifted = answer(|path, value| match path {
            "/renderers" => {
                value[0]["verification"]["drift"] = 3.into();
                value[0]["pending"] = "changes".into();
            }
            "/quarantine" => {
                *value = json!([{
                    "source": "the API server", "object": "Service shop/web", "field": "spec.clusterIP", "reason": "no address",
                }]);
            }
            "/status" => value["quarantined"] = 2.into(),
            _ => (),
        });
        let down = answer(|path, value| {
            if path == "/status" {
                value["store_down"] =
                    json!({"since": "2026-01-02T03:00:05Z", "reason": "connection refused"});
            }
        });
        let crash = NoAnswer::new("CrashLoopBackOff", "exit code 2, store: no such context");
        let none = NodeState {
            pod: None,
            ..node("n9", Err(NoAnswer::new("no agent", "no pod is on it")))
        };
        let state = cluster(vec![
            node(long, Ok(drifted.await)),
            node("n2", Ok(down.await)),
            node("n3", Err(crash)),
            none,
        ]);
        assert!(!state.is_healthy());
        let text = state.table(false, Some(80), now());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let wide = state.table(true, None, now());
        for part in [
            "0.1.0     ready              2     3       2            51.0ms/100ms",
            "n2                                            0.1.0     store down ",
            "n3                                            -         CrashLoopBackOff   -     -       -",
            "n9                                            -         no agent ",
            "nftables: 3 of 7 elements in the kernel are not as they must be",
            "quarantine: Service shop/web: spec.clusterIP: no address (and 1 more)\n",
            "n2: store down for 4m: connection refused\n",
            "n3: CrashLoopBackOff: exit code 2, store: no such context (pod contiv/contiv-agent-n3)\n",
            "n9: no agent: no pod is on it\n",
            "\n4 nodes: 0 healthy, 2 need attention, 2 without an answer\n",
        ] {
            assert!(wide.contains(part), "{part}\nis not in\n{wide}");
        }
        let value = state.to_json(now());
        let first = &value["nodes"][0];
        let numbers = [
            &first["lag_revisions"],
            &first["drift"],
            &first["quarantined"],
        ];
        assert_eq!(numbers, [&json!(2), &json!(3), &json!(2)]);
        assert_eq!(
            (&value["nodes"][2]["agent"], &value["nodes"][2]["healthy"]),
            (&Value::Null, &json!(false))
        );
    }

    #[tokio::test]
    async fn node_with_two_pods_counts_once_as_its_worst() {
        let terminating = node(
            "n1",
            Err(NoAnswer::new("Terminating", "its pod does not run")),
        );
        let state = cluster(vec![terminating, node("n1", Ok(answer(|_, _| ()).await))]);
        assert!(
            state
                .table(false, None, now())
                .ends_with("\n1 node: 0 healthy, 1 without an answer\n")
        );
        assert_eq!(state.names(), "n1\n");
    }
}
