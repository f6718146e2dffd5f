//! Everything fails at random while services change: what has a live backend answers all the while, and at the end the
//! kernel holds what a fresh start would put there.
//!
//! `CONTIV_FAULT_SECONDS` makes it longer, `CONTIV_FAULT_SEED` repeats a run.

use std::{
    env,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, EtcdClient, Frontend, Service, State, TARGET_PORT},
    kernel::read_elements,
    lab::{
        Family, Host, Lab, LabError, Namespace, Outcome, Protocol, Responder, Result, isolated, wait_until,
    },
};
use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng, rngs::StdRng};

const MEMBERS: u16 = 3;
/// Changed all the time. The steady services are not among them.
const CHURNING: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
/// For a connection: the rules may be gone for a moment, and then the client's second attempt gets through.
const PATIENCE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(60);

/// What can fail.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillMember(u16),
    PauseMember(u16),
    KillAgent,
    StopAgent,
    FlushRuleset,
    DeleteTable,
    Compact,
}

fn draw(random: &mut StdRng) -> Fault {
    let member = random.random_range(0..MEMBERS);
    match random.random_range(0..7) {
        0 => Fault::KillMember(member),
        1 => Fault::PauseMember(member),
        2 => Fault::KillAgent,
        3 => Fault::StopAgent,
        4 => Fault::FlushRuleset,
        5 => Fault::DeleteTable,
        _ => Fault::Compact,
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One of several hosts, or all, or none.
fn random_backends(lab: &Lab, random: &mut StdRng) -> Vec<&'static Host> {
    let all = lab.pods().map(|pod| pod.host);
    all.into_iter().filter(|_| random.random()).collect()
}

/// Ten changes at once, for as long as nobody says stop. Writes that fail because etcd is in trouble are not repeated:
/// whatever etcd holds at the end is right.
fn churn(lab: &Lab, etcd: &EtcdClient<'_>, seed: u64, done: &AtomicBool) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut written = 0;
    while !done.load(Ordering::Relaxed) {
        let changed: Vec<Service> = (0..10)
            .map(|_| {
                let number = random.random_range(0..CHURNING.len());
                let backends = random_backends(lab, &mut random);
                Service { backends, ..service(number) }
            })
            .collect();
        written += changed.iter().filter(|service| etcd.put(service).is_ok()).count();
    }
    written
}

fn service(number: usize) -> Service {
    Service::new(CHURNING[number], 100 + u8::try_from(number).unwrap_or_default(), &[])
}

/// Opens connections until nobody wants any more. Returns how many were answered.
fn probe(server: SocketAddr, from: &Namespace, done: &AtomicBool, slow: &AtomicUsize) -> Result<usize> {
    let mut answered = 0;
    while !done.load(Ordering::Relaxed) {
        let start = Instant::now();
        match from.ask_within(Protocol::Tcp, server, PATIENCE)? {
            Outcome::Answered { .. } => answered += 1,
            other => {
                return Err(LabError::Unexpected(format!(
                    "{} -> {server} after {answered} answers: {other:?}",
                    from.host.name
                )));
            }
        }
        if start.elapsed() > Duration::from_millis(500) {
            slow.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(answered)
}

/// Does to the system what a fault says, and mends what does not mend itself.
fn inject<'lab>(
    lab: &'lab Lab,
    fault: Fault,
    etcd: &mut Etcd<'lab>,
    agent: &mut Option<Agent<'lab>>,
    options: &AgentOptions,
    random: &mut StdRng,
) -> Result<()> {
    let pause = Duration::from_millis(random.random_range(100..1500));
    let nft = |command: &[&str]| {
        // The table may be gone already.
        let _ = lab.node.exec(&[&["nft"], command].concat());
    };
    match fault {
        Fault::KillMember(member) => {
            etcd.kill_member(member)?;
            thread::sleep(pause);
            etcd.start_member_again(member)?;
        }
        Fault::PauseMember(member) => {
            etcd.signal_member(member, Signal::SIGSTOP)?;
            thread::sleep(pause * 2);
            etcd.signal_member(member, Signal::SIGCONT)?;
        }
        Fault::KillAgent => {
            agent.take().map(Agent::kill).transpose()?;
            thread::sleep(pause / 4);
            *agent = Some(Agent::start(lab, options)?);
        }
        Fault::StopAgent => {
            agent.take().map(Agent::stop).transpose()?;
            *agent = Some(Agent::start(lab, options)?);
        }
        Fault::FlushRuleset => nft(&["flush", "ruleset"]),
        Fault::DeleteTable => nft(&["delete", "table", "inet", "contiv"]),
        Fault::Compact => {
            let status = etcd.etcdctl(&["endpoint", "status", "-w", "json"]).unwrap_or_default();
            let revision = status.split("\"revision\":").nth(1).and_then(|rest| rest.split(',').next());
            if let Some(revision) = revision {
                let _ = etcd.etcdctl(&["compact", revision]);
            }
        }
    }
    thread::sleep(Duration::from_millis(random.random_range(0..400)));
    Ok(())
}

#[test]
fn whatever_fails_what_has_a_live_backend_answers_and_the_kernel_ends_right() -> Result<()> {
    isolated("whatever_fails_what_has_a_live_backend_answers_and_the_kernel_ends_right", |lab| {
        let (seconds, seed) = (number("CONTIV_FAULT_SECONDS", 20), number("CONTIV_FAULT_SEED", 1));
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let mut etcd = Etcd::start_members(lab, MEMBERS)?;
        let steady = Service::new("steady", 80, &[lab.pod1.host, lab.pod3.host]);
        etcd.put(&steady)?;
        (0..CHURNING.len()).try_for_each(|number| etcd.put(&service(number)))?;
        let options = AgentOptions::with_store(etcd.url());
        let mut agent = Some(Agent::start(lab, &options)?);

        let (done, slow) = (AtomicBool::new(false), AtomicUsize::new(0));
        let client = etcd.client().clone();
        let mut random = StdRng::seed_from_u64(seed);
        let outcome = thread::scope(|scope| {
            let writer = scope.spawn(|| churn(lab, &client, seed, &done));
            let probers = Family::BOTH.into_iter().flat_map(|family| {
                let address = |frontend| steady.address(lab, frontend, family);
                [(&lab.pod2, address(Frontend::ClusterIp)), (&lab.client, address(Frontend::LoadBalancer))]
            });
            let (done, slow) = (&done, &slow);
            let probers: Vec<_> =
                probers.map(|(from, server)| scope.spawn(move || probe(server, from, done, slow))).collect();
            let end = Instant::now() + Duration::from_secs(seconds);
            let mut faults = Vec::new();
            let mut injected = Ok(());
            while Instant::now() < end
                && injected.is_ok()
                && !probers.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                let fault = draw(&mut random);
                injected = inject(lab, fault, &mut etcd, &mut agent, &options, &mut random);
                faults.push(fault);
            }
            done.store(true, Ordering::Relaxed);
            let written = writer.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            let answered = probers
                .into_iter()
                .map(|prober| prober.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
                .sum::<Result<usize>>();
            println!(
                "seed {seed}: {} faults, {written} changes, connections answered: {answered:?}, of which slow: {}",
                faults.len(),
                slow.load(Ordering::Relaxed)
            );
            injected.and(
                answered.map_err(|error| LabError::Unexpected(format!("{error}; faults so far: {faults:?}"))),
            )
        });
        outcome?;
        assert_the_kernel_is_right(lab, &etcd, agent, &options)
    })
}

/// What is in the kernel is what a fresh start puts there.
fn assert_the_kernel_is_right<'lab>(
    lab: &'lab Lab,
    etcd: &Etcd<'lab>,
    agent: Option<Agent<'lab>>,
    options: &AgentOptions,
) -> Result<()> {
    let last = Service::new("last", 200, &[lab.pod4.host]);
    wait_until("etcd takes the last change", SOON, || etcd.put(&last).is_ok())?;
    let agent = agent.map_or_else(|| Agent::start(lab, options), Ok)?;
    agent.wait_until_applied(&last)?;
    agent.stop()?;
    let found = read_elements(&lab.node)?;
    lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
    let agent = Agent::start(lab, options)?;
    agent.wait_until_applied(&last)?;
    assert_eq!(found, read_elements(&lab.node)?);
    Ok(())
}
