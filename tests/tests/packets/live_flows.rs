//! `contiv flows`: connections through services as they are, begin, end and are refused, compared with conntrack's own text.

use std::{net::SocketAddr, process::Command, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{
        Frontend::{ClusterIp, NodePort},
        Manifests, Service, State, TARGET_PORT,
    },
    lab::{
        Family, Lab, LabError, Namespace, Process, Protocol, Responder, Result, isolated,
        wait_until,
    },
};
use serde_json::Value;

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The groups of conntrack's events in `/proc/net/netlink`, and the number of `NETLINK_NETFILTER`.
const CONNTRACK_GROUPS: u32 = 0b111;
const NETLINK_NETFILTER: &str = "12";

/// Runs `contiv flows` on the node.
fn flows(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let program = binary()?.display().to_string();
    let command = [&[&*program, "flows"], arguments].concat();
    lab.node.exec(&command)
}

/// The connections of a JSON list.
fn listed(lab: &Lab, arguments: &[&str]) -> Result<Vec<Value>> {
    let text = flows(lab, &[arguments, &["-o", "json"]].concat())?;
    let parsed: Option<Vec<Value>> = serde_json::from_str(&text).ok();
    parsed.ok_or_else(|| LabError::Unexpected(format!("no list: {text}")))
}

/// `contiv flows --watch -o json`, and its lines so far.
struct Watch(Process);

impl Watch {
    fn start(lab: &Lab, name: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command
            .args(["flows", "--watch", "-o", "json"])
            .args(arguments);
        let watch = Self(Process::start(&lab.node, name, &mut command)?);
        let is_joined = || subscribers(lab).is_ok_and(|count| count > 0);
        wait_until("a socket is in the groups", EVENT_TIMEOUT, is_joined)?;
        Ok(watch)
    }

    fn lines(&self) -> Vec<Value> {
        let log = self.0.log();
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let parsed = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_default());
        parsed.collect()
    }

    /// Waits for a line with these fields. A listing has the kernel forget connections whose time is over, which else may take it a
    /// minute.
    fn wait_for(&self, lab: &Lab, what: &str, fields: &[(&str, &str)]) -> Result<()> {
        let is_it = |line: &Value| fields.iter().all(|(name, value)| line[name] == **value);
        wait_until(what, EVENT_TIMEOUT, || {
            let _ = lab.node.exec(&["conntrack", "-L"]);
            self.lines().iter().any(is_it)
        })
        .map(drop)
        .map_err(|error| LabError::Unexpected(format!("{error}: {:#?}", self.lines())))
    }
}

/// How many sockets of the node are in the groups of conntrack's events.
fn subscribers(lab: &Lab) -> Result<usize> {
    let sockets = lab.node.exec(&["cat", "/proc/net/netlink"])?;
    let is_subscribed = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let groups = fields
            .get(3)
            .and_then(|text| u32::from_str_radix(text, 16).ok());
        fields.get(1) == Some(&NETLINK_NETFILTER)
            && groups.is_some_and(|groups| groups & CONNTRACK_GROUPS != 0)
    };
    Ok(sockets.lines().filter(is_subscribed).count())
}

/// Both tuples of a connection in conntrack's text: of the first packet, and of answers.
fn tuples(lab: &Lab, protocol: Protocol, client: SocketAddr) -> Result<[[String; 2]; 2]> {
    let family = if client.is_ipv4() { "ipv4" } else { "ipv6" };
    let name = if protocol == Protocol::Tcp {
        "tcp"
    } else {
        "udp"
    };
    let command = ["conntrack", "-L", "-f", family, "-p", name];
    let text = lab.node.exec(&command)?;
    let of_field = |line: &str, name: &str| -> Vec<String> {
        let fields = line
            .split_whitespace()
            .filter_map(|field| field.split_once('='));
        let values = fields.filter(|(found, _)| *found == name);
        values.map(|(_, value)| value.to_owned()).collect()
    };
    for line in text.lines() {
        let [sources, destinations, source_ports, ports] =
            ["src", "dst", "sport", "dport"].map(|name| of_field(line, name));
        let end = |address: &str, port: &str| {
            let parsed = (address.parse().ok(), port.parse().ok());
            let (Some(address), Some(port)) = parsed else {
                return String::new();
            };
            SocketAddr::new(address, port).to_string()
        };
        if sources.len() < 2 || end(&sources[0], &source_ports[0]) != client.to_string() {
            continue;
        }
        return Ok([0, 1].map(|at| {
            [
                end(&sources[at], &source_ports[at]),
                end(&destinations[at], &ports[at]),
            ]
        }));
    }
    Err(LabError::Unexpected(format!("{client} is not in: {text}")))
}

#[test]
fn live_flows_have_client_service_backend_and_source() -> Result<()> {
    isolated(
        "live_flows::live_flows_have_client_service_backend_and_source",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            manifests.put(&web)?;
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            assert!(listed(lab, &[])?.is_empty());
            let mut sessions = Vec::new();
            for family in Family::BOTH {
                for (from, frontend) in [(&lab.pod1, ClusterIp), (&lab.client, NodePort)] {
                    let to = web.address(lab, frontend, family);
                    for protocol in [Protocol::Tcp, Protocol::Udp] {
                        let mut session = from.open(protocol, to)?;
                        session.ask()?;
                        let name = match (frontend, protocol) {
                            (NodePort, Protocol::Tcp) => format!("node port {}/tcp", to.port()),
                            (NodePort, _) => format!("node port {}/udp", to.port()),
                            (_, Protocol::Tcp) => format!("{to}/tcp"),
                            _ => format!("{to}/udp"),
                        };
                        sessions.push((from, protocol, to, name, session));
                    }
                }
            }
            let found = listed(lab, &["web"])?;
            assert_eq!(found.len(), sessions.len(), "{found:#?}");
            for (from, protocol, to, name, session) in &sessions {
                let port = session.local_address()?.port();
                let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
                let client = from.host.socket(family, port);
                let [first, answer] = tuples(lab, *protocol, client)?;
                assert_eq!(first[1], to.to_string());
                let is_it =
                    |flow: &&Value| flow["client"] == *first[0] && flow["frontend"] == **name;
                let flow = found.iter().find(is_it);
                let flow = flow.unwrap_or_else(|| panic!("{client} {name}: {found:#?}"));
                assert_eq!(flow["backend"], *answer[0], "{flow}");
                let source = flow["source"].as_str().unwrap_or(&first[0]);
                assert_eq!(source, answer[1], "{flow}");
                let is_masqueraded = name.starts_with("node port");
                assert_eq!(flow["source"].is_string(), is_masqueraded, "{flow}");
                assert_eq!(
                    (&flow["verdict"], &flow["service"]),
                    (&"served".into(), &"default/web".into())
                );
            }
            let pod = lab.pod1.host.address(Family::V4).to_string();
            let of_pod = listed(lab, &["--client", &pod])?;
            assert_eq!(of_pod.len(), 2, "{of_pod:#?}");
            for none in [&["-n", "shop"][..], &["api"], &["--verdict", "refused"]] {
                assert!(listed(lab, none)?.is_empty(), "{none:?}");
            }
            let table = flows(lab, &["--client", &pod])?;
            assert!(
                table.contains("established") && table.contains("answered"),
                "{table}"
            );
            assert!(
                table.lines().all(|line| line.chars().count() <= 80),
                "{table}"
            );
            agent.stop().map(drop)
        },
    )
}

/// Lets a pod drop what comes to the port of its server.
fn drop_all(pod: &Namespace) -> Result<()> {
    let rule = format!("tcp dport {TARGET_PORT} drop");
    let chain = "add chain inet server input { type filter hook input priority 0; }";
    let rules = format!("add table inet server\n{chain}\nadd rule inet server input {rule}\n");
    pod.exec_with_input(&["nft", "-f", "-"], &rules).map(drop)
}

#[test]
fn watch_tells_of_beginning_end_and_refusal_and_else_nothing_runs() -> Result<()> {
    isolated(
        "live_flows::watch_tells_of_beginning_end_and_refusal_and_else_nothing_runs",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            let resets = Service::new("resets", 81, &[lab.pod4.host]);
            let silent = Service::new("silent", 82, &[lab.pod2.host]);
            let empty = Service::new("empty", 83, &[]);
            for service in [&web, &resets, &silent, &empty] {
                manifests.put(service)?;
            }
            // Nothing listens at the backend of `resets`.
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            drop_all(&lab.pod2)?;
            // So that ends come soon.
            for (state, seconds) in [
                ("tcp_timeout_time_wait", 1),
                ("tcp_timeout_close", 1),
                ("tcp_timeout_syn_sent", 2),
            ] {
                let setting = format!("net.netfilter.nf_conntrack_{state}={seconds}");
                lab.node.exec(&["sysctl", "-qw", &setting])?;
            }
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            assert_eq!(subscribers(lab)?, 0, "nobody watches");
            let watch = Watch::start(lab, "watch-all", &[])?;
            let refused = Watch::start(lab, "watch-refused", &["--verdict", "refused"])?;
            let ask = |service: &Service| {
                let to = service.address(lab, ClusterIp, Family::V4);
                lab.pod1
                    .ask_within(Protocol::Tcp, to, Duration::from_secs(1))
            };
            lab.pod1
                .answers(Protocol::Tcp, web.address(lab, ClusterIp, Family::V6), 1)?;
            for event in ["new", "closed"] {
                let fields = [
                    ("event", event),
                    ("service", "default/web"),
                    ("verdict", "served"),
                ];
                watch.wait_for(lab, event, &fields)?;
            }
            ask(&resets)?;
            ask(&silent)?;
            ask(&empty)?;
            watch.wait_for(
                lab,
                "a reset",
                &[
                    ("service", "default/resets"),
                    ("event", "ended"),
                    ("verdict", "refused"),
                    ("reason", "backend-reset"),
                ],
            )?;
            watch.wait_for(
                lab,
                "silence",
                &[
                    ("service", "default/silent"),
                    ("event", "ended"),
                    ("verdict", "unanswered"),
                ],
            )?;
            for of in [&watch, &refused] {
                of.wait_for(
                    lab,
                    "a refusal",
                    &[
                        ("service", "default/empty"),
                        ("event", "refused"),
                        ("reason", "no-endpoints"),
                    ],
                )?;
            }
            let others = refused.lines();
            assert!(
                others.iter().all(|line| line["verdict"] == "refused"),
                "{others:#?}"
            );
            assert_eq!(subscribers(lab)?, 1, "both watch by one socket");
            let Watch(mut watch) = watch;
            watch.kill()?;
            drop(refused);
            wait_until("the socket is closed", EVENT_TIMEOUT, || {
                subscribers(lab).is_ok_and(|count| count == 0)
            })?;
            lab.node
                .exec(&["sysctl", "-qw", "net.netfilter.nf_conntrack_events=0"])?;
            let error = flows(lab, &["--watch"]).unwrap_or_else(|error| error.to_string());
            assert!(
                error.contains("sysctl -w net.netfilter.nf_conntrack_events=2"),
                "{error}"
            );
            agent.stop().map(drop)
        },
    )
}
