//! The agent is killed and restarted while connections are opened.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Service},
    lab::{Family, Lab, Namespace, Result},
};

use super::scenario::{LIST_TIMEOUT, Scenario};
use crate::{
    figures::{Figure, Limit, Quantity},
    statistics::{Samples, timed},
};

const RESTARTS: usize = 5;
/// A lost SYN is repeated after a second, so a connection that takes this long lost a packet.
const LOST_PACKET_TIME: Duration = Duration::from_millis(900);

/// The outcomes of the connections of one client.
#[derive(Default)]
struct Connections {
    answered: usize,
    failures: Vec<String>,
}

/// Measures restarts. The service must have running servers. The agent of `options` must not be running, before and after.
pub(super) fn measure(
    lab: &Lab,
    options: &AgentOptions,
    service: &Service,
    scenario: Scenario,
) -> Result<Vec<Figure>> {
    let Scenario {
        section, workload, ..
    } = scenario;
    let agent = Agent::start(lab, options)?;
    // A restart may begin with the saved state.
    agent.wait_until_listed(LIST_TIMEOUT)?;
    agent.wait_until_saved()?;
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    let (connections, restarts) = thread::scope(|scope| {
        let clients: Vec<_> = [&lab.client, &lab.pod1]
            .into_iter()
            .map(|client| {
                let of = |frontend| service.address(lab, frontend, Family::V4);
                let targets = [
                    Frontend::ClusterIp,
                    Frontend::ExternalIp,
                    Frontend::LoadBalancer,
                ]
                .map(of);
                let is_over = &is_over;
                scope.spawn(move || connect_until(is_over, client, &targets))
            })
            .collect();
        let restarted = restart(lab, options, agent);
        is_over.store(true, Ordering::Relaxed);
        let joined = clients.into_iter().map(|client| {
            client
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        });
        let connections: Vec<Connections> = joined.collect::<Result<_>>()?;
        restarted.map(|restarts| (connections, restarts))
    })?;
    let seconds = begin.elapsed().as_secs_f64();

    if let Some(failure) = connections
        .iter()
        .find_map(|client| client.failures.first())
    {
        crate::progress(&format!(
            "a connection failed while the agent restarted: {failure}"
        ));
    }
    let sum = |count: fn(&Connections) -> usize| {
        f64::from(u32::try_from(connections.iter().map(count).sum::<usize>()).unwrap_or(u32::MAX))
    };
    let figure = |name: &str, measured: Quantity| {
        Figure::new(
            section,
            format!("restart under load, {name}"),
            (workload.services, workload.backends),
            measured,
        )
    };
    Ok(vec![
        figure("until ready", restarts.median().into()),
        figure(
            "connections a second",
            Quantity::Count(sum(|client| client.answered) / seconds),
        ),
        figure(
            "connections answered",
            Quantity::Count(sum(|client| client.answered)),
        ),
        figure(
            "connections failed",
            Quantity::Count(sum(|client| client.failures.len())),
        )
        .with_limit(Limit::AtMost(Quantity::Count(0.0))),
    ])
}

/// Kills and restarts the agent several times; then stops it.
fn restart<'lab>(
    lab: &'lab Lab,
    options: &AgentOptions,
    mut agent: Agent<'lab>,
) -> Result<Samples> {
    let mut restarts = Vec::new();
    for _ in 0..RESTARTS {
        agent.kill()?;
        let (duration, started) = timed(|| Agent::start_as_service(lab, options));
        agent = started?;
        restarts.push(duration);
        thread::sleep(Duration::from_millis(300));
    }
    agent.stop()?;
    Ok(restarts.into_iter().collect())
}

fn connect_until(
    is_over: &AtomicBool,
    client: &Namespace,
    targets: &[SocketAddr],
) -> Result<Connections> {
    client.run(|| {
        let mut connections = Connections::default();
        // Several targets, since each port of the client can be used for one connection to each.
        for target in targets
            .iter()
            .cycle()
            .take_while(|_| !is_over.load(Ordering::Relaxed))
        {
            match request(*target) {
                Ok(()) => connections.answered += 1,
                Err(error) => connections.failures.push(format!("{target}: {error}")),
            }
        }
        Ok(connections)
    })
}

fn request(target: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, LOST_PACKET_TIME)?;
    stream.set_read_timeout(Some(LOST_PACKET_TIME))?;
    stream.write_all(b"who?\n")?;
    let mut answer = String::new();
    match BufReader::new(stream).read_line(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
