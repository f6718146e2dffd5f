//! The connection to the collector: OTLP over HTTP, in protobuf.

use std::time::Duration;

use anyhow::Context;
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use rustls::crypto::ring;

use crate::config::Config;

/// The timeout of the collector, including retries.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The exporter that sends spans to the configured collector. The environment may add headers and attributes, as defined by
/// OpenTelemetry: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`.
///
/// # Errors
/// When the URL or the system's certificates cannot be used.
pub(super) fn exporter(config: &Config) -> anyhow::Result<SpanExporter> {
    let base = config.otlp_endpoint.trim_end_matches('/');
    let builder = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(TIME_LIMIT)
        .with_endpoint(format!("{base}/v1/traces"));
    let builder = if base.starts_with("https:") {
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(ring::default_provider())
            .context("failed to read the system's certificates")?
            .https_only()
            .enable_http1()
            .build();
        builder.with_http_client(HyperClient::new(connector, TIME_LIMIT, None))
    } else {
        builder.with_http_client(HyperClient::with_default_connector(TIME_LIMIT, None))
    };
    let mut exporter = builder.build()?;
    exporter.set_resource(&resource(config));
    Ok(exporter)
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
