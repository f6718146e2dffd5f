//! Changes and their deliveries to many watchers.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use contiv_tests::lab::{Lab, Result};

use super::{
    arrivals::Arrivals,
    descriptors,
    scenario::{Phases, SECTION, Topology},
    server::{Server, Usage},
    watchers::Watchers,
    writers::{self, Puts},
};
use crate::{
    figures::{Figure, Limit, Quantity},
    progress,
    statistics::{Samples, timed},
    workload::Workload,
};

/// What is in the store: little, since watchers do not use it.
const WORKLOAD: Workload = Workload {
    services: 10,
    backends: 4,
};
/// The constant rate, in changes a second: so few that one has arrived everywhere before the next.
const RATE: u32 = 1;
/// The same without watchers.
const RATE_ALONE: u32 = 20;
const DURATION_ALONE: Duration = Duration::from_secs(5);
/// Writers that put again as soon as etcd has acknowledged.
const WRITERS: usize = 4;
/// Between changes while watches are opened: less than a watcher waits before it requests its progress.
const PULSE: Duration = Duration::from_secs(2);
/// The most puts of these writers together.
const MAX_PUTS: usize = 400_000;
/// Without any delivery for so long, no further one is expected.
const LAST_DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures one topology.
pub(super) fn measure(lab: &Lab, topology: Topology, phases: Phases) -> Result<Vec<Figure>> {
    let Topology { watchers, proxies } = topology;
    descriptors::allow(watchers)?;
    let server = Server::start(lab, WORKLOAD, proxies)?;
    let figure =
        |name: &str, measured: Quantity| Figure::new(SECTION, name, (watchers, proxies), measured);
    let put_at =
        |rate, duration| writers::write_at_rate(lab, &server.client, WORKLOAD, rate, duration);
    let alone = acknowledgements(&put_at(RATE_ALONE, DURATION_ALONE)?);
    let arrivals = Arc::new(Arrivals::after(server.revision()?, 2 * MAX_PUTS));
    let before = server.memory()?;
    let (opening, open) = timed(|| {
        // In a quiet store each watcher would request its progress, which can take more than to open the others.
        writers::write_meanwhile(lab, &server.client, WORKLOAD, PULSE, || {
            Watchers::open(lab, &server.endpoints(), watchers, &arrivals)
        })
    });
    let open = open?;
    let opened = usize::try_from(open.opened()).unwrap_or(usize::MAX);
    if opened < watchers {
        return Ok(vec![
            figure(
                "watches that could be opened",
                Quantity::Count(number(opened)),
            ),
            figure(
                "watches that were lost",
                Quantity::Count(open.interruptions().0.into()),
            ),
        ]);
    }
    let memory = server.memory()?;
    let of_each = |bytes: f64| Quantity::Bytes(bytes / number(watchers));
    let mut figures = vec![
        figure("all watches are opened after", opening.into()),
        figure(
            "memory of etcd a watcher",
            of_each(memory.etcd - before.etcd),
        ),
        figure(
            "memory of proxies a watcher",
            of_each(memory.proxies - before.proxies),
        ),
    ];

    progress("changes at a constant rate");
    let mut changes = Changes::default();
    let at_rate = used(&server, || {
        let puts = put_at(RATE, phases.constant_rate)?;
        changes = Changes::follow(&puts, &arrivals, watchers);
        Ok(())
    })?;
    let phase = "1 change/s";
    figures.extend(changes.latencies(phase, topology, &alone));
    figures.extend(at_rate.processors(phase, topology));

    progress("as many changes as etcd acknowledges");
    let (begin, delivered) = (Instant::now(), arrivals.deliveries());
    let mut saturating = Changes::default();
    let saturated = used(&server, || {
        let puts = writers::write_closed_loop(
            lab,
            &server.client,
            WORKLOAD,
            WRITERS,
            phases.saturation,
            MAX_PUTS,
        )?;
        saturating = Changes::follow(&puts, &arrivals, watchers);
        Ok(())
    })?;
    let duration = arrivals
        .last()
        .saturating_duration_since(begin)
        .as_secs_f64();
    let deliveries = u32::try_from(arrivals.deliveries() - delivered).unwrap_or(u32::MAX);
    let deliveries = f64::from(deliveries);
    figures.extend([
        figure(
            "saturated, changes a second",
            Quantity::Count(number(saturating.puts()) / duration),
        ),
        figure(
            "saturated, deliveries a second",
            Quantity::Count(deliveries / duration),
        ),
    ]);
    figures.extend(saturating.latencies("saturated", topology, &alone));
    figures.extend(saturated.processors("saturated", topology));
    figures.extend(saturated.of_each_delivery(deliveries, topology));
    let (outages, lists) = open.interruptions();
    let missing = Quantity::Count(number(changes.missing + saturating.missing));
    let failed = Quantity::Count(number(changes.failed + saturating.failed));
    figures.extend([
        figure("changes that a watcher never got", missing)
            .with_limit(Limit::AtMost(Quantity::Count(0.0))),
        figure("puts that were not acknowledged", failed),
        figure("watches that were lost", Quantity::Count(outages.into())),
        figure("lists in place of changes", Quantity::Count(lists.into())),
    ]);

    // Last, since watches that get no answer to such requests are opened again.
    progress("no changes");
    thread::sleep(phases.rest);
    let at_rest = used(&server, || {
        thread::sleep(phases.rest);
        Ok(())
    })?;
    figures.extend(at_rest.processors("at rest", topology));
    let requests = at_rest.usage.requests / at_rest.duration.as_secs_f64();
    let lost = open.interruptions().0 - outages;
    figures.extend([
        figure("at rest, requests a second", Quantity::Count(requests)),
        figure(
            "at rest, watches that were lost",
            Quantity::Count(lost.into()),
        ),
    ]);
    if proxies == 0 {
        figures.retain(|figure| !figure.name.contains("prox"));
    }
    Ok(figures)
}

/// What a phase used.
struct PhaseUsage {
    usage: Usage,
    duration: Duration,
}

fn used(server: &Server<'_>, work: impl FnOnce() -> Result<()>) -> Result<PhaseUsage> {
    let before = server.usage()?;
    let (duration, done) = timed(work);
    done?;
    let usage = server.usage()?.since(before);
    Ok(PhaseUsage { usage, duration })
}

impl PhaseUsage {
    /// Busy processors.
    fn processors(&self, phase: &str, topology: Topology) -> Vec<Figure> {
        let Usage {
            etcd,
            proxies,
            clients,
            others,
            ..
        } = self.usage;
        let all = [
            ("etcd", etcd),
            ("proxies", proxies),
            ("clients", clients),
            ("other programs", others),
        ];
        all.map(|(of, time)| {
            let cores = Quantity::Cores(time.as_secs_f64() / self.duration.as_secs_f64());
            let name = format!("{phase}, processors of {of}");
            Figure::new(SECTION, name, (topology.watchers, topology.proxies), cores)
        })
        .into()
    }

    /// What each of so many deliveries took.
    fn of_each_delivery(&self, deliveries: f64, topology: Topology) -> Vec<Figure> {
        let Usage {
            etcd,
            proxies,
            clients,
            sent_bytes,
            sent_events,
            ..
        } = self.usage;
        let time = |time: Duration| Quantity::Seconds(time.as_secs_f64() / deliveries);
        [
            ("etcd's processor time a delivery", time(etcd)),
            ("proxies' processor time a delivery", time(proxies)),
            ("clients' processor time a delivery", time(clients)),
            (
                "bytes of etcd a delivery",
                Quantity::Bytes(sent_bytes / deliveries),
            ),
            (
                "events of etcd a delivery",
                Quantity::Times(sent_events / deliveries),
            ),
        ]
        .map(|(name, measured)| {
            let size = (topology.watchers, topology.proxies);
            Figure::new(SECTION, name, size, measured)
        })
        .into()
    }
}

/// How long changes took.
#[derive(Debug, Default)]
struct Changes {
    acknowledged: Samples,
    delivered: Samples,
    missing: usize,
    failed: usize,
}

impl Changes {
    /// Waits until all watchers have these changes.
    fn follow(puts: &Puts, arrivals: &Arrivals, watchers: usize) -> Self {
        let watchers = u32::try_from(watchers).unwrap_or(u32::MAX);
        let newest = puts.acknowledged.iter().map(|put| put.revision).max();
        let is_delivered = || newest.is_none_or(|revision| arrivals.watchers(revision) >= watchers);
        let begin = Instant::now();
        while !is_delivered() && arrivals.last().max(begin).elapsed() < LAST_DELIVERY_TIMEOUT {
            thread::sleep(Duration::from_millis(20));
        }
        let delivered = puts.acknowledged.iter().filter_map(|put| {
            let last = arrivals.last_of(put.revision, watchers)?;
            Some(last.saturating_duration_since(put.sent))
        });
        let missing = puts.acknowledged.iter().map(|put| {
            let missing = watchers.saturating_sub(arrivals.watchers(put.revision));
            usize::try_from(missing).unwrap_or(usize::MAX)
        });
        Self {
            acknowledged: acknowledgements(puts),
            delivered: delivered.collect(),
            missing: missing.sum(),
            failed: puts.failed,
        }
    }

    fn puts(&self) -> usize {
        self.acknowledged.len()
    }

    /// The floor of an acknowledgement is that without watchers.
    fn latencies(&self, phase: &str, topology: Topology, alone: &Samples) -> Vec<Figure> {
        let figure = |what: &str, samples: &Samples, percent: usize| {
            let name = format!("{phase}, {what}, p{percent}");
            let size = (topology.watchers, topology.proxies);
            Figure::new(SECTION, name, size, samples.percentile(percent))
        };
        let acknowledged = [50, 99].map(|percent| {
            figure("put acknowledged", &self.acknowledged, percent)
                .beside(alone.percentile(percent))
        });
        let delivered =
            [50, 99].map(|percent| figure("put at last watcher", &self.delivered, percent));
        acknowledged.into_iter().chain(delivered).collect()
    }
}

fn acknowledgements(puts: &Puts) -> Samples {
    let time = |put: &writers::AcknowledgedPut| put.acknowledged.duration_since(put.sent);
    puts.acknowledged.iter().map(time).collect()
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
