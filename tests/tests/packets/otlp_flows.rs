//! Connections through services as an OpenTelemetry collector receives them.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend::ClusterIp, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated, wait_for, wait_until},
};
use opentelemetry_proto::tonic::{
    collector::logs::v1::ExportLogsServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    logs::v1::LogRecord,
};
use parking_lot::Mutex;
use prost::Message;

use crate::live_flows::subscribers;

/// The time limit for expected records. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4318);
/// The agent sends a request so often before it gives it up.
const TRIES: usize = 4;
const ERROR: i32 = 17;

/// A collector on the node.
#[derive(Clone, Default)]
struct Collector {
    records: Arc<Mutex<Vec<LogRecord>>>,
    senders: Arc<Mutex<Vec<KeyValue>>>,
    /// How many requests it refuses from now on.
    refuses: Arc<AtomicUsize>,
}

impl Collector {
    fn start(lab: &Lab) -> Result<Self> {
        let failed = |error| LabError::system("listen as a collector", error);
        let listener = lab
            .node
            .run(|| TcpListener::bind(ADDRESS).map_err(failed))?;
        let collector = Self::default();
        let serving = collector.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // What cannot be read is sent again.
                let _ = serving.serve(&stream);
            }
        });
        Ok(collector)
    }

    /// Answers one request.
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let start = head.len();
            reader.read_line(&mut head)?;
            let line = head[start..].trim().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut status = "200 OK";
        if head.starts_with("POST /v1/logs ") {
            let one_less = |left: usize| left.checked_sub(1);
            let refuses = &self.refuses;
            if refuses
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                .is_ok()
            {
                status = "503 Service Unavailable";
            } else {
                self.take(ExportLogsServiceRequest::decode(&*body)?);
            }
        }
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes())
    }

    fn take(&self, request: ExportLogsServiceRequest) {
        for of_sender in request.resource_logs {
            *self.senders.lock() = of_sender.resource.unwrap_or_default().attributes;
            let records = of_sender.scope_logs.into_iter();
            let records = records.flat_map(|scope| scope.log_records);
            self.records.lock().extend(records);
        }
    }

    /// Waits for a record with these attributes.
    fn wait_for(&self, wanted: &[(&str, &str)]) -> Result<(LogRecord, BTreeMap<String, String>)> {
        let find = || {
            let records = self.records.lock();
            let mut records = records
                .iter()
                .map(|record| (record.clone(), texts(&record.attributes)));
            records.find(|(_, attributes)| {
                let has = |(name, value): &(&str, &str)| {
                    attributes.get(*name).is_some_and(|found| found == value)
                };
                wanted.iter().all(has)
            })
        };
        wait_for(&format!("a record with {wanted:?}"), EVENT_TIMEOUT, find)
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let text = match value {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::BoolValue(is_set)) => is_set.to_string(),
            other => format!("{other:?}"),
        };
        (attribute.key.clone(), text)
    };
    attributes.iter().map(text).collect()
}

#[test]
fn collector_receives_connections_refusals_and_what_was_lost() -> Result<()> {
    isolated(
        "otlp_flows::collector_receives_connections_refusals_and_what_was_lost",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            let empty = Service::new("empty", 81, &[]);
            for service in [&web, &empty] {
                manifests.put(service)?;
            }
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            let collector = Collector::start(lab)?;
            let mut options = AgentOptions::with_store(manifests.url());
            options.flags = vec![
                format!("--otlp-endpoint=http://{ADDRESS}"),
                "--otlp-flows=true".to_owned(),
            ];
            let agent = Agent::start(lab, &options)?;
            wait_until("connections are watched", EVENT_TIMEOUT, || {
                subscribers(lab).is_ok_and(|count| count == 1)
            })?;
            // The first request is sent again.
            collector.refuses.store(1, Ordering::SeqCst);
            let to = web.address(lab, ClusterIp, Family::V4);
            let mut session = lab.pod1.open(Protocol::Tcp, to)?;
            session.ask()?;
            let port = session.local_address()?.port().to_string();
            drop(session);
            let (_, new) =
                collector.wait_for(&[("contiv.flow.event", "new"), ("client.port", &port)])?;
            let pod = |namespace: &contiv_tests::lab::Namespace| namespace.host.v4.to_string();
            for (name, value) in [
                ("client.address", pod(&lab.pod1)),
                ("server.address", to.ip().to_string()),
                ("server.port", to.port().to_string()),
                ("network.transport", "tcp".to_owned()),
                ("network.peer.address", pod(&lab.pod3)),
                ("network.peer.port", TARGET_PORT.to_string()),
                ("k8s.namespace.name", "default".to_owned()),
                ("k8s.service.name", "web".to_owned()),
                ("contiv.flow.verdict", "served".to_owned()),
            ] {
                assert_eq!(new.get(name), Some(&value), "{name}: {new:#?}");
            }
            collector.wait_for(&[("contiv.flow.event", "closed"), ("client.port", &port)])?;
            let sender = texts(&collector.senders.lock());
            assert_eq!(
                (&*sender["service.name"], &*sender["k8s.node.name"]),
                ("contiv-agent", "node")
            );

            let refuse = || {
                let to = empty.address(lab, ClusterIp, Family::V6);
                lab.pod1.ask(Protocol::Tcp, to)
            };
            refuse()?;
            let wanted = [("contiv.flow.event", "refused")];
            let (record, refused) = collector.wait_for(&wanted)?;
            assert_eq!(refused["error.type"], "no-endpoints");
            assert_eq!(refused["k8s.service.name"], "empty");
            assert_eq!(record.severity_number, ERROR);
            assert_eq!(record.event_name, "contiv.flow");

            // What is not accepted at last is lost, which is said.
            collector.refuses.store(TRIES, Ordering::SeqCst);
            refuse()?;
            wait_until("it is given up", EVENT_TIMEOUT, || {
                collector.refuses.load(Ordering::SeqCst) == 0
            })?;
            refuse()?;
            let (_, notice) = collector.wait_for(&[("contiv.flow.not_accepted", "1")])?;
            assert_eq!(notice.len(), 1, "{notice:?}");
            agent.stop().map(drop)
        },
    )
}
