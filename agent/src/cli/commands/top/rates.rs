//! Turns counters into rates per second. Pure.

use std::collections::BTreeMap;

use clap::ValueEnum;
use contiv_model::ServiceId;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::source::{balance::FurthestOff, latency::Latency, views::EventView};

/// The counters at one time.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    /// Attempts to connect that were served so far.
    pub(super) connections: BTreeMap<ServiceId, u64>,
    /// Attempts that were refused so far.
    pub(super) refused: BTreeMap<ServiceId, u64>,
    /// The same by reason.
    pub(super) refused_by: BTreeMap<ServiceId, BTreeMap<String, u64>>,
    /// Of each service with new connections the backend that is furthest off its share, if shares are counted.
    pub(super) furthest_off: BTreeMap<ServiceId, FurthestOff>,
    /// The newest events, oldest first.
    pub(super) events: Vec<EventView>,
}

/// The usage of a service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Usage {
    /// Its node, where several agents are asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) node: String,
    pub(super) service: ServiceId,
    /// Attempts to connect that were served, in the last interval.
    pub(super) connections_per_second: f64,
    /// Attempts since the kernel started counting: served and refused ones.
    pub(super) attempts: u64,
    /// Those that were served: sent to a backend.
    pub(super) connections: u64,
    /// Those that were refused.
    pub(super) refused: u64,
    /// The refused ones by reason.
    pub(super) refused_by: BTreeMap<String, u64>,
    /// Attempts that were refused, in the last interval.
    pub(super) refused_per_second: f64,
    /// The backend that is furthest off its share, if shares are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) furthest_off: Option<FurthestOff>,
}

/// An order of services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// New connections per second, served or refused.
    #[default]
    Rate,
    /// New connections so far that were served.
    Connections,
    /// New connections so far that were refused.
    Refused,
    /// Namespace and name.
    Name,
}

impl Order {
    /// The next one, from the last to the first.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Connections,
            Self::Connections => Self::Refused,
            Self::Refused => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    /// For people.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Connections => "connections",
            Self::Refused => "refused",
            Self::Name => "name",
        }
    }
}

impl Sample {
    fn refused_of(&self, service: &ServiceId) -> u64 {
        self.refused.get(service).copied().unwrap_or(0)
    }
}

impl Usage {
    /// New connections per second, served or refused.
    fn rate(&self) -> f64 {
        self.connections_per_second + self.refused_per_second
    }
}

/// The connections of a service so far: served, and refused.
type Counts = (u64, u64);

/// The rates from the samples so far.
#[derive(Debug, Default)]
pub(super) struct Rates {
    last: Option<Sample>,
    /// Counts of services, also of those missing in the last sample.
    known: BTreeMap<ServiceId, Counts>,
    usages: Vec<Usage>,
    changes: f64,
}

impl Rates {
    /// Adds the next sample.
    pub(super) fn add(&mut self, sample: Sample) {
        if let Some(last) = &self.last {
            let seconds = sample.at.duration_since(last.at).as_secs_f64().max(0.001);
            let usage = |(service, &connections): (&ServiceId, &u64)| {
                let before = self.known.get(service).copied().unwrap_or_default();
                let refused = sample.refused_of(service);
                Usage {
                    node: String::new(),
                    service: service.clone(),
                    connections_per_second: as_f64(new(before.0, connections)) / seconds,
                    attempts: connections.saturating_add(refused),
                    connections,
                    refused,
                    refused_by: sample.refused_by.get(service).cloned().unwrap_or_default(),
                    refused_per_second: as_f64(new(before.1, refused)) / seconds,
                    furthest_off: sample.furthest_off.get(service).copied(),
                }
            };
            self.usages = sample.connections.iter().map(usage).collect();
            let newest = last.events.last().map_or(0, |event| event.seq_num);
            let new = sample.events.iter().filter(|event| event.seq_num > newest);
            let changed: usize = new.map(|event| event.changed).sum();
            self.changes = as_f64(changed as u64) / seconds;
        }
        let counts = |(service, count): (&ServiceId, &u64)| {
            (service.clone(), (*count, sample.refused_of(service)))
        };
        self.known.extend(sample.connections.iter().map(counts));
        self.last = Some(sample);
    }

    /// The first services in this order whose name contains the text. Equal ones are in the order of the others: new
    /// connections in the last interval, served or refused; all of them; and the name.
    pub(super) fn first(&self, order: Order, text: &str, count: usize) -> Vec<Usage> {
        let is_selected = |usage: &&Usage| usage.service.to_string().contains(text);
        let mut usages: Vec<Usage> = self.usages.iter().filter(is_selected).cloned().collect();
        sort(&mut usages, order);
        usages.truncate(count);
        usages
    }

    /// New connections per second of all services.
    pub(super) fn total(&self) -> f64 {
        // An empty sum would be -0, which shows.
        self.usages
            .iter()
            .fold(0.0, |total, usage| total + usage.connections_per_second)
    }

    /// Changed services per second.
    pub(super) const fn changes(&self) -> f64 {
        self.changes
    }

    /// The newest events of the last sample.
    fn events(&self) -> &[EventView] {
        self.last.as_ref().map_or(&[], |last| &last.events)
    }
}

/// Sorts in this order, as [`Rates::first`] says; equal ones are in the order of their nodes.
fn sort(usages: &mut [Usage], order: Order) {
    usages.sort_by(|a, b| {
        let by_rate = || b.rate().total_cmp(&a.rate());
        let first = match order {
            Order::Rate => by_rate(),
            Order::Connections => b.connections.cmp(&a.connections),
            Order::Refused => b.refused.cmp(&a.refused),
            Order::Name => a.service.cmp(&b.service),
        };
        let then = first
            .then_with(by_rate)
            .then_with(|| b.attempts.cmp(&a.attempts));
        then.then_with(|| (&a.service, &a.node).cmp(&(&b.service, &b.node)))
    });
}

/// The rates of one node, or of several.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// By the node; its name is empty if there is only one.
    nodes: BTreeMap<String, Rates>,
}

impl Load {
    /// Adds the next samples of nodes. Others have no rates until they answer again.
    pub(super) fn add(&mut self, samples: Vec<(String, Sample)>) {
        for rates in self.nodes.values_mut() {
            rates.usages.clear();
            rates.changes = 0.0;
        }
        for (node, sample) in samples {
            self.nodes.entry(node).or_default().add(sample);
        }
    }

    /// Whether there are several nodes.
    pub(super) fn has_nodes(&self) -> bool {
        self.nodes.keys().any(|node| !node.is_empty())
    }

    /// As [`Rates::first`], each with its node.
    pub(super) fn first(&self, order: Order, text: &str, count: usize) -> Vec<Usage> {
        let of_node = |(node, rates): (&String, &Rates)| {
            let mut usages = rates.first(order, text, count);
            for usage in &mut usages {
                usage.node.clone_from(node);
            }
            usages
        };
        let mut usages: Vec<Usage> = self.nodes.iter().flat_map(of_node).collect();
        sort(&mut usages, order);
        usages.truncate(count);
        usages
    }

    /// New connections per second of all services.
    pub(super) fn total(&self) -> f64 {
        let rates = self.nodes.values();
        rates.fold(0.0, |total, rates| total + rates.total())
    }

    /// Changed services per second.
    pub(super) fn changes(&self) -> f64 {
        let rates = self.nodes.values();
        rates.fold(0.0, |total, rates| total + rates.changes())
    }

    /// None if no known change has reached a kernel.
    pub(super) fn latency(&self) -> Option<Latency> {
        Latency::of(self.nodes.values().flat_map(Rates::events))
    }
}

/// The increase of a counter. The kernel counts from zero again when an element was replaced.
const fn new(before: u64, now: u64) -> u64 {
    if now >= before { now - before } else { now }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a second are far below 2^52"
)]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, connections: &[(&str, u64)], changed: &[usize]) -> Sample {
        sample_after("change", second, connections, changed)
    }

    /// One with a first event of this kind.
    fn sample_after(
        first: &str,
        second: i64,
        connections: &[(&str, u64)],
        changed: &[usize],
    ) -> Sample {
        let event = |(number, changed): (usize, &usize)| {
            let kind = if number == 0 { first } else { "change" };
            serde_json::from_value(serde_json::json!({
                "seq_num": number + 1, "kind": kind, "description": "", "start": "2026-01-02T03:04:05Z",
                "waited_ms": 0.5, "duration_ms": 0.1, "changed": changed,
                "renderers": {"nftables": {"status": "applied", "with": 1, "report": {}, "duration_ms": 1.0,
                                           "sent_after_ms": changed}},
            }))
            .unwrap()
        };
        Sample {
            at: Timestamp::from_second(second).unwrap(),
            connections: connections
                .iter()
                .map(|(name, count)| (ServiceId::new("shop", *name), *count))
                .collect(),
            refused: BTreeMap::new(),
            refused_by: BTreeMap::new(),
            furthest_off: BTreeMap::new(),
            events: changed.iter().enumerate().map(event).collect(),
        }
    }

    fn rates(samples: Vec<Sample>) -> Vec<(String, f64)> {
        let mut rates = Rates::default();
        for sample in samples {
            rates.add(sample);
        }
        let usages = rates.first(Order::Rate, "", 10).into_iter();
        usages
            .map(|usage| (usage.service.name.to_string(), usage.connections_per_second))
            .collect()
    }

    #[test]
    fn rate_is_the_difference_of_two_samples() {
        let shown = rates(vec![
            sample(0, &[("a", 10), ("b", 7)], &[]),
            sample(2, &[("a", 10), ("b", 27)], &[]),
        ]);
        assert_eq!(shown, [("b".to_owned(), 10.0), ("a".to_owned(), 0.0)]);
    }

    #[test]
    fn service_that_refuses_everything_is_among_busiest() {
        let refusing = |second, refused| Sample {
            refused: [(ServiceId::new("shop", "z"), refused)].into(),
            ..sample(
                second,
                &[("a", 1000 + second.unsigned_abs()), ("z", 0)],
                &[],
            )
        };
        let mut rates = Rates::default();
        rates.add(refusing(0, 10));
        rates.add(refusing(2, 30));
        let busiest = rates.first(Order::Rate, "", 1);
        assert_eq!((&*busiest[0].service.name, busiest[0].refused), ("z", 30));
        assert!((busiest[0].refused_per_second - 10.0).abs() < 1e-9);
    }

    #[test]
    fn services_are_sorted_and_selected_by_name() {
        let sample = |second, a, b, z| Sample {
            refused: [(ServiceId::new("shop", "z"), 3)].into(),
            ..sample(second, &[("a", a), ("b", b), ("z", z)], &[])
        };
        let mut rates = Rates::default();
        rates.add(sample(0, 10, 100, 1));
        rates.add(sample(1, 15, 101, 1));
        let names = |order, text| -> Vec<String> {
            rates
                .first(order, text, 9)
                .into_iter()
                .map(|usage| usage.service.name.to_string())
                .collect()
        };
        let mut order = Order::default();
        for expected in [
            ["a", "b", "z"],
            ["b", "a", "z"],
            ["z", "a", "b"],
            ["a", "b", "z"],
        ] {
            assert_eq!(names(order, ""), expected, "{order:?}");
            order = order.next();
        }
        assert_eq!(order, Order::Rate, "all of them");
        assert_eq!(
            (names(order, "p/b"), names(order, "x")),
            (vec!["b".to_owned()], vec![])
        );
    }

    #[test]
    fn counters_reset_or_services_left_out_make_no_peak() {
        let anew = rates(vec![
            sample(0, &[("a", 1000)], &[]),
            sample(1, &[("a", 3)], &[]),
        ]);
        assert_eq!(anew, [("a".to_owned(), 3.0)]);
        let left_out = rates(vec![
            sample(0, &[("a", 1000)], &[]),
            sample(1, &[], &[]),
            sample(2, &[("a", 1001)], &[]),
        ]);
        assert_eq!(left_out, [("a".to_owned(), 1.0)]);
    }

    #[test]
    fn changes_count_new_events_and_latency_all_known_events() {
        let mut rates = Rates::default();
        rates.add(sample(0, &[], &[5]));
        rates.add(sample(2, &[], &[5, 2, 4]));
        assert!((rates.changes() - 3.0).abs() < 1e-9);
        assert_eq!(
            Latency::of(rates.events()),
            Some(Latency {
                p50: 4.5,
                p99: 5.5,
                worst: 5.5,
                count: 3
            })
        );
    }

    #[test]
    fn latency_without_snapshots_is_that_of_changes() {
        let mut rates = Rates::default();
        rates.add(sample_after("snapshot", 0, &[], &[900]));
        assert_eq!(Latency::of(rates.events()), None);
        rates.add(sample_after("snapshot", 2, &[], &[900, 2, 4]));
        assert_eq!(
            Latency::of(rates.events()),
            Some(Latency {
                p50: 4.5,
                p99: 4.5,
                worst: 4.5,
                count: 2
            })
        );
    }

    #[test]
    fn nodes_are_sorted_as_one_and_silent_ones_have_no_rates() {
        let mut load = Load::default();
        assert!(!load.has_nodes());
        let samples = |second, counts: &[(&str, u64)]| {
            let of_node = |(node, count): &(&str, u64)| {
                ((*node).to_owned(), sample(second, &[("web", *count)], &[]))
            };
            counts.iter().map(of_node).collect()
        };
        load.add(samples(0, &[("n1", 0), ("n2", 0)]));
        load.add(samples(1, &[("n1", 10), ("n2", 30)]));
        let nodes = |load: &Load, count| -> Vec<String> {
            let usages = load.first(Order::Rate, "", count);
            usages.into_iter().map(|usage| usage.node).collect()
        };
        assert_eq!(nodes(&load, 5), ["n2", "n1"]);
        assert_eq!(nodes(&load, 1), ["n2"]);
        assert!(load.has_nodes() && (load.total() - 40.0).abs() < 0.1);
        load.add(samples(2, &[("n1", 10)]));
        assert_eq!(nodes(&load, 5), ["n1"]);
        // What came meanwhile is spread over the whole time.
        load.add(samples(3, &[("n1", 10), ("n2", 50)]));
        assert!((load.total() - 10.0).abs() < 0.1, "{}", load.total());
    }
}
