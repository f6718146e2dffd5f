//! From a record of the history to the spans of one trace. Pure.
//!
//! ```text
//! change                 from the store's event until the last renderer is done
//! ├─ combine             the node core's work: decode, cache, which services are different now
//! ├─ render nftables     the call of a renderer; its event `transaction`: when the request was sent to the kernel
//! └─ render route
//! ```

use std::time::{Duration, Instant, SystemTime};

use contiv_renderer::Report;
use opentelemetry::{
    Array, InstrumentationScope, KeyValue, StringValue, Value,
    trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanEvents, SpanLinks};

use contiv_node::{Outcome, Record};

/// The monotonic and the wall clock, read at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) instant: Instant,
    pub(super) time: SystemTime,
}

impl Clock {
    pub(super) fn now() -> Self {
        Self {
            instant: Instant::now(),
            time: SystemTime::now(),
        }
    }

    fn time_of(self, instant: Instant) -> SystemTime {
        self.time - self.instant.saturating_duration_since(instant)
    }
}

/// The spans of an event, the first of which is the parent of the others; none if renderers had nothing to do.
pub(super) fn spans(record: &Record, ids: &impl IdGenerator, clock: Clock) -> Vec<SpanData> {
    if record.renderers.is_empty() {
        return Vec::new();
    }
    let start = SystemTime::from(record.start);
    let trace = Trace {
        id: ids.new_trace_id(),
        root: ids.new_span_id(),
    };
    let combine_end = start + milliseconds(record.duration_ms);
    let mut combine = trace.span(
        "combine".to_owned(),
        ids.new_span_id(),
        (start, combine_end),
    );
    combine.attributes = vec![
        KeyValue::new("contiv.duration_ms", record.duration_ms),
        KeyValue::new("contiv.services.changed", count(record.changed)),
    ];
    let calls = record.renderers.iter().filter_map(|(renderer, outcome)| {
        call_span(&trace, renderer, outcome, ids.new_span_id(), clock)
    });
    let children: Vec<SpanData> = std::iter::once(combine).chain(calls).collect();
    let end = children
        .iter()
        .map(|span| span.end_time)
        .max()
        .unwrap_or(combine_end);
    let mut root = trace.span(record.kind.to_owned(), trace.root, (start, end));
    root.parent_span_id = SpanId::INVALID;
    root.attributes = root_attributes(record);
    if children
        .iter()
        .any(|span| matches!(span.status, Status::Error { .. }))
    {
        root.status = Status::error("a renderer failed");
    }
    std::iter::once(root).chain(children).collect()
}

fn root_attributes(record: &Record) -> Vec<KeyValue> {
    let names = record
        .services
        .iter()
        .map(|id| StringValue::from(id.to_string()))
        .collect();
    let pending = record
        .renderers
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Pending));
    let pending: Vec<StringValue> = pending.map(|(name, _)| name.to_string().into()).collect();
    let mut attributes = vec![
        KeyValue::new(
            "contiv.event.seq_num",
            i64::try_from(record.seq_num).unwrap_or(i64::MAX),
        ),
        KeyValue::new("contiv.event.description", record.description.clone()),
        KeyValue::new("contiv.store.revision", record.revision),
        KeyValue::new("contiv.services.changed", count(record.changed)),
        KeyValue::new("contiv.services", Value::Array(Array::String(names))),
    ];
    if !pending.is_empty() {
        attributes.push(KeyValue::new(
            "contiv.pending",
            Value::Array(Array::String(pending)),
        ));
    }
    attributes
}

/// The span of a renderer's call with this outcome; none if it has not ended.
fn call_span(
    trace: &Trace,
    renderer: &str,
    outcome: &Outcome,
    id: SpanId,
    clock: Clock,
) -> Option<SpanData> {
    let (at, duration_ms) = match outcome {
        Outcome::Pending => return None,
        Outcome::Applied {
            at, duration_ms, ..
        }
        | Outcome::Failed {
            at, duration_ms, ..
        } => (*at, *duration_ms),
    };
    let end = SystemTime::from(at);
    let mut span = trace.span(
        format!("render {renderer}"),
        id,
        (end - milliseconds(duration_ms), end),
    );
    span.attributes = vec![
        KeyValue::new("contiv.renderer", renderer.to_owned()),
        KeyValue::new("contiv.duration_ms", duration_ms),
    ];
    match outcome {
        Outcome::Pending => (),
        Outcome::Failed { error, .. } => span.status = Status::error(error.clone()),
        Outcome::Applied {
            first_seq_num,
            report,
            sent_after_ms,
            ..
        } => {
            let Report {
                added,
                removed,
                transactions,
                bytes,
                sent,
                rejected,
                ..
            } = report;
            span.attributes.extend([
                KeyValue::new(
                    "contiv.applied_with",
                    i64::try_from(*first_seq_num).unwrap_or(i64::MAX),
                ),
                KeyValue::new("contiv.added", count(*added)),
                KeyValue::new("contiv.removed", count(*removed)),
                KeyValue::new("contiv.transactions", count(*transactions)),
                KeyValue::new("contiv.bytes", count(*bytes)),
                KeyValue::new("contiv.rejected", count(rejected.len())),
            ]);
            span.attributes
                .extend(sent_after_ms.map(|after| KeyValue::new("contiv.sent_after_ms", after)));
            let sent =
                sent.map(|sent| Event::new("transaction", clock.time_of(sent), Vec::new(), 0));
            span.events.events.extend(sent);
        }
    }
    Some(span)
}

/// The IDs of a trace and of its root span.
struct Trace {
    id: TraceId,
    root: SpanId,
}

impl Trace {
    fn span(
        &self,
        name: String,
        id: SpanId,
        (start_time, end_time): (SystemTime, SystemTime),
    ) -> SpanData {
        SpanData {
            span_context: SpanContext::new(
                self.id,
                id,
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: self.root,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time,
            end_time,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("contiv").build(),
        }
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use contiv_model::ServiceId;
    use jiff::Timestamp;
    use opentelemetry_sdk::trace::RandomIdGenerator;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + ms).unwrap()
    }

    fn after(span: &SpanData, record: &Record) -> (u128, u128) {
        let start = SystemTime::from(record.start);
        let ms = |time: SystemTime| time.duration_since(start).unwrap().as_millis();
        (ms(span.start_time), ms(span.end_time))
    }

    fn record(renderers: BTreeMap<Arc<str>, Outcome>) -> Record {
        Record {
            seq_num: 7,
            kind: "change",
            description: "1 put".to_owned(),
            start: at(0),
            start_instant: std::time::Instant::now(),
            waited_ms: 0.0,
            duration_ms: 2.0,
            revision: 9,
            changed: 1,
            services: vec![ServiceId::new("shop", "web")],
            renderers,
        }
    }

    fn clock(ms: u64) -> (Clock, Instant) {
        let started = Instant::now();
        let passed = Duration::from_millis(ms);
        (
            Clock {
                instant: started + passed,
                time: SystemTime::from(at(0)) + passed,
            },
            started,
        )
    }

    #[test]
    fn change_is_one_trace_down_to_transaction_of_each_renderer() {
        let (clock, started) = clock(50);
        let report = Report {
            added: 3,
            sent: Some(started + Duration::from_millis(4)),
            ..Report::default()
        };
        let applied = Outcome::Applied {
            first_seq_num: 7,
            at: at(9),
            report,
            duration_ms: 6.0,
            sent_after_ms: Some(4.0),
        };
        let failed = Outcome::Failed {
            at: at(12),
            error: "no".to_owned(),
            duration_ms: 1.0,
        };
        let record = record([("nftables".into(), applied), ("route".into(), failed)].into());
        let spans = spans(&record, &RandomIdGenerator::default(), clock);
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(
            names,
            ["change", "combine", "render nftables", "render route"]
        );
        let times: Vec<_> = spans.iter().map(|span| after(span, &record)).collect();
        assert_eq!(times, [(0, 12), (0, 2), (3, 9), (11, 12)]);
        assert!(
            spans
                .iter()
                .all(|span| span.span_context.trace_id() == spans[0].span_context.trace_id())
        );
        assert!(
            spans[1..]
                .iter()
                .all(|span| span.parent_span_id == spans[0].span_context.span_id())
        );
        assert_eq!(spans[0].parent_span_id, SpanId::INVALID);
        let transaction = &spans[2].events[0];
        assert_eq!(
            (&*transaction.name, transaction.timestamp),
            ("transaction", SystemTime::from(at(4)))
        );
        assert!(
            spans[2]
                .attributes
                .contains(&KeyValue::new("contiv.added", 3))
        );
        assert!(
            spans[0]
                .attributes
                .contains(&KeyValue::new("contiv.services.changed", 1))
        );
        assert_eq!(spans[3].status, Status::error("no"));
        assert!(
            matches!(spans[0].status, Status::Error { .. }),
            "the root span has the error of its child"
        );
    }

    #[test]
    fn change_without_renderers_has_no_trace() {
        let (clock, _) = clock(50);
        assert!(
            spans(
                &record(BTreeMap::new()),
                &RandomIdGenerator::default(),
                clock
            )
            .is_empty()
        );
    }

    #[test]
    fn pending_renderers_of_a_change_are_an_attribute() {
        let (clock, _) = clock(50);
        let ids = RandomIdGenerator::default();
        let spans = spans(
            &record([("route".into(), Outcome::Pending)].into()),
            &ids,
            clock,
        );
        assert_eq!(spans.len(), 2);
        let pending = Value::Array(Array::String(vec!["route".into()]));
        assert!(
            spans[0]
                .attributes
                .contains(&KeyValue::new("contiv.pending", pending))
        );
    }
}
