//! Services carried by routes, each step beside its floor: the same netlink messages, already encoded and sent as they are.

mod replay;

use std::{net::IpAddr, sync::Arc, time::Duration};

use contiv_model::{
    Backend, Carrier, ChangeSet, ContivService, NodeFacts, Protocol, ServiceChange, ServiceId,
    ServicePort, Snapshot,
};
use contiv_renderer::{
    Renderer,
    route::{Exchange, RouteOptions, Routes},
};
use contiv_tests::lab::{Lab, LabError, Result};

use crate::{
    command::run,
    figures::{Figure, Limit},
    statistics::{Samples, timed},
};
use replay::Kernel;

/// The section of these figures in the table.
pub const SECTION: &str = "routes";

/// Local backends of each service.
const BACKENDS: usize = 4;
/// The pods that the backends are chosen from.
const PODS: usize = 100;
const REPETITIONS: usize = 5;
/// The number of measured changes.
const CHANGES: usize = 200;

/// Measures this many services, each with one address and four backends on this node.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, services: usize) -> Result<Vec<Figure>> {
    lab.node.run(|| measure_here(services))
}

fn measure_here(services: usize) -> Result<Vec<Figure>> {
    run(&["ip", "route", "replace", "10.200.0.0/24", "dev", "pod1"])?;
    let snapshot = snapshot(services);
    let changes: Vec<ChangeSet> = (0..CHANGES)
        .map(|number| change(&snapshot, number))
        .collect();
    let (mut ours, mut floors) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for _ in 0..REPETITIONS {
        let mut renderer = Routes::new(options());
        record(&mut renderer)?;
        ours[0].push(call(|| renderer.resync(&snapshot))?);
        let cold = record(&mut renderer)?;
        let mut replaced = Vec::new();
        for change in &changes {
            ours[1].push(call(|| renderer.update(change))?);
            replaced.push(record(&mut renderer)?);
        }
        let after = {
            let mut after = snapshot.clone();
            for change in &changes {
                after.apply(change);
            }
            after
        };
        drop(renderer);
        let mut restarted = Routes::new(options());
        record(&mut restarted)?;
        ours[2].push(call(|| restarted.resync(&after))?);
        let restart = record(&mut restarted)?;
        let kernel = Kernel::open()?;
        floors[2].push(kernel.replay(&restart)?);
        clean_up(restarted)?;
        floors[0].push(kernel.replay(&cold)?);
        for change in &replaced {
            floors[1].push(kernel.replay(change)?);
        }
        clean_up(Routes::new(options()))?;
    }
    let names = ["cold", "one replaced backend", "restart"];
    let figures =
        names
            .into_iter()
            .zip(ours.into_iter().zip(floors))
            .map(|(name, (ours, floor))| {
                let median = |times: Vec<Duration>| times.into_iter().collect::<Samples>().median();
                let figure = Figure::new(SECTION, name, (services, BACKENDS), median(ours))
                    .beside(median(floor));
                // With fewer services the differences are noise.
                if services >= 10_000 {
                    figure.with_limit(Limit::TimesFloor(2.0))
                } else {
                    figure
                }
            });
    Ok(figures.collect())
}

/// Only direct mode is measured.
fn options() -> RouteOptions {
    RouteOptions {
        reach_from_node: false,
        ..RouteOptions::default()
    }
}

fn snapshot(services: usize) -> Snapshot {
    let all = (0..services).map(|number| {
        let service = service(number, 0);
        (service.id.clone(), service)
    });
    Snapshot {
        services: all.collect(),
        node: NodeFacts::default(),
        ..Snapshot::default()
    }
}

/// A service; `shift` moves the first of its backends to another pod.
fn service(number: usize, shift: usize) -> Arc<ContivService> {
    let pod = |index: usize| {
        let step = if index == 0 { shift * BACKENDS } else { 0 };
        // Below 256, as PODS is.
        #[allow(clippy::cast_possible_truncation)]
        let last = ((number + index + step) % PODS) as u8 + 1;
        IpAddr::from([10, 200, 0, last])
    };
    let backend = |index| Backend {
        local: true,
        ..Backend::new((pod(index), 80).into())
    };
    let mut backends: Vec<Backend> = (0..BACKENDS).map(backend).collect();
    backends.sort();
    let mut service = ContivService::new(ServiceId::new("bench", format!("s{number}")));
    #[allow(clippy::cast_possible_truncation)]
    let [_, _, high, low] = (number as u32).to_be_bytes();
    service.cluster_ips = std::iter::once(IpAddr::from([10, 150, high, low])).collect();
    service.ports = vec![ServicePort {
        port: 80,
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends,
    }];
    service.assignment.addresses = Carrier::Route;
    Arc::new(service)
}

fn change(snapshot: &Snapshot, number: usize) -> ChangeSet {
    let new = service(number * 7919 % snapshot.services.len(), 1);
    let id = new.id.clone();
    let change = ServiceChange {
        old: snapshot.services.get(&id).cloned(),
        new: Some(new),
    };
    ChangeSet {
        services: std::iter::once((id, change)).collect(),
        ..ChangeSet::default()
    }
}

fn record(renderer: &mut Routes) -> Result<Vec<Exchange>> {
    renderer
        .record()
        .map_err(|error| LabError::Unexpected(error.to_string()))
}

fn call<T, E: std::fmt::Display>(work: impl FnOnce() -> Result<T, E>) -> Result<Duration> {
    let (duration, result) = timed(work);
    result
        .map(|_| duration)
        .map_err(|error| LabError::Unexpected(error.to_string()))
}

fn clean_up(mut renderer: Routes) -> Result<()> {
    call(|| renderer.cleanup()).map(drop)
}
