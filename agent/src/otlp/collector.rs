//! The connection to the collector: OTLP over HTTP, in protobuf.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, hyper::HyperClient};
use opentelemetry_otlp::{
    LogExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{Resource, logs::LogExporter as _, trace::SpanExporter as _};
use rustls::crypto::ring;
use tokio::{net::TcpStream, sync::mpsc};
use tower::util::MapResponse;

use crate::config::Config;

/// The timeout of the collector. When it is over, no request is sent again either.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The first pause before log records are sent again that the collector could not accept just now, as OTLP defines that. It is doubled
/// twice.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The ends of a connection to the collector: this program's, and the collector's.
pub(super) type CollectorConnection = (SocketAddr, SocketAddr);

/// The configured collector. What is sent to it shares its connections.
pub(super) struct Collector<'a> {
    config: &'a Config,
    client: Arc<dyn HttpClient>,
    time_limit: Duration,
}

impl<'a> Collector<'a> {
    /// The collector of a configuration. Each connection to it is told to `opened`, if there is room.
    ///
    /// # Errors
    /// When the system's certificates cannot be used.
    pub(super) fn new(
        config: &'a Config,
        time_limit: Duration,
        opened: mpsc::Sender<CollectorConnection>,
    ) -> anyhow::Result<Self> {
        let is_https = config.otlp_endpoint.starts_with("https:");
        let mut connector = HttpConnector::new();
        connector.enforce_http(!is_https);
        let connector = MapResponse::new(connector, move |stream: TokioIo<TcpStream>| {
            let socket = stream.inner();
            if let (Ok(own), Ok(collector)) = (socket.local_addr(), socket.peer_addr()) {
                // Nobody may want to know.
                let _ = opened.try_send((own, collector));
            }
            stream
        });
        let client: Arc<dyn HttpClient> = if is_https {
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(ring::default_provider())
                .context("failed to read the system's certificates")?
                .https_only()
                .enable_http1()
                .wrap_connector(connector);
            Arc::new(HyperClient::new(connector, time_limit, None))
        } else {
            Arc::new(HyperClient::new(connector, time_limit, None))
        };
        Ok(Self {
            config,
            client,
            time_limit,
        })
    }

    /// The exporter that sends spans. The environment may add headers and attributes, as defined by OpenTelemetry:
    /// `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`.
    ///
    /// # Errors
    /// When the URL cannot be used.
    pub(super) fn span_exporter(&self) -> anyhow::Result<SpanExporter> {
        let builder = SpanExporter::builder().with_http();
        let mut exporter = self.set_up(builder, "traces").build()?;
        exporter.set_resource(&self.resource());
        Ok(exporter)
    }

    /// The same for log records. Those that the collector cannot accept just now are sent a few times.
    ///
    /// # Errors
    /// As [`Self::span_exporter`].
    pub(super) fn log_exporter(&self) -> anyhow::Result<LogExporter> {
        let retries = RetryPolicy::recommended()
            .with_initial_delay(FIRST_RETRY_PAUSE)
            .with_max_delay(FIRST_RETRY_PAUSE * 4);
        let builder = LogExporter::builder().with_http();
        let builder = self.set_up(builder, "logs").with_retry_policy(retries);
        let mut exporter = builder.build()?;
        exporter.set_resource(&self.resource());
        Ok(exporter)
    }

    /// Has an exporter send to the collector's path of a signal.
    fn set_up<B: WithExportConfig + WithHttpConfig>(&self, builder: B, signal: &str) -> B {
        let base = self.config.otlp_endpoint.trim_end_matches('/');
        builder
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(self.time_limit)
            .with_endpoint(format!("{base}/v1/{signal}"))
            .with_shared_http_client(Arc::clone(&self.client))
    }

    /// The sender, in OpenTelemetry's semantic conventions.
    fn resource(&self) -> Resource {
        let node = &self.config.node_name;
        Resource::builder()
            .with_attributes([
                KeyValue::new("service.name", "contiv-agent"),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", node.clone()),
                KeyValue::new("k8s.node.name", node.clone()),
            ])
            .build()
    }
}
