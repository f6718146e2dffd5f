//! The agent is stopped under a stream of changes: it ends cleanly and saves the applied state.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Frontend, Service, State, TARGET_PORT},
    lab::{Family, Protocol, Responder, Result, isolated},
};

/// Services that change continuously.
const CHURNING: [&str; 4] = ["c0", "c1", "c2", "c3"];
const ROUNDS: usize = 3;

#[test]
fn state_at_a_stop_under_load_is_saved() -> Result<()> {
    isolated("shutdown::state_at_a_stop_under_load_is_saved", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let mut etcd = Etcd::start(lab)?;
        let options = AgentOptions::with_store(etcd.url());
        let web = |round: usize| Service::new("web", 80, &[lab.pods()[round].host]);
        let churning = |name, number| Service::new(name, number, &[lab.pod1.host]);
        (100..)
            .zip(CHURNING)
            .try_for_each(|(number, name)| etcd.put(&churning(name, number)))?;
        for round in 0..ROUNDS {
            etcd.put(&web(round))?;
            let agent = Agent::start(lab, &options)?;
            let done = AtomicBool::new(false);
            let client = etcd.client();
            let took = thread::scope(|scope| {
                for (number, name) in (100..).zip(CHURNING) {
                    let done = &done;
                    scope.spawn(move || {
                        for host in lab
                            .pods()
                            .iter()
                            .cycle()
                            .take_while(|_| !done.load(Ordering::Relaxed))
                        {
                            let churning = Service::new(name, number, &[host.host]);
                            // Not all of these changes are read before the end.
                            let _ = client.put_slice_at_once(0, &churning, Family::V4);
                        }
                    });
                }
                let stopped = agent.wait_until_applied(&web(round)).and_then(|()| {
                    let start = Instant::now();
                    assert!(
                        agent.stop()?.success(),
                        "SIGTERM is a clean end, whatever comes in"
                    );
                    Ok(start.elapsed())
                });
                done.store(true, Ordering::Relaxed);
                stopped
            })?;
            println!("stopped after {took:?}");

            // As after a power failure: only the saved state is left.
            etcd.kill()?;
            lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
            let agent = Agent::start(lab, &options)?;
            let address = web(round).address(lab, Frontend::ClusterIp, Family::V4);
            let answer = lab
                .node
                .ask_within(Protocol::Tcp, address, Duration::from_secs(10))?
                .answer()?;
            assert_eq!(answer.by, lab.pods()[round].host.name);
            agent.stop()?;
            etcd.start_again()?;
        }
        Ok(())
    })
}
