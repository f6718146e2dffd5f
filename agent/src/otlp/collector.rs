//! The connection to the collector: OTLP over HTTP, in protobuf.

use std::time::Duration;

use anyhow::Context;
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{LogExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, logs::LogExporter as _, trace::SpanExporter as _};
use rustls::crypto::ring;

use crate::config::Config;

/// The timeout of the collector, including retries.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The exporter that sends spans to the configured collector. The environment may add headers and attributes, as defined by
/// OpenTelemetry: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`.
///
/// # Errors
/// When the URL or the system's certificates cannot be used.
pub(super) fn span_exporter(config: &Config) -> anyhow::Result<SpanExporter> {
    let builder = SpanExporter::builder().with_http();
    let mut exporter = to_collector(builder, config, "traces")?.build()?;
    exporter.set_resource(&resource(config));
    Ok(exporter)
}

/// The same for log records.
///
/// # Errors
/// As [`span_exporter`].
pub(super) fn log_exporter(config: &Config) -> anyhow::Result<LogExporter> {
    let builder = LogExporter::builder().with_http();
    let mut exporter = to_collector(builder, config, "logs")?.build()?;
    exporter.set_resource(&resource(config));
    Ok(exporter)
}

/// Has an exporter send to the collector's path of a signal.
fn to_collector<B: WithExportConfig + WithHttpConfig>(
    builder: B,
    config: &Config,
    signal: &str,
) -> anyhow::Result<B> {
    let base = config.otlp_endpoint.trim_end_matches('/');
    let builder = builder
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(TIME_LIMIT)
        .with_endpoint(format!("{base}/v1/{signal}"));
    if !base.starts_with("https:") {
        return Ok(builder.with_http_client(HyperClient::with_default_connector(TIME_LIMIT, None)));
    }
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(ring::default_provider())
        .context("failed to read the system's certificates")?
        .https_only()
        .enable_http1()
        .build();
    Ok(builder.with_http_client(HyperClient::new(connector, TIME_LIMIT, None)))
}

/// The sender, in OpenTelemetry's semantic conventions.
fn resource(config: &Config) -> Resource {
    Resource::builder()
        .with_attributes([
            KeyValue::new("service.name", "contiv-agent"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", config.node_name.clone()),
            KeyValue::new("k8s.node.name", config.node_name.clone()),
        ])
        .build()
}
