//! The objects in Kubernetes, and the servers that answer.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, wait_until},
};

use serde_json::json;

use crate::kubernetes::cluster::{Kubernetes, start_reflector};

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(40);

/// The servers that answer an external client, at each address of a service and by each family.
fn answers(lab: &Lab, service: &Service) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for family in Family::BOTH {
        for frontend in Frontend::ALL {
            let outcome = lab
                .client
                .ask(Protocol::Tcp, service.address(lab, frontend, family))?;
            all.push(match outcome {
                Outcome::Answered { answer, .. } => answer.by,
                other => format!("{other:?}"),
            });
        }
    }
    Ok(all)
}

/// Checks that connections reach the current backends across changes and an outage of the API server. `agent` reads the API
/// server directly or through the reflector.
fn check_across_outage(lab: &Lab, kubernetes: &Kubernetes<'_>, agent: &Agent<'_>) -> Result<()> {
    let [web, gone] =
        [("web", 80), ("gone", 81)].map(|(name, n)| Service::new(name, n, &[lab.pod1.host]));
    for service in [&web, &gone] {
        agent.wait_until_applied(service)?;
        assert_eq!(answers(lab, service)?, ["pod1"; 8]);
    }
    let moved = Service {
        backends: vec![lab.pod3.host],
        ..web.clone()
    };
    kubernetes.put(&moved)?;
    agent.wait_until_applied(&moved)?;
    assert_eq!(answers(lab, &web)?, ["pod3"; 8]);

    kubernetes.server.cut();
    kubernetes.delete(&gone);
    let moved = Service {
        backends: vec![lab.pod4.host],
        ..web.clone()
    };
    kubernetes.put(&moved)?;
    kubernetes.server.expire();
    // The new state is not known yet, so the last one stays applied.
    assert_eq!(answers(lab, &web)?, ["pod3"; 8]);
    assert_eq!(answers(lab, &gone)?, ["pod1"; 8]);
    kubernetes.server.reconnect();
    agent.wait_until_applied(&moved)?;
    agent.wait_until_gone(&gone)?;
    assert_eq!(answers(lab, &web)?, ["pod4"; 8]);
    assert!(answers(lab, &gone)?.iter().all(|answer| answer != "pod1"));
    Ok(())
}

fn start(lab: &Lab) -> Result<Kubernetes<'_>> {
    let kubernetes = Kubernetes::start(lab)?;
    for (name, number) in [("web", 80), ("gone", 81)] {
        kubernetes.put(&Service::new(name, number, &[lab.pod1.host]))?;
    }
    Ok(kubernetes)
}

#[test]
fn agent_reads_kubernetes_itself_across_an_outage() -> Result<()> {
    let test = "kubernetes::packets::agent_reads_kubernetes_itself_across_an_outage";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let kubernetes = start(lab)?;
        let agent = Agent::start(lab, &AgentOptions::with_store(kubernetes.url()?))?;
        check_across_outage(lab, &kubernetes, &agent)?;
        let requests = kubernetes.server.take_requests();
        let is_needed = |request: &String| {
            ["/services?", "/endpointslices?", "/externalworkloads?"]
                .iter()
                .any(|path| request.contains(path))
                || request.contains("/nodes?") && request.contains("metadata.name%3Dnode")
        };
        let others: Vec<_> = requests
            .iter()
            .filter(|request| !is_needed(request))
            .collect();
        assert!(
            others.is_empty(),
            "more is read than kube-proxy reads: {others:?}"
        );
        agent.stop().map(drop)
    })
}

#[test]
fn reflector_brings_kubernetes_through_etcd_to_the_agent() -> Result<()> {
    let test = "kubernetes::packets::reflector_brings_kubernetes_through_etcd_to_the_agent";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let kubernetes = start(lab)?;
        let etcd = Etcd::start(lab)?;
        let _controller = start_reflector(lab, &kubernetes, &etcd.url())?;
        let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
        check_across_outage(lab, &kubernetes, &agent)?;
        // Removed elements are restored, and tables of others stay.
        let web = Service::new("web", 80, &[lab.pod4.host]);
        etcd.delete(&web)?;
        let theirs = r#"{"name":"theirs","labels":{"contiv.io/managed-by":"me"}}"#;
        etcd.put_value(
            &format!(
                "{}/service/theirs/namespace/default",
                contiv_tests::cluster::ROOT
            ),
            theirs,
        )?;
        wait_until("the service is back", EVENT_TIMEOUT, || {
            etcd.etcdctl(&["get", "--print-value-only", &Etcd::key(&web)])
                .is_ok_and(|value| !value.is_empty())
        })?;
        agent.wait_until_applied(&web)?;
        let keys = etcd.etcdctl(&[
            "get",
            "--prefix",
            "--keys-only",
            contiv_tests::cluster::ROOT,
        ])?;
        assert!(keys.contains("/service/theirs/"), "{keys}");
        agent.stop().map(drop)
    })
}

/// `kubectl label svc web service.kubernetes.io/headless=` on a running service: kube-proxy looks for the label in endpoint slices
/// alone, and the slice controller does not copy it to those of a service with a cluster address.
#[test]
fn service_labelled_headless_is_served_on() -> Result<()> {
    isolated(
        "kubernetes::packets::service_labelled_headless_is_served_on",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let kubernetes = start(lab)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(kubernetes.url()?))?;
            let [web, gone] = [("web", 80), ("gone", 81)]
                .map(|(name, n)| Service::new(name, n, &[lab.pod1.host]));
            agent.wait_until_applied(&web)?;
            kubernetes.label(&web, json!({ "service.kubernetes.io/headless": "" }))?;
            // The agent has handled the label when it has handled a later change of another service.
            kubernetes.delete(&gone);
            agent.wait_until_gone(&gone)?;
            assert_eq!(answers(lab, &web)?, ["pod1"; 8]);
            kubernetes.label(
                &web,
                json!({ "service.kubernetes.io/service-proxy-name": "other" }),
            )?;
            agent.wait_until_gone(&web)?;
            assert!(answers(lab, &web)?.iter().all(|answer| answer != "pod1"));
            // The slices stay known, so the service is back at once without the label.
            kubernetes.label(&web, json!({}))?;
            agent.wait_until_applied(&web)?;
            assert_eq!(answers(lab, &web)?, ["pod1"; 8]);
            agent.stop().map(drop)
        },
    )
}
