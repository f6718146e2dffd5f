//! Objects that cannot be decoded are reported and never treated as deleted.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, Frontend, Manifests, NAMESPACE, PORT, Service, State, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, isolated, wait_until},
};

use crate::explained::check_explanation;

#[test]
fn bad_value_in_etcd_keeps_the_last_good_state_and_is_reported() -> Result<()> {
    isolated(
        "quarantine::bad_value_in_etcd_keeps_the_last_good_state_and_is_reported",
        |lab| {
            let etcd = Etcd::start(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            let key = Etcd::key(&web);
            the_last_good_state_stays(lab, &etcd, &web, &key, || {
                etcd.put_value(&key, r#"{"name":"web","port":[{"port":"#)
            })
        },
    )
}

#[test]
fn broken_manifest_keeps_the_last_good_state_and_is_reported() -> Result<()> {
    isolated(
        "quarantine::broken_manifest_keeps_the_last_good_state_and_is_reported",
        |lab| {
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            let break_it = || {
                manifests.write(
                    "web.yaml",
                    "apiVersion: v1\nkind: Service\nmetadata: {name: web\nspec: [",
                )
            };
            the_last_good_state_stays(lab, &manifests, &web, "web.yaml", break_it)
        },
    )
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
        lab.client
            .ask(
                Protocol::Tcp,
                service.address(lab, Frontend::NodePort, Family::V4),
            )?
            .answer()
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

    let web = Service {
        backends: vec![lab.pod4.host],
        ..web.clone()
    };
    state.put(&web)?;
    agent.wait_until_applied(&web)?;
    assert_eq!(ask(&web)?.by, "pod4", "a good value is used at once");
    wait_until(
        "the agent reports it no more",
        Duration::from_secs(10),
        || !is_reported(),
    )?;
    Ok(())
}

#[test]
fn backends_of_other_family_are_explained_wherever_one_looks() -> Result<()> {
    isolated(
        "quarantine::backends_of_other_family_are_explained_wherever_one_looks",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            let address = web.address(lab, Frontend::ClusterIp, Family::V6);
            let slice = |family: Family, kind: &str| {
                let endpoint = lab.pod3.host.address(family);
                format!(
                    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-{kind}, namespace: {NAMESPACE}, \
                 labels: {{kubernetes.io/service-name: web}}}}\naddressType: {kind}\n\
                 endpoints: [{{addresses: [\"{endpoint}\"]}}]\nports: [{{name: web, port: {TARGET_PORT}}}]\n"
                )
            };
            let service = format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {NAMESPACE}}}\n\
             spec: {{clusterIP: \"{}\", ports: [{{name: web, port: {PORT}}}]}}\n",
                address.ip()
            );
            state.write("web.yaml", &service)?;
            state.write("v4.yaml", &slice(Family::V4, "IPv4"))?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let contiv = |arguments: &[&str]| {
                lab.node
                    .exec(&[&[&*binary()?.to_string_lossy()], arguments].concat())
            };
            let reason = "all backends are of the other address family";

            lab.pod1.ask(Protocol::Tcp, address)?.refusal()?;
            let (from, to) = (lab.pod1.host.v6, address.ip());
            let query = format!("from={from}&to={to}&port={PORT}&protocol=TCP&interface=pod1");
            check_explanation(lab, &agent, &query, reason)?;
            let services = contiv(&["services", "-n", NAMESPACE])?;
            assert!(services.contains("0 (1 of the other family)"), "{services}");
            let backends = contiv(&["backends", "-n", NAMESPACE, "web"])?;
            assert!(backends.contains("other family"), "{backends}");
            let trace = contiv(&[
                "trace",
                "--from",
                &from.to_string(),
                "--to",
                &address.to_string(),
            ])?;
            assert!(trace.contains(reason), "{trace}");
            let quarantine = agent.http("GET", "/quarantine")?.body;
            assert!(
                quarantine.contains("service default/web") && quarantine.contains(reason),
                "{quarantine}"
            );

            state.write("v6.yaml", &slice(Family::V6, "IPv6"))?;
            wait_until(
                "the backend of its family serves",
                Duration::from_secs(10),
                || {
                    lab.pod1
                        .ask(Protocol::Tcp, address)
                        .is_ok_and(|outcome| outcome.answer().is_ok())
                },
            )?;
            let services = contiv(&["services", "-n", NAMESPACE])?;
            assert!(!services.contains("family"), "{services}");
            assert_eq!(agent.http("GET", "/quarantine")?.body, "[]");
            agent.stop().map(drop)
        },
    )
}
