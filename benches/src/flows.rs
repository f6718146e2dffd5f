//! What it costs to tell of connections: processor time of the agent while many begin, with a watcher and without.

use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Result},
};
use socket2::SockRef;

use crate::{
    cluster::process::{machine_time, processor_time},
    figures::{Figure, Limit, Quantity},
};

/// The section of these figures in the table.
pub const SECTION: &str = "flows";
const CONNECTIONS_PER_SECOND: u32 = 5_000;
const LENGTH: Duration = Duration::from_secs(15);
/// The pace of the client.
const STEP: Duration = Duration::from_millis(10);
/// The limits in processors.
const WITH_WATCHER: f64 = 0.05;
const WITHOUT: f64 = 0.005;
/// Where the agent listens.
const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9999);

/// What one load took.
struct Load {
    connections: usize,
    /// Of a processor.
    agent: f64,
    machine: f64,
}

/// Connects from one pod to another through a service, first unwatched and then with a watcher.
///
/// # Errors
/// When the agent does not start, or a connection fails.
pub fn measure(lab: &Lab) -> Result<Vec<Figure>> {
    let manifests = Manifests::new(lab)?;
    let web = Service::new("web", 80, &[lab.pod3.host]);
    manifests.put(&web)?;
    // So that ends are told of too.
    let timeout = "net.netfilter.nf_conntrack_tcp_timeout_close=1";
    lab.node.exec(&["sysctl", "-qw", timeout])?;
    let agent = Agent::start_as_service(lab, &AgentOptions::with_store(manifests.url()))?;
    let to = web.address(lab, Frontend::ClusterIp, Family::V4);
    let ends = Arc::new(AtomicBool::new(false));
    serve(lab, &ends)?;
    // Connections that had events before are gone then.
    let unwatched = load(lab, &agent, to)?;
    let told = watch(lab, &ends)?;
    let watched = load(lab, &agent, to)?;
    thread::sleep(Duration::from_secs(1));
    let told = told.load(Ordering::Relaxed);
    ends.store(true, Ordering::Relaxed);
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    let per_second =
        f64::from(u32::try_from(watched.connections).unwrap_or(u32::MAX)) / LENGTH.as_secs_f64();
    let told = f64::from(u32::try_from(told).unwrap_or(u32::MAX));
    let figure = |name: &str, measured| Figure::new(SECTION, name, (1, 1), measured);
    let at_most = |cores| Limit::AtMost(Quantity::Cores(cores));
    Ok(vec![
        figure("new connections a second", Quantity::Count(per_second)),
        figure(
            "the agent, without a watcher",
            Quantity::Cores(unwatched.agent),
        )
        .with_limit(at_most(WITHOUT)),
        figure("the agent, one watcher", Quantity::Cores(watched.agent))
            .with_limit(at_most(WITH_WATCHER)),
        figure(
            "the kernel and the reader, by the watcher",
            Quantity::Cores(watched.machine - watched.agent - unwatched.machine + unwatched.agent),
        ),
        figure("lines of the watcher", Quantity::Count(told)),
    ])
}

/// Accepts connections in a pod, and closes them.
fn serve(lab: &Lab, ends: &Arc<AtomicBool>) -> Result<()> {
    let listener = lab.pod3.run(|| {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), TARGET_PORT);
        TcpListener::bind(any).map_err(|error| LabError::system("listen", error))
    })?;
    let ends = Arc::clone(ends);
    thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            drop(listener.accept());
        }
    });
    Ok(())
}

/// Watches all connections. Returns the number of lines so far.
fn watch(lab: &Lab, ends: &Arc<AtomicBool>) -> Result<Arc<AtomicUsize>> {
    let failed = |error| LabError::system("watch connections", error);
    let mut stream = lab.node.run(|| TcpStream::connect(AGENT).map_err(failed))?;
    let request = format!("GET /flows?follow=true HTTP/1.1\r\nHost: {AGENT}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let (count, ends) = (Arc::new(AtomicUsize::new(0)), Arc::clone(ends));
    let lines = Arc::clone(&count);
    thread::spawn(move || {
        let mut reader = BufReader::with_capacity(64 << 10, stream);
        let mut line = Vec::new();
        while !ends.load(Ordering::Relaxed)
            && reader
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
        {
            let is_flow = line.trim_ascii_start().starts_with(b"{");
            lines.fetch_add(usize::from(is_flow), Ordering::Relaxed);
            line.clear();
        }
    });
    thread::sleep(Duration::from_secs(1));
    Ok(count)
}

/// Connects at the pace, and measures meanwhile.
fn load(lab: &Lab, agent: &Agent<'_>, to: SocketAddr) -> Result<Load> {
    let before = (processor_time(agent.id())?, machine_time()?);
    let start = Instant::now();
    let connections = lab.pod1.run(|| connect_all(to, start))?;
    let took = start.elapsed().as_secs_f64();
    let after = (processor_time(agent.id())?, machine_time()?);
    Ok(Load {
        connections,
        agent: after.0.saturating_sub(before.0).as_secs_f64() / took,
        machine: after.1.saturating_sub(before.1).as_secs_f64() / took,
    })
}

fn connect_all(to: SocketAddr, start: Instant) -> Result<usize> {
    let failed = |error| LabError::system(format!("connect to {to}"), error);
    let mut connections = 0;
    loop {
        let passed = start.elapsed();
        if passed >= LENGTH {
            return Ok(connections);
        }
        let due = passed.as_millis() * u128::from(CONNECTIONS_PER_SECOND) / 1000;
        while connections as u128 <= due {
            let stream = TcpStream::connect(to).map_err(failed)?;
            // It ends with a reset, so that its port can be used again.
            let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            linger.map_err(failed)?;
            connections += 1;
        }
        thread::sleep(STEP);
    }
}
