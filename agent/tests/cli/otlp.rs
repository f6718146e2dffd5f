//! Traces as an OpenTelemetry collector receives them.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value, trace::v1::Span,
};
use prost::Message;

use crate::{
    agent::{Agent, arguments, folder},
    contiv::{command, finish, web},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A collector of traces, which refuses the first request.
struct Collector {
    _runtime: tokio::runtime::Runtime,
    address: String,
    requests: mpsc::Receiver<ExportTraceServiceRequest>,
    refused: Arc<AtomicUsize>,
}

type Shared = (mpsc::Sender<ExportTraceServiceRequest>, Arc<AtomicUsize>);

async fn take(State((requests, refused)): State<Shared>, body: Bytes) -> StatusCode {
    if refused.fetch_add(1, Ordering::Relaxed) == 0 {
        return StatusCode::BAD_REQUEST;
    }
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    // At the end of the test the receiver is gone.
    let _ = requests.send(request);
    StatusCode::OK
}

impl Collector {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, requests) = mpsc::channel();
        let refused = Arc::new(AtomicUsize::new(0));
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state((sender, Arc::clone(&refused)));
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            _runtime: runtime,
            address,
            requests,
            refused,
        }
    }

    /// The spans of the next request, and the attributes of the sender.
    fn next(&self) -> (Vec<Span>, BTreeMap<String, String>) {
        let request = self.requests.recv_timeout(TEST_TIMEOUT).unwrap();
        let [resource] = &request.resource_spans[..] else {
            panic!("{request:?}")
        };
        let attributes = resource.resource.as_ref().unwrap().attributes.iter();
        let text = |value: &any_value::Value| match value {
            any_value::Value::StringValue(text) => text.clone(),
            other => format!("{other:?}"),
        };
        let value = |value: Option<_>| text(&Option::unwrap(value));
        let who = attributes
            .map(|it| (it.key.clone(), value(it.value.clone().unwrap().value)))
            .collect();
        (
            resource
                .scope_spans
                .iter()
                .flat_map(|scope| scope.spans.clone())
                .collect(),
            who,
        )
    }
}

#[test]
fn change_is_one_trace_and_is_sent_again_after_a_refusal() {
    let collector = Collector::start();
    let folder = folder();
    let mut arguments = arguments(folder.path(), "127.0.0.1:0");
    arguments.extend(["--otlp-endpoint".to_owned(), collector.address.clone()]);
    let _agent = Agent::start_waiting_for(&arguments, "ready: ");
    let (spans, who) = collector.next();
    assert!(
        collector.refused.load(Ordering::Relaxed) >= 2,
        "the first request was refused"
    );
    assert_eq!(
        (who["service.name"].as_str(), who["k8s.node.name"].as_str()),
        ("contiv-agent", "n1")
    );
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["snapshot", "combine", "render dry-run"]);

    fs::write(folder.path().join("manifests/api.yaml"), web("api", 8)).unwrap();
    let (spans, _) = collector.next();
    let [change, combine, render] = &spans[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(
        (change.name.as_str(), change.parent_span_id.len()),
        ("change", 0)
    );
    let services = change
        .attributes
        .iter()
        .find(|it| it.key == "contiv.services")
        .unwrap();
    assert!(format!("{services:?}").contains("shop/api"), "{services:?}");
    for child in [combine, render] {
        assert_eq!(
            (&child.parent_span_id, &child.trace_id),
            (&change.span_id, &change.trace_id)
        );
        assert!(
            change.start_time_unix_nano <= child.start_time_unix_nano,
            "{change:?} {child:?}"
        );
        assert!(
            child.start_time_unix_nano <= child.end_time_unix_nano,
            "{child:?}"
        );
        assert!(
            child.end_time_unix_nano <= change.end_time_unix_nano,
            "{change:?} {child:?}"
        );
        assert!(
            child
                .attributes
                .iter()
                .any(|it| it.key == "contiv.duration_ms"),
            "{child:?}"
        );
    }
    assert!(combine.end_time_unix_nano <= render.end_time_unix_nano);
}

#[test]
fn collector_that_reads_nothing_holds_up_nothing() {
    // A collector that accepts connections and never answers.
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = folder();
    let mut arguments = arguments(folder.path(), "127.0.0.1:0");
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    arguments.extend(["--otlp-endpoint".to_owned(), endpoint]);
    let mut agent = Agent::start_waiting_for(&arguments, "ready: ");
    let _connection = collector.accept().unwrap();
    fs::write(folder.path().join("manifests/api.yaml"), web("api", 8)).unwrap();
    agent.wait_for("/services", |services| services.contains("10.96.0.8"));
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn standard_variable_sets_the_collector_or_is_refused() {
    let check = |url: &str| {
        let mut command = command(&["agent", "--check-config", "--node-name", "n1"]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url);
        finish(command)
    };
    let good = check("https://collector:4318");
    assert_eq!(good.code, 0, "{}", good.err);
    assert!(
        good.out
            .contains("otlp-endpoint = \"https://collector:4318\""),
        "{}",
        good.out
    );
    for wrong in [
        "collector:4317",
        "grpc://collector:4317",
        "http://",
        "http://me:secret@collector",
        "http://me:1/secret@collector",
        "http://me:a secret@collector",
    ] {
        let run = check(wrong);
        assert_eq!(run.code, 2, "{wrong}");
        assert!(
            !run.err.contains("secret") && !run.out.contains("secret"),
            "{}{}",
            run.out,
            run.err
        );
        assert!(
            run.err.contains("otlp-endpoint: ") && run.err.contains("as in http://127.0.0.1:4318"),
            "{}",
            run.err
        );
    }
}
