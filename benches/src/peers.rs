//! Comparison with the layouts of other proxies: loading everything, one change, and the first packet of a flow.

pub mod forwarding;
mod kube_proxy;
mod packets;
mod size;
mod table;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
    time::Duration,
};

use contiv_model::{
    Backend, ChangeSet, ContivService, NodeFacts, Protocol, ServiceChange, ServiceId, ServicePort,
    Snapshot,
};
use contiv_renderer::{Renderer, nftables::Nftables};
use contiv_tests::lab::{Lab, LabError, Result, scratch};

use crate::{
    command::run,
    figures::{Figure, Limit, Quantity},
    progress,
    statistics::{Samples, timed},
    workload::{PORT, cluster_ip},
};
use kube_proxy::{Layout, Port, Service};
use packets::{DisturbedTurns, FirstPackets, Packets};
use size::{ALL_COMPLETE, BACKENDS, FIRST_PORT, SERVICE_RANGE};
use table::Table;

/// The section of these figures in the table.
pub const SECTION: &str = "peers";
/// About how many services then have all their backends.
const SOME_COMPLETE: usize = 3000;
const UDP: Port = Port {
    protocol: "udp",
    port: PORT,
};
/// The number of measured changes of each peer; fewer with as many services as [`ALL_COMPLETE`], where each takes seconds.
const CHANGES: usize = 15;
const SLOW_CHANGES: usize = 4;

/// Measures all layouts with this many services.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, services: usize) -> Result<Vec<Figure>> {
    let services = all_services(lab, services);
    let size = (services.len(), usize::from(BACKENDS));
    let figure = |name: String, measured: Duration| Figure::new(SECTION, name, size, measured);
    let mut figures = Vec::new();
    let mut first_packets = FirstPackets::default();
    for time in 0..loads(services.len()) {
        let changes = if time == 0 {
            changes(services.len())
        } else {
            0
        };
        // The one with the fewest chains first: a commit goes through all chains of the namespace, of every table.
        for table in Table::ALL.into_iter().rev().chain([Table::Fixed]) {
            let costs = lab.node.run(|| {
                let costs = match table {
                    Table::Peer(layout) => load_peer(layout, &services, changes),
                    Table::Contiv => {
                        load_contiv(lab.pod1.host.v4, &services, Protocol::Udp, changes)
                    }
                    Table::Fixed => load_fixed(&services, UDP).map(|()| Costs::default()),
                }?;
                table.deactivate().map(|()| costs)
            })?;
            if changes > 0 && services.len() <= ALL_COMPLETE && table != Table::Fixed {
                figures.push(figure(format!("{table}, load"), costs.loaded));
                figures.push(figure(
                    format!("{table}, one change"),
                    costs.changes.median(),
                ));
            }
        }
        Packets::new(lab, &services)?.send_first_packets(&mut first_packets)?;
        for table in Table::ALL.into_iter().chain([Table::Fixed]) {
            lab.node.run(|| table.delete())?;
        }
    }

    let DisturbedTurns {
        repeated, counting, ..
    } = first_packets.disturbed;
    progress(&format!(
        "peers, disturbed turns: {repeated} repeated, {counting} that count"
    ));
    let (straight, fixed) = (first_packets.straight, first_packets.fixed);
    figures.push(figure(
        "first packet without services, p50".to_owned(),
        straight.percentile(50),
    ));
    figures.push(figure(
        "first packet without services, p99".to_owned(),
        straight.percentile(99),
    ));
    for percent in [50, 99] {
        let mut quickest = Duration::MAX;
        for (table, latencies) in &first_packets.through {
            let latency = latencies.percentile(percent);
            let figure = figure(format!("first packet, {table}, p{percent}"), latency);
            figures.push(match table {
                Table::Contiv => figure.with_limit(Limit::AtMost(quickest.into())),
                Table::Peer(_) | Table::Fixed => figure,
            });
            quickest = latency.min(quickest);
        }
        let fixed = fixed.percentile(percent);
        let name = format!("first packet, one dnat rule, p{percent}");
        figures.push(figure(name, fixed));
        let added = |table: Table| {
            let mut through = first_packets.through.iter();
            let latencies = through.find(|(of, _)| *of == table);
            let latency = latencies.map_or(Duration::ZERO, |(_, of)| of.percentile(percent));
            latency.saturating_sub(fixed).as_secs_f64()
        };
        let ratio = added(Table::Contiv) / added(Table::Peer(Layout::From136));
        let name = format!("first packet, added by contiv / by kube-proxy 1.36, p{percent}");
        let figure = Figure::new(SECTION, name, size, Quantity::Times(ratio));
        figures.push(figure.with_limit(Limit::AtMost(Quantity::Times(0.9))));
    }
    Ok(figures)
}

/// All services have the same backends, so every packet takes the same path and arrives.
fn all_services(lab: &Lab, count: usize) -> Vec<Service> {
    let server = lab.pod2.host.v4;
    let every = if count <= ALL_COMPLETE {
        1
    } else {
        count.div_ceil(SOME_COMPLETE)
    };
    let service = |number: usize| {
        let is_complete = number.is_multiple_of(every);
        let backends = if is_complete { BACKENDS } else { 1 };
        let endpoints = (0..backends)
            .map(|n| SocketAddrV4::new(server, FIRST_PORT + n))
            .collect();
        Service {
            number,
            address: cluster_ip(number),
            endpoints,
        }
    };
    (0..count).map(service).collect()
}

/// The costs of a layout.
#[derive(Default)]
struct Costs {
    loaded: Duration,
    changes: Samples,
}

/// How often tables of this size are loaded for first packets. The placement of its elements in memory makes a table a few percent
/// quicker or slower until it is reloaded.
const fn loads(services: usize) -> usize {
    // Large ones take the peers a minute and more.
    if services < ALL_COMPLETE { 7 } else { 1 }
}

/// The number of measured changes at this size.
const fn changes(services: usize) -> usize {
    if services < ALL_COMPLETE {
        CHANGES
    } else {
        SLOW_CHANGES
    }
}

/// The services that change, with their state afterwards.
fn changed(services: &[Service], count: usize) -> impl Iterator<Item = (&Service, Service)> {
    (0..count).map(|number| {
        let before = &services[number * 7919 % services.len()];
        let mut after = before.clone();
        let replacement = Ipv4Addr::new(10, 200, 0, u8::try_from(number).unwrap_or(u8::MAX));
        after.endpoints[0] = SocketAddrV4::new(replacement, FIRST_PORT);
        (before, after)
    })
}

fn load_peer(layout: Layout, services: &[Service], changes: usize) -> Result<Costs> {
    let loaded = layout
        .everything(UDP, services)
        .map(|text| load(&text))
        .sum::<Result<_>>()?;
    let mut durations = Vec::new();
    for (before, after) in changed(services, changes) {
        // Each change is reverted, since packets need the existing backends.
        durations.push(load(&layout.change(UDP, before, &after))?);
        durations.push(load(&layout.change(UDP, &after, before))?);
    }
    Ok(Costs {
        loaded,
        changes: durations.into_iter().collect(),
    })
}

/// Loads rules as kube-proxy does and returns how long that took.
fn load(rules: &str) -> Result<Duration> {
    let path = scratch("rules.nft")?;
    fs::write(&path, rules)
        .map_err(|error| LabError::system(format!("write {}", path.display()), error))?;
    let path = path.display().to_string();
    let (duration, loaded) = timed(|| run(&["nft", "-f", &path]));
    loaded.map(|_| duration)
}

/// Loads one rule that translates the addresses of all services to one backend.
fn load_fixed(services: &[Service], port: Port) -> Result<()> {
    let server = services
        .iter()
        .find_map(|service| service.endpoints.first())
        .ok_or_else(|| LabError::Unexpected("no backend".to_owned()))?;
    load(&format!(
        "table {} {{ chain nat {{ type nat hook prerouting priority -100; \
         ip daddr {SERVICE_RANGE} {} dport {PORT} dnat to {server}; }}; }}",
        Table::Fixed.identity(),
        port.protocol
    ))
    .map(drop)
}

/// The backends are pods of other nodes, as for the peers: so the range of this node's pods has only the client.
fn load_contiv(
    client: Ipv4Addr,
    services: &[Service],
    protocol: Protocol,
    changes: usize,
) -> Result<Costs> {
    // As with the peers, packets of pods keep their source, and unused addresses of the service range are dropped.
    let range = |text: &str| {
        text.parse()
            .map_err(|_| LabError::Unexpected(format!("the range {text}")))
    };
    let (pods, service_range) = (range(&format!("{client}/32"))?, range(SERVICE_RANGE)?);
    let snapshot = Snapshot {
        services: services
            .iter()
            .map(|service| ours(service, protocol))
            .collect(),
        node: NodeFacts {
            pod_cidrs: [pods].into(),
            service_cidrs: [service_range].into(),
            ..NodeFacts::default()
        },
        ..Snapshot::default()
    };
    let mut renderer = Nftables::new();
    let mut call = |work: &mut dyn FnMut(&mut Nftables) -> Result<(), String>| {
        let (duration, result) = timed(|| work(&mut renderer));
        result.map(|()| duration).map_err(LabError::Unexpected)
    };
    let loaded = call(&mut |renderer| {
        renderer
            .resync(&snapshot)
            .map(drop)
            .map_err(|error| error.to_string())
    })?;
    let mut durations = Vec::new();
    for (before, after) in changed(services, changes) {
        for (old, new) in [(before, &after), (&after, before)] {
            let ((id, old), (_, new)) = (ours(old, protocol), ours(new, protocol));
            let change = ServiceChange {
                old: Some(old),
                new: Some(new),
            };
            let change = ChangeSet {
                services: [(id, change)].into(),
                ..ChangeSet::default()
            };
            durations.push(call(&mut |renderer| {
                renderer
                    .update(&change)
                    .map(drop)
                    .map_err(|error| error.to_string())
            })?);
        }
    }
    Ok(Costs {
        loaded,
        changes: durations.into_iter().collect(),
    })
}

fn ours(service: &Service, protocol: Protocol) -> (ServiceId, Arc<ContivService>) {
    let mut value = ContivService::new(ServiceId::new(
        "default",
        format!("service-{:06}", service.number),
    ));
    value.cluster_ips = [service.address.into()].into();
    let mut backends: Vec<Backend> = service
        .endpoints
        .iter()
        .map(|endpoint| Backend::new((*endpoint).into()))
        .collect();
    backends.sort();
    value.ports = vec![ServicePort {
        port: PORT,
        protocol,
        name: "".into(),
        node_port: None,
        backends,
    }];
    (value.id.clone(), Arc::new(value))
}
