//! A store that loses most of its content does not delete the services of the node.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, ROOT, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, wait_until},
};

const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
const NAMES: [&str; 12] = [
    "web0", "web1", "web2", "web3", "web4", "web5", "web6", "web7", "web8", "web9", "web10",
    "web11",
];

fn services(lab: &Lab) -> Vec<Service> {
    (1..)
        .zip(NAMES)
        .map(|(number, name)| Service::new(name, number, &[lab.pod1.host]))
        .collect()
}

fn answering(lab: &Lab) -> Result<usize> {
    let mut count = 0;
    for service in services(lab) {
        let address = service.address(lab, Frontend::NodePort, Family::V4);
        count += usize::from(matches!(
            lab.client.ask(Protocol::Tcp, address)?,
            Outcome::Answered { .. }
        ));
    }
    Ok(count)
}

fn wait_until_held(agent: &Agent<'_>) -> Result<()> {
    wait_until("deletions are held", EVENT_TIMEOUT, || {
        agent
            .status()
            .is_ok_and(|status| status["held_deletions"]["objects"].is_u64())
    })
    .map(drop)
}

/// An agent that has applied a complete store.
fn start<'lab>(lab: &'lab Lab, etcd: &Etcd<'_>, flags: &[&str]) -> Result<Agent<'lab>> {
    let flags = flags.iter().map(ToString::to_string).collect();
    Agent::start(
        lab,
        &AgentOptions {
            flags,
            ..AgentOptions::with_store(etcd.url())
        },
    )
}

#[test]
fn mass_deletion_is_held_until_confirmed_while_changes_continue() -> Result<()> {
    isolated(
        "mass_deletion::mass_deletion_is_held_until_confirmed_while_changes_continue",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            services(lab)
                .iter()
                .try_for_each(|service| etcd.put(service))?;
            let agent = start(lab, &etcd, &["--mass-deletion-wait=1h"])?;
            assert_eq!(answering(lab)?, 12);
            etcd.etcdctl(&["del", "--prefix", "/vnf-agent/contiv-ksr/k8s/service/"])?;
            wait_until_held(&agent)?;
            let new = Service::new("new", 80, &[lab.pod3.host]);
            etcd.put(&new)?;
            agent.wait_until_applied(&new)?;
            assert_eq!(answering(lab)?, 12, "they stay");
            agent.wait_until_saved()?;
            // Neither another list nor a restart changes that.
            agent.http("POST", "/controller/resync")?;
            agent.kill()?;
            let agent = start(lab, &etcd, &["--mass-deletion-wait=1h"])?;
            wait_until_held(&agent)?;
            assert_eq!(answering(lab)?, 12, "what was saved of them stays");

            assert_eq!(
                agent.http("POST", "/controller/confirm-deletions")?.status,
                202
            );
            services(lab)
                .iter()
                .try_for_each(|service| agent.wait_until_gone(service))?;
            assert_eq!(answering(lab)?, 0);
            assert_eq!(agent.status()?.get("held_deletions"), None);
            assert_eq!(
                agent.http("POST", "/controller/confirm-deletions")?.status,
                200,
                "none are held"
            );
            Ok(())
        },
    )
}

#[test]
fn mass_deletion_applies_later_except_to_returned_services() -> Result<()> {
    isolated(
        "mass_deletion::mass_deletion_applies_later_except_to_returned_services",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            services(lab)
                .iter()
                .try_for_each(|service| etcd.put(service))?;
            let agent = start(lab, &etcd, &["--mass-deletion-wait=5s"])?;
            etcd.etcdctl(&["del", "--prefix", "/vnf-agent/contiv-ksr/k8s/service/"])?;
            wait_until_held(&agent)?;
            let services = services(lab);
            let (back, gone) = services.split_at(6);
            back.iter().try_for_each(|service| etcd.put(service))?;
            gone.iter()
                .try_for_each(|service| agent.wait_until_gone(service))?;
            assert_eq!(answering(lab)?, 6);
            let history = agent.http("GET", "/controller/event-history")?.body;
            assert!(history.contains("held long enough"), "{history}");
            Ok(())
        },
    )
}

#[test]
fn mass_deletion_during_a_stop_is_held_too() -> Result<()> {
    isolated(
        "mass_deletion::mass_deletion_during_a_stop_is_held_too",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            services(lab)
                .iter()
                .try_for_each(|service| etcd.put(service))?;
            let node = |number| (format!("{ROOT}/nodeinfo/large{number}"), "{}".to_owned());
            etcd.put_values(&(0..3000).map(node).collect::<Vec<_>>())?;
            let agent = start(lab, &etcd, &["--mass-deletion-wait=1h"])?;
            agent.wait_until_saved()?;
            agent.kill()?;
            etcd.etcdctl(&["del", "--prefix", "/vnf-agent/contiv-ksr/k8s/service/"])?;
            let agent = start(lab, &etcd, &["--mass-deletion-wait=1h"])?;
            wait_until_held(&agent)?;
            assert_eq!(answering(lab)?, 12);
            Ok(())
        },
    )
}
