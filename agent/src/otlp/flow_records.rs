//! A connection as a log record, in OpenTelemetry's semantic conventions where they have a name. Pure.

use std::time::SystemTime;

use contiv_node::flows::{FlowVerdict, ServiceFlow};
use opentelemetry::logs::{AnyValue, LogRecord, Severity};
use opentelemetry_sdk::logs::SdkLogRecord;
use serde_json::Value;

const FLOW: &str = "contiv.flow";
const NOTICE: &str = "contiv.flow.notice";

/// Fills in what is told of a connection. Refused ones are errors, unanswered ones warnings.
pub(super) fn fill_flow(record: &mut SdkLogRecord, flow: &ServiceFlow) {
    let ServiceFlow {
        event,
        at,
        id,
        service,
        frontend,
        client,
        destination,
        backend,
        source,
        verdict,
        reason,
        tcp_state,
        is_answered,
        started,
        traffic,
    } = flow;
    record.set_event_name(FLOW);
    set_time(record, SystemTime::from(*at));
    let (severity, text) = match verdict {
        FlowVerdict::Served => (Severity::Info, "INFO"),
        FlowVerdict::Unanswered => (Severity::Warn, "WARN"),
        FlowVerdict::Refused => (Severity::Error, "ERROR"),
    };
    record.set_severity_number(severity);
    record.set_severity_text(text);
    let outcome = match reason {
        Some(reason) => format!("{verdict}: {reason}"),
        None => verdict.to_string(),
    };
    let to = backend.map_or_else(String::new, |backend| format!(" at {backend}"));
    let body = format!("{event}: {client} to {service} ({frontend}){to}: {outcome}");
    record.set_body(body.into());
    let family = if client.is_ipv4() { "ipv4" } else { "ipv6" };
    record.add_attribute("client.address", client.ip().to_string());
    record.add_attribute("client.port", i64::from(client.port()));
    record.add_attribute("server.address", destination.ip().to_string());
    record.add_attribute("server.port", i64::from(destination.port()));
    record.add_attribute("network.transport", flow.protocol().to_string());
    record.add_attribute("network.type", family);
    record.add_attribute("k8s.namespace.name", service.namespace.to_string());
    record.add_attribute("k8s.service.name", service.name.to_string());
    record.add_attribute("contiv.flow.event", event.to_string());
    record.add_attribute("contiv.flow.frontend", frontend.to_string());
    record.add_attribute("contiv.flow.verdict", verdict.to_string());
    record.add_attribute("contiv.flow.answered", *is_answered);
    if let Some(backend) = backend {
        record.add_attribute("network.peer.address", backend.ip().to_string());
        record.add_attribute("network.peer.port", i64::from(backend.port()));
    }
    if let Some(source) = source {
        record.add_attribute("network.local.address", source.ip().to_string());
        record.add_attribute("network.local.port", i64::from(source.port()));
    }
    match (verdict, reason) {
        (_, Some(reason)) => record.add_attribute("error.type", reason.to_string()),
        (FlowVerdict::Served, None) => {}
        (verdict, None) => record.add_attribute("error.type", verdict.to_string()),
    }
    if let Some(id) = id {
        record.add_attribute("contiv.flow.id", i64::from(*id));
    }
    if let Some(state) = tcp_state {
        record.add_attribute("contiv.flow.tcp_state", state.to_string());
    }
    if let Some(started) = started {
        let lasted = at.duration_since(*started).as_secs_f64() * 1000.0;
        record.add_attribute("contiv.flow.duration_ms", lasted);
    }
    if let Some(traffic) = traffic {
        for (name, count) in [
            ("contiv.flow.packets_sent", traffic.packets_sent),
            ("contiv.flow.bytes_sent", traffic.bytes_sent),
            ("contiv.flow.packets_received", traffic.packets_received),
            ("contiv.flow.bytes_received", traffic.bytes_received),
        ] {
            record.add_attribute(name, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// Fills in what is to be known of the connections: the text, and the numbers that it has. All but that a watch begins are warnings.
pub(super) fn fill_notice(record: &mut SdkLogRecord, notice: &Value) {
    record.set_event_name(NOTICE);
    set_time(record, SystemTime::now());
    let (severity, text) = if notice["watched"] == true {
        (Severity::Info, "INFO")
    } else {
        (Severity::Warn, "WARN")
    };
    record.set_severity_number(severity);
    record.set_severity_text(text);
    for (name, value) in notice.as_object().into_iter().flatten() {
        let name = format!("{FLOW}.{name}");
        match value {
            Value::Number(number) => {
                record.add_attribute(name, number.as_i64().unwrap_or(i64::MAX));
            }
            Value::Bool(is_set) => record.add_attribute(name, *is_set),
            _ => {}
        }
    }
    let text = notice["text"].as_str().unwrap_or_default().to_owned();
    record.set_body(AnyValue::from(text));
}

fn set_time(record: &mut SdkLogRecord, at: SystemTime) {
    record.set_timestamp(at);
    record.set_observed_timestamp(at);
}

#[cfg(test)]
mod tests {
    use contiv_model::{Frontend, Protocol, ServiceId};
    use contiv_node::flows::{FlowNews, FlowReason};
    use contiv_renderer::packet_path::{TcpState, Traffic};
    use jiff::Timestamp;
    use opentelemetry::logs::{Logger, LoggerProvider};
    use opentelemetry_sdk::logs::SdkLoggerProvider;
    use serde_json::json;

    use super::*;

    fn filled(fill: impl Fn(&mut SdkLogRecord)) -> SdkLogRecord {
        let logger = SdkLoggerProvider::builder().build().logger("test");
        let mut record = logger.create_log_record();
        fill(&mut record);
        record
    }

    fn attribute(record: &SdkLogRecord, name: &str) -> Option<AnyValue> {
        let mut attributes = record.attributes_iter();
        let found = attributes.find(|(key, _)| key.as_str() == name);
        found.map(|(_, value)| value.clone())
    }

    fn flow() -> ServiceFlow {
        ServiceFlow {
            event: FlowNews::Ended,
            at: Timestamp::from_second(103).unwrap(),
            id: Some(7),
            service: ServiceId::new("shop", "web"),
            frontend: Frontend::NodePort {
                protocol: Protocol::Tcp,
                port: 30080,
            },
            client: ([10, 0, 0, 9], 4000).into(),
            destination: ([10, 0, 0, 1], 30080).into(),
            backend: Some(([10, 244, 1, 7], 8080).into()),
            source: Some(([10, 0, 0, 1], 4001).into()),
            verdict: FlowVerdict::Served,
            reason: None,
            tcp_state: Some(TcpState::TimeWait),
            is_answered: true,
            started: Some(Timestamp::from_second(100).unwrap()),
            traffic: Some(Traffic {
                packets_sent: 1,
                bytes_sent: 60,
                packets_received: 2,
                bytes_received: u64::MAX,
            }),
        }
    }

    #[test]
    fn connection_has_its_ends_service_and_outcome_as_attributes() {
        let record = filled(|record| fill_flow(record, &flow()));
        assert_eq!(record.event_name(), Some(FLOW));
        assert_eq!(record.severity_number(), Some(Severity::Info));
        let text = |text: &'static str| AnyValue::from(text);
        for (name, value) in [
            ("client.address", text("10.0.0.9")),
            ("client.port", 4000.into()),
            ("server.address", text("10.0.0.1")),
            ("server.port", 30080.into()),
            ("network.transport", text("tcp")),
            ("network.type", text("ipv4")),
            ("network.peer.address", text("10.244.1.7")),
            ("network.peer.port", 8080.into()),
            ("network.local.address", text("10.0.0.1")),
            ("network.local.port", 4001.into()),
            ("k8s.namespace.name", text("shop")),
            ("k8s.service.name", text("web")),
            ("contiv.flow.event", text("ended")),
            ("contiv.flow.verdict", text("served")),
            ("contiv.flow.tcp_state", text("time-wait")),
            ("contiv.flow.duration_ms", 3000.0.into()),
            ("contiv.flow.bytes_sent", 60.into()),
            ("contiv.flow.bytes_received", i64::MAX.into()),
        ] {
            assert_eq!(attribute(&record, name), Some(value), "{name}");
        }
        assert_eq!(attribute(&record, "error.type"), None);
        let body =
            "ended: 10.0.0.9:4000 to shop/web (node port 30080/tcp) at 10.244.1.7:8080: served";
        assert_eq!(record.body(), Some(&text(body)));
    }

    #[test]
    fn refused_connection_is_an_error_and_silence_a_warning() {
        let refused = ServiceFlow {
            event: FlowNews::Refused,
            backend: None,
            verdict: FlowVerdict::Refused,
            reason: Some(FlowReason::NoEndpoints),
            ..flow()
        };
        let silent = ServiceFlow {
            verdict: FlowVerdict::Unanswered,
            ..flow()
        };
        for (flow, severity, error) in [
            (refused, Severity::Error, "no-endpoints"),
            (silent, Severity::Warn, "unanswered"),
        ] {
            let record = filled(|record| fill_flow(record, &flow));
            assert_eq!(record.severity_number(), Some(severity));
            assert_eq!(attribute(&record, "error.type"), Some(error.into()));
        }
    }

    #[test]
    fn notice_has_its_text_and_numbers() {
        let notice =
            json!({"event": "notice", "text": "a sample", "one_in": 4, "ends_at_once": false});
        let record = filled(|record| fill_notice(record, &notice));
        assert_eq!(record.event_name(), Some(NOTICE));
        assert_eq!(record.body(), Some(&"a sample".into()));
        assert_eq!(attribute(&record, "contiv.flow.one_in"), Some(4.into()));
        let at_once = attribute(&record, "contiv.flow.ends_at_once");
        assert_eq!(at_once, Some(false.into()));
        assert_eq!(attribute(&record, "contiv.flow.text"), None);
        assert_eq!(record.severity_number(), Some(Severity::Warn));
        let begun = json!({"text": "from here on", "watched": true});
        let record = filled(|record| fill_notice(record, &begun));
        assert_eq!(record.severity_number(), Some(Severity::Info));
    }
}
