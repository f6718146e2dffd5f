//! A store that tries to fill the agent's memory: the agent reads what it needs, within limits.
//!
//! `CONTIV_HOSTILE_KEYS`, `CONTIV_HOSTILE_CHANGES` and `CONTIV_HOSTILE_HUGE` set larger amounts.

use std::{
    env, fs,
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, ROOT, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated_within},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(900);
/// The maximum memory of the agent, for any content of the store. Without hostile content it needs about 30 MiB.
const MAX_MEBIBYTES: u64 = 400;
/// The maximum number of open file descriptors of the agent: about 25 at rest, and one for each of at most 100 connections to its
/// debug HTTP.
const MAX_DESCRIPTORS: u64 = 140;
/// etcd accepts 1.5 MiB in one request.
const LARGE_VALUE_BYTES: usize = 1 << 20;
const WRITERS: usize = 16;

/// The number in an environment variable.
fn setting(name: &str, default: usize) -> usize {
    env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// The peak usage of a process.
#[derive(Debug, Default)]
struct Peak {
    mebibytes: AtomicU64,
    descriptors: AtomicU64,
}

impl Peak {
    fn sample(&self, process: u32) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let kibibytes: u64 = kibibytes
            .and_then(|number| number.parse().ok())
            .unwrap_or_default();
        let open = fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        self.mebibytes
            .fetch_max(kibibytes / 1024, Ordering::Relaxed);
        self.descriptors
            .fetch_max(open.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Stops the measurement, also when the test panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures the agent's usage during `work` and prints the peak.
#[expect(clippy::print_stdout, reason = "the peak is part of the result")]
fn measure(agent: &Agent<'_>, step: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (peak, done) = (Peak::default(), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.sample(agent.id());
                thread::sleep(Duration::from_millis(20));
            }
        });
        let _end = StopOnDrop(&done);
        work()
    });
    println!("{step}: at most {peak:?}");
    assert!(
        peak.mebibytes.into_inner() <= MAX_MEBIBYTES,
        "too much memory: {step}"
    );
    assert!(
        peak.descriptors.into_inner() <= MAX_DESCRIPTORS,
        "too many descriptors: {step}"
    );
    outcome
}

/// Asserts that a new service is applied and answers.
fn assert_service_works(
    lab: &Lab,
    etcd: &Etcd<'_>,
    agent: &Agent<'_>,
    service: &Service,
) -> Result<()> {
    etcd.put(service)?;
    agent.wait_until_applied(service)?;
    let address = service.address(lab, Frontend::ClusterIp, Family::V4);
    let answer = lab
        .pod2
        .ask_within(Protocol::Tcp, address, Duration::from_secs(10))?
        .answer()?;
    assert_eq!(answer.by, service.backends[0].name);
    Ok(())
}

#[test]
fn hostile_values_and_keys_cost_only_bounded_memory() -> Result<()> {
    let test = "hostile_store::hostile_values_and_keys_cost_only_bounded_memory";
    isolated_within(TEST_TIMEOUT, test, |lab| {
        let (keys, changes) = (
            setting("CONTIV_HOSTILE_KEYS", 100_000),
            setting("CONTIV_HOSTILE_CHANGES", 5_000),
        );
        let huge_writes = setting("CONTIV_HOSTILE_HUGE", 40);
        let huge = "x".repeat(LARGE_VALUE_BYTES);
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let etcd = Etcd::start(lab)?;
        let web = |pod: usize| Service::new("web", 80, &[lab.pods()[pod].host]);
        let options = AgentOptions::with_store(etcd.url());
        let agent = Agent::start(lab, &options)?;
        assert_service_works(lab, &etcd, &agent, &web(0))?;

        measure(&agent, &format!("{keys} foreign keys"), || {
            let foreign_key = |number| {
                (
                    format!("/vnf-agent/contiv-ksr/foreign/{number:08}"),
                    "x".to_owned(),
                )
            };
            etcd.put_values(&(0..keys).map(foreign_key).collect::<Vec<_>>())?;
            assert_service_works(lab, &etcd, &agent, &web(1))
        })?;
        measure(&agent, "64 values of 1 MiB", || {
            for number in 0..64 {
                let key = format!("{ROOT}/service/huge{number}/namespace/default");
                etcd.put_value(&key, &huge)?;
            }
            assert_service_works(lab, &etcd, &agent, &web(2))
        })?;
        let bad = agent.http("GET", "/quarantine")?.json()?;
        assert_eq!(
            bad.as_array().map(Vec::len),
            Some(64),
            "the quarantine lists each of them"
        );
        measure(&agent, &format!("a key changed {changes} times"), || {
            let left = AtomicU64::new(changes.try_into().unwrap_or(u64::MAX));
            let take = || {
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
            };
            let restless = Service::new("restless", 81, &[lab.pod1.host]);
            etcd.put(&restless)?;
            thread::scope(|scope| {
                let writers: Vec<_> = (0..WRITERS)
                    .map(|writer| {
                        let (take, client) = (&take, etcd.client());
                        let host = lab.pods()[writer % 4].host;
                        scope.spawn(move || {
                            let restless = Service::new("restless", 81, &[host]);
                            while take().is_ok() {
                                client.put_slice_at_once(0, &restless, Family::V4)?;
                            }
                            Ok::<_, LabError>(())
                        })
                    })
                    .collect();
                writers.into_iter().try_for_each(|writer| {
                    writer
                        .join()
                        .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
                })
            })?;
            assert_service_works(lab, &etcd, &agent, &web(3))
        })?;

        measure(
            &agent,
            &format!("{huge_writes} times a value of 1 MiB"),
            || {
                // In parallel, so that changes arrive faster than the agent reads them.
                thread::scope(|scope| {
                    let writers: Vec<_> = (0..4)
                        .map(|writer| {
                            let (client, huge) = (etcd.client(), &huge);
                            scope.spawn(move || {
                                let key = format!("{ROOT}/service/huge{writer}/namespace/default");
                                (0..huge_writes / 4).try_for_each(|_| client.put_value(&key, huge))
                            })
                        })
                        .collect();
                    writers.into_iter().try_for_each(|writer| {
                        writer
                            .join()
                            .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
                    })
                })?;
                assert_service_works(lab, &etcd, &agent, &web(0))
            },
        )?;
        measure(&agent, "silent connections", || {
            let silent = lab.node.run(|| -> Result<Vec<TcpStream>> {
                let open = |error| LabError::system("connect to the agent", error);
                (0..500)
                    .map(|_| TcpStream::connect("127.0.0.1:9999").map_err(open))
                    .collect()
            })?;
            assert_service_works(lab, &etcd, &agent, &web(1))?;
            drop(silent);
            Ok(())
        })?;

        // The next agent lists everything at once.
        agent.stop()?;
        let agent = Agent::start_on(&lab.node, "next", &options)?;
        measure(&agent, "a start with all of that", || {
            assert_service_works(lab, &etcd, &agent, &web(0))
        })?;
        agent.stop().map(drop)
    })
}
