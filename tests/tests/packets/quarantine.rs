//! Objects that cannot be decoded are reported and never treated as deleted.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, isolated, wait_until},
};

#[test]
fn bad_value_in_etcd_keeps_the_last_good_state_and_is_reported() -> Result<()> {
    isolated("quarantine::bad_value_in_etcd_keeps_the_last_good_state_and_is_reported", |lab| {
        let etcd = Etcd::start(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        let key = Etcd::key(&web);
        the_last_good_state_stays(lab, &etcd, &web, &key, || {
            etcd.put_value(&key, r#"{"name":"web","port":[{"port":"#)
        })
    })
}

#[test]
fn broken_manifest_keeps_the_last_good_state_and_is_reported() -> Result<()> {
    isolated("quarantine::broken_manifest_keeps_the_last_good_state_and_is_reported", |lab| {
        let manifests = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host]);
        let break_it =
            || manifests.write("web.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web\nspec: [");
        the_last_good_state_stays(lab, &manifests, &web, "web.yaml", break_it)
    })
}

fn the_last_good_state_stays(
    lab: &Lab,
    state: &dyn State,
    web: &Service,
    source: &str,
    break_it: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    state.put(web)?;
    let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    let ask = |service: &Service| {
        lab.client.ask(Protocol::Tcp, service.address(lab, Frontend::NodePort, Family::V4))?.answer()
    };
    let is_reported = || {
        agent
            .http("GET", "/quarantine")
            .is_ok_and(|listed| listed.status == 200 && listed.body.contains(source))
    };
    assert_eq!(ask(web)?.by, "pod1");
    assert!(!is_reported());

    break_it()?;
    wait_until("the agent reports it", Duration::from_secs(10), is_reported)?;
    assert_eq!(ask(web)?.by, "pod1", "the last good state stays applied");
    // Other services are still updated.
    let other = Service::new("other", 81, &[lab.pod3.host]);
    state.put(&other)?;
    agent.wait_until_applied(&other)?;
    assert_eq!(ask(&other)?.by, "pod3");
    assert_eq!(ask(web)?.by, "pod1");

    let web = Service { backends: vec![lab.pod4.host], ..web.clone() };
    state.put(&web)?;
    agent.wait_until_applied(&web)?;
    assert_eq!(ask(&web)?.by, "pod4", "a good value is used at once");
    wait_until("the agent reports it no more", Duration::from_secs(10), || !is_reported())?;
    Ok(())
}
