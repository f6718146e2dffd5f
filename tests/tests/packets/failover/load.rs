//! Many connections while one of four backends fails: none of them fails.

use std::{
    env,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend::NodePort, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Namespace, Outcome, Protocol, Responder, Result, isolated,
        isolated_within, wait_until,
    },
};
use socket2::SockRef;

use super::{CONNECT_TIMEOUT, Fault, UNREACHED};

/// How many connections are made for each fault, at most 2,000 a second.
const CONNECTIONS: &str = "CONTIV_FAILOVER_CONNECTIONS";
const DEFAULT_CONNECTIONS: u32 = 3_000;
const PER_SECOND: u32 = 2_000;
/// Each makes one connection at a time, so more than those that wait for their second attempt.
const CLIENTS: u32 = 800;
/// An attempt is repeated after a second.
const REPEATED: Duration = Duration::from_millis(900);

/// A connection: when it began, counted from the first one, and how long it took, if it succeeded.
type Made = (Duration, Option<Duration>);

/// Makes connections at a constant rate, and closes each at once.
fn connect(from: &Namespace, to: SocketAddr, count: u32) -> Result<Vec<Made>> {
    from.exec(&["sysctl", "-qw", "net.ipv4.ip_local_port_range=10000 65000"])?;
    let one = |start: Instant, number: u32| {
        let begins = Duration::from_secs(1) * number / PER_SECOND;
        thread::sleep(begins.saturating_sub(start.elapsed()));
        let begin = Instant::now();
        let connected = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT);
        let took = begin.elapsed();
        // With a reset, so that the port can be used again.
        let is_made = connected.is_ok_and(|stream| {
            SockRef::from(&stream)
                .set_linger(Some(Duration::ZERO))
                .is_ok()
        });
        (begin - start, is_made.then_some(took))
    };
    from.run(|| {
        let start = Instant::now();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let numbers = (client..count).step_by(CLIENTS as usize);
                    scope.spawn(move || numbers.map(|it| one(start, it)).collect::<Vec<Made>>())
                })
                .collect();
            let made = clients.into_iter().flat_map(|client| {
                client
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
            });
            Ok(made.collect())
        })
    })
}

/// Makes connections while `work` is done, a moment after the first of them. Returns them, and when that was.
fn connect_while(
    lab: &Lab,
    to: SocketAddr,
    count: u32,
    work: impl FnOnce() -> Result<()> + Send,
) -> Result<(Vec<Made>, Duration)> {
    thread::scope(|scope| {
        let start = Instant::now();
        let clients = scope.spawn(|| connect(&lab.client, to, count));
        thread::sleep(Duration::from_millis(300));
        let began = start.elapsed();
        work()?;
        let made = clients
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
        Ok((made, began))
    })
}

/// The number of connections that failed, and of those that repeated their attempt.
fn failed_and_repeated<'a>(made: impl IntoIterator<Item = &'a Made>) -> (usize, usize) {
    let (mut failed, mut repeated) = (0, 0);
    for (_, took) in made {
        match took {
            None => failed += 1,
            Some(took) if *took >= REPEATED => repeated += 1,
            Some(_) => {}
        }
    }
    (failed, repeated)
}

/// A service whose backends are all four pods, with failover.
fn web(lab: &Lab) -> ServiceManifest {
    let backends = [&lab.pod1, &lab.pod2, &lab.pod3, &lab.pod4].map(|pod| pod.host);
    ServiceManifest {
        annotations: vec![("contiv.io/failover", "on")],
        ..ServiceManifest::new(Service::new("web", 80, &backends))
    }
}

#[test]
fn no_connection_fails_while_one_of_four_backends_does() -> Result<()> {
    let count = env::var(CONNECTIONS)
        .ok()
        .and_then(|text| text.parse().ok());
    let count = count.unwrap_or(DEFAULT_CONNECTIONS);
    let limit = Duration::from_secs(300) + Duration::from_secs(6) * count / PER_SECOND;
    isolated_within(
        limit,
        "failover::load::no_connection_fails_while_one_of_four_backends_does",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let web = web(lab);
            manifests.put_manifest(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let to = web.service.address(lab, NodePort, Family::V4);
            let pod = &lab.pod2;
            for fault in [
                Fault::Refuses,
                Fault::Unreachable,
                Fault::Silent,
                Fault::AddressLost,
            ] {
                let (made, began) =
                    connect_while(lab, to, count, || fault.begin(pod, TARGET_PORT))?;
                fault.end(pod)?;
                let back = Instant::now();
                let is_back = || {
                    (0..UNREACHED).any(|_| {
                        let outcome = lab.client.ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT);
                        let answer = outcome.and_then(Outcome::answer);
                        answer.is_ok_and(|answer| answer.by == pod.host.name)
                    })
                };
                wait_until("the backend is back", Duration::from_secs(10), is_back)?;
                let back = back.elapsed();
                let (failed, repeated) = failed_and_repeated(&made);
                let is_later = |made: &&Made| made.0 >= began + Duration::from_secs(1);
                let later: Vec<&Made> = made.iter().filter(is_later).collect();
                let (_, later_repeated) = failed_and_repeated(later.iter().copied());
                println!(
                    "{fault:?}: {} connections, {failed} failed, {repeated} repeated their attempt; of {} that began a second \
                     after the fault {later_repeated}; answered again {back:.1?} after its end",
                    made.len(),
                    later.len(),
                );
                if failed > 0 {
                    return Err(LabError::Unexpected(format!(
                        "{fault:?}: {failed} connections failed"
                    )));
                }
            }
            agent.stop().map(drop)
        },
    )
}

#[test]
fn no_connection_fails_while_pods_are_replaced_without_notice() -> Result<()> {
    isolated(
        "failover::load::no_connection_fails_while_pods_are_replaced_without_notice",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let web = web(lab);
            manifests.put_manifest(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let to = web.service.address(lab, NodePort, Family::V4);
            // Each closes its port half a second before the store says that it is gone.
            let replace = || {
                for pod in [&lab.pod1, &lab.pod2, &lab.pod3, &lab.pod4] {
                    Fault::Refuses.begin(pod, TARGET_PORT)?;
                    thread::sleep(Duration::from_millis(500));
                    let mut without = web.clone();
                    without.service.backends.retain(|host| *host != pod.host);
                    manifests.put_manifest(&without)?;
                    thread::sleep(Duration::from_millis(300));
                    Fault::Refuses.end(pod)?;
                    manifests.put_manifest(&web)?;
                    thread::sleep(Duration::from_millis(300));
                }
                Ok(())
            };
            let (made, _) = connect_while(lab, to, 5 * PER_SECOND, replace)?;
            let (failed, repeated) = failed_and_repeated(&made);
            println!(
                "{} connections, {failed} failed, {repeated} repeated their attempt",
                made.len()
            );
            assert_eq!(failed, 0);
            agent.stop().map(drop)
        },
    )
}
