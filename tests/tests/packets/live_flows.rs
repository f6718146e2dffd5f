//! `contiv flows`: connections through services as they are, begin, end and are refused, compared with conntrack's own text.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    ops::Range,
    process::Command,
    time::Duration,
};

use contiv_renderer::packet_path::{FlowEventKind, FlowEvents, PathError, SampleRate, list_flows};
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
pub(crate) fn subscribers(lab: &Lab) -> Result<usize> {
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

/// The fields of a connection in conntrack's text, of both directions.
struct Entry(Vec<(String, String)>);

impl Entry {
    /// The connection of a client.
    fn read(lab: &Lab, protocol: Protocol, client: SocketAddr) -> Result<Self> {
        let family = if client.is_ipv4() { "ipv4" } else { "ipv6" };
        let protocol = name_of(protocol);
        let text = lab
            .node
            .exec(&["conntrack", "-L", "-f", family, "-p", protocol])?;
        let entries = text.lines().map(|line| {
            let fields = line.split_whitespace();
            let fields = fields.filter_map(|field| field.split_once('='));
            Self(
                fields
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
            )
        });
        let is_it = |entry: &Self| entry.end(0, "src", "sport") == client.to_string();
        let found = entries.into_iter().find(is_it);
        found.ok_or_else(|| LabError::Unexpected(format!("{client} is not in: {text}")))
    }

    /// The value of a field in the direction of the client, 0, or of answers, 1.
    fn field(&self, direction: usize, name: &str) -> &str {
        let mut values = self.0.iter().filter(|(found, _)| found == name);
        values.nth(direction).map_or("", |(_, value)| value)
    }

    fn end(&self, direction: usize, address: &str, port: &str) -> String {
        let address = self.field(direction, address).parse();
        let port = self.field(direction, port).parse();
        address.map_or_else(
            |_| String::new(),
            |address| SocketAddr::new(address, port.unwrap_or(0)).to_string(),
        )
    }
}

const fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// Opens connections of UDP from a pod, one from each of these ports, and waits for no answer.
fn open_many(pod: &Namespace, to: SocketAddr, ports: Range<u16>) -> Result<()> {
    let open = || -> std::io::Result<()> {
        for port in ports {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?.send_to(b"x", to)?;
        }
        Ok(())
    };
    pod.run(|| open().map_err(|error| LabError::system("open many connections", error)))
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
            // The lab speaks only the beginning of SCTP, which the kernel remembers for three seconds.
            for state in ["cookie_wait", "cookie_echoed"] {
                let setting = format!("net.netfilter.nf_conntrack_sctp_timeout_{state}=600");
                lab.node.exec(&["sysctl", "-qw", &setting])?;
            }
            let mut sessions = Vec::new();
            for family in Family::BOTH {
                for (from, frontend) in [(&lab.pod1, ClusterIp), (&lab.client, NodePort)] {
                    let to = web.address(lab, frontend, family);
                    for protocol in Protocol::ALL {
                        let mut session = from.open(protocol, to)?;
                        session.ask()?;
                        let name = match frontend {
                            NodePort => format!("node port {}", to.port()),
                            _ => to.to_string(),
                        };
                        let name = format!("{name}/{}", name_of(protocol));
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
                let entry = Entry::read(lab, *protocol, client)?;
                assert_eq!(entry.end(0, "dst", "dport"), to.to_string());
                let first = entry.end(0, "src", "sport");
                let is_it = |flow: &&Value| flow["client"] == *first && flow["frontend"] == **name;
                let flow = found.iter().find(is_it);
                let flow = flow.unwrap_or_else(|| panic!("{client} {name}: {found:#?}"));
                assert_eq!(flow["backend"], entry.end(1, "src", "sport"), "{flow}");
                let source = flow["source"].as_str().unwrap_or(&first);
                assert_eq!(source, entry.end(1, "dst", "dport"), "{flow}");
                let is_masqueraded = name.starts_with("node port");
                assert_eq!(flow["source"].is_string(), is_masqueraded, "{flow}");
                assert_eq!(
                    (&flow["verdict"], &flow["service"]),
                    (&"served".into(), &"default/web".into())
                );
            }
            let pod = lab.pod1.host.address(Family::V4).to_string();
            let of_pod = listed(lab, &["--client", &pod])?;
            assert_eq!(of_pod.len(), 3, "{of_pod:#?}");
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

#[test]
fn connection_says_what_it_has_carried_as_the_kernel_counts() -> Result<()> {
    isolated(
        "live_flows::connection_says_what_it_has_carried_as_the_kernel_counts",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            manifests.put(&web)?;
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            lab.node
                .exec(&["sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1"])?;
            let watch = Watch::start(lab, "watch", &[])?;
            let mut session = lab
                .pod1
                .open(Protocol::Udp, web.address(lab, ClusterIp, Family::V4))?;
            for _ in 0..3 {
                session.ask()?;
            }
            let port = session.local_address()?.port();
            let client = lab.pod1.host.socket(Family::V4, port);
            let entry = Entry::read(lab, Protocol::Udp, client)?;
            let listed = listed(lab, &["web"])?;
            lab.node.exec(&["conntrack", "-D", "-p", "udp"])?;
            watch.wait_for(lab, "the end", &[("event", "ended")])?;
            let ended = watch
                .lines()
                .into_iter()
                .find(|line| line["event"] == "ended");
            for flow in listed.iter().chain(&ended) {
                for (name, direction, field) in [
                    ("packets_sent", 0, "packets"),
                    ("bytes_sent", 0, "bytes"),
                    ("packets_received", 1, "packets"),
                    ("bytes_received", 1, "bytes"),
                ] {
                    let counted = flow["traffic"][name].to_string();
                    assert_eq!(counted, entry.field(direction, field), "{name}: {flow}");
                    assert_ne!(counted, "0");
                }
            }
            assert!(listed.len() == 1 && ended.is_some());
            let wide = flows(lab, &["web", "-o", "wide"])?;
            assert!(!wide.contains(&client.to_string()), "it is over: {wide}");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn kernel_passes_on_whole_connections_of_the_sample() -> Result<()> {
    isolated(
        "live_flows::kernel_passes_on_whole_connections_of_the_sample",
        |lab| {
            const PORTS: Range<u16> = 20_000..20_800;
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            manifests.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let to = web.address(lab, ClusterIp, Family::V4);
            let failed = |error: PathError| LabError::Unexpected(error.to_string());
            let mut events = lab.node.run(|| FlowEvents::open().map_err(failed))?;
            let rate = SampleRate::ALL.halved().halved();
            events.sample(rate).map_err(failed)?;
            let mut received = |kind: FlowEventKind, until: usize| {
                let mut numbers = BTreeSet::new();
                wait_until("the events of the sample", EVENT_TIMEOUT, || {
                    let read = events.read(PORTS.len(), |event| {
                        if event.kind == kind && event.flow.destination == to {
                            numbers.insert(event.id);
                        }
                    });
                    read.is_ok_and(|read| !read.has_lost) && numbers.len() >= until
                })
                .map(|_| numbers)
            };
            open_many(&lab.pod1, to, PORTS)?;
            let mut all = BTreeSet::new();
            lab.node.run(|| {
                let add = |event: contiv_renderer::packet_path::FlowEvent| {
                    if event.flow.destination == to {
                        all.insert(event.id);
                    }
                };
                list_flows(add).map_err(failed)
            })?;
            assert_eq!(all.len(), PORTS.len());
            let sample: BTreeSet<u32> = all
                .iter()
                .copied()
                .filter(|id| rate.contains(*id))
                .collect();
            // A part of 1/4 of 800 differs from 200 by more than 60 once in a million times.
            assert!((140..=260).contains(&sample.len()), "{}", sample.len());
            assert_eq!(received(FlowEventKind::New, sample.len())?, sample);
            lab.node.exec(&["conntrack", "-D", "-p", "udp"])?;
            assert_eq!(received(FlowEventKind::Ended, sample.len())?, sample);
            agent.stop().map(drop)
        },
    )
}

#[test]
fn lost_events_and_samples_are_said_and_the_watch_goes_on() -> Result<()> {
    isolated(
        "live_flows::lost_events_and_samples_are_said_and_the_watch_goes_on",
        |lab| {
            /// More than the receive buffer holds.
            const COUNT: u16 = 12_000;
            /// Losses in two ticks one after the other make a sample; a busy machine may need some more.
            const MAX_ROUNDS: u16 = 5;
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            let flood = Service::new("flood", 81, &[lab.pod3.host]);
            for service in [&web, &flood] {
                manifests.put(service)?;
            }
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let [to, flooded] = [&web, &flood].map(|it| it.address(lab, ClusterIp, Family::V4));
            // So that the list at the end has them.
            let setting = "net.netfilter.nf_conntrack_udp_timeout=600";
            lab.node.exec(&["sysctl", "-qw", setting])?;
            // Notices are told to every watcher.
            let watch = Watch::start(lab, "watch", &["web"])?;
            let count = |is_it: &dyn Fn(&Value) -> bool| {
                watch.lines().iter().filter(|line| is_it(line)).count()
            };
            let is_loss = |line: &Value| line["kernel_lost"] == true;
            let is_sample = |line: &Value| line["one_in"].as_u64().is_some_and(|one_in| one_in > 1);
            for round in 0..MAX_ROUNDS {
                let start = 1024 + round * COUNT;
                let before = count(&is_loss);
                agent.pause()?;
                open_many(&lab.pod1, flooded, start..start + COUNT)?;
                agent.resume()?;
                wait_until("the loss is said", EVENT_TIMEOUT, || {
                    count(&is_loss) > before
                })?;
                if count(&is_sample) > 0 {
                    break;
                }
            }
            assert!(count(&is_sample) > 0, "lost {} times", count(&is_loss));
            let last = |name: &str| {
                let lines = watch.lines();
                let mut values = lines.iter().rev().filter_map(|line| line.get(name));
                values.next().cloned()
            };
            wait_until("all is shown again", EVENT_TIMEOUT, || {
                last("one_in") == Some(1.into()) && last("ends_at_once") == Some(true.into())
            })?;
            let begun =
                |line: &Value| line["event"] == "new" && line["frontend"] == format!("{to}/tcp");
            assert_eq!(count(&begun), 0);
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            lab.pod1.answers(Protocol::Tcp, to, 3)?;
            wait_until("the watch goes on", EVENT_TIMEOUT, || count(&begun) == 3)?;

            // A list says so too.
            let script = ["-c", "\"$0\" flows -o json 2>&1"];
            let program = binary()?.display().to_string();
            let text = lab
                .node
                .exec(&[&["sh"], &script[..], &[&program]].concat())?;
            assert!(text.contains("too many connections: one in "), "{text}");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn page_watches_connections_only_while_somebody_looks() -> Result<()> {
    isolated(
        "live_flows::page_watches_connections_only_while_somebody_looks",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            let empty = Service::new("empty", 81, &[]);
            for service in [&web, &empty] {
                manifests.put(service)?;
            }
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let page = |query: &str| {
                let answer = agent.http("GET", &format!("/page/flows?{query}"))?;
                Ok::<_, LabError>(answer.body)
            };
            let to = web.address(lab, ClusterIp, Family::V4);
            let mut session = lab.pod1.open(Protocol::Tcp, to)?;
            session.ask()?;
            agent.http("GET", "/page/services/default/web")?;
            assert_eq!(subscribers(lab)?, 0, "nobody looks");
            let first = page("")?;
            assert!(first.contains("The watch begins now"), "{first}");
            let port = session.local_address()?.port();
            let client = lab.pod1.host.socket(Family::V4, port).to_string();
            assert!(first.contains(&client), "what is there is shown: {first}");
            assert_eq!(subscribers(lab)?, 1);
            lab.pod1
                .ask(Protocol::Tcp, empty.address(lab, ClusterIp, Family::V4))?;
            lab.pod1.answers(Protocol::Udp, to, 1)?;
            wait_until("both are shown", EVENT_TIMEOUT, || {
                page("").is_ok_and(|page| {
                    let parts = ["refused: no-endpoints", "1 refused</a>", "Watched since"];
                    parts.iter().all(|part| page.contains(part))
                        && page.matches(" new</td>").count() == 1
                })
            })?;
            let refused = page("verdict=refused")?;
            assert!(
                refused.contains("default/empty") && !refused.contains(&client),
                "{refused}"
            );
            assert_eq!(subscribers(lab)?, 1, "both are watched by one socket");
            wait_until("the socket is closed", Duration::from_secs(60), || {
                subscribers(lab).is_ok_and(|count| count == 0)
            })?;
            agent.stop().map(drop)
        },
    )
}
