//! A service carried by routes begins to share an address with one that is not.

use std::{
    net::SocketAddr,
    process::{Command, Output},
};

use contiv_tests::{
    agent::{Agent, binary},
    cluster::{Frontend, Manifests},
    lab::{
        Family, Host, Lab, LabError, Outcome, Protocol, Responder, Result, isolated, wait_until,
    },
};

use super::{Backend, DIRECT, put, start, wait_for_carrier, web};
use crate::routes::{EVENT_TIMEOUT, routes};

/// The port of the other service, and of its backend.
const OTHER_PORT: u16 = 81;
const BACKEND_PORT: u16 = 8081;
const OTHER_CLUSTER_IP: &str = "10.96.0.181";

/// The shared address.
fn shared(lab: &Lab) -> SocketAddr {
    let of_web = web(&[])
        .service
        .address(lab, Frontend::ExternalIp, Family::V4);
    SocketAddr::new(of_web.ip(), OTHER_PORT)
}

/// The other service, which is carried by `nftables` and comes first by name.
fn put_other(lab: &Lab, state: &Manifests, backend: &Host) -> Result<()> {
    let text = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: api}}
spec:
  clusterIP: {OTHER_CLUSTER_IP}
  clusterIPs: [{OTHER_CLUSTER_IP}]
  externalIPs: [{shared}]
  ports: [{{name: http, port: {OTHER_PORT}, targetPort: {BACKEND_PORT}}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: api-1, labels: {{kubernetes.io/service-name: api}}}}
addressType: IPv4
ports: [{{name: http, port: {BACKEND_PORT}}}]
endpoints: [{{addresses: [{backend}], conditions: {{ready: true}}}}]
",
        shared = shared(lab).ip(),
        backend = backend.v4,
    );
    state.write("api.yaml", &text)
}

/// Waits until a command of `contiv` on the node reports no problem.
fn finds_no_fault(lab: &Lab, arguments: &[&str]) -> Result<()> {
    let binary = binary()?;
    let mut said = String::new();
    let is_right = |said: &mut String| {
        let output = lab.node.run(|| {
            let output = Command::new(&binary)
                .args(arguments)
                .env_remove("CONTIV_NODE_NAME")
                .output();
            output.map_err(|error| LabError::Unexpected(format!("{arguments:?}: {error}")))
        });
        output.is_ok_and(
            |Output {
                 status,
                 stdout,
                 stderr,
             }| {
                *said = [stdout, stderr]
                    .map(|text| String::from_utf8_lossy(&text).into_owned())
                    .concat();
                status.success()
            },
        )
    };
    wait_until(
        &format!("{arguments:?} finds no fault"),
        EVENT_TIMEOUT,
        || is_right(&mut said),
    )
    .map(drop)
    .map_err(|error| LabError::Unexpected(format!("{error}: {said}")))
}

/// The node reaches the other service at the shared address, there are only expected routes, and a comparison of the kernel
/// with the desired state agrees.
fn is_served(lab: &Lab, by: &Host, with_route: bool) -> Result<()> {
    let (to, address) = (shared(lab), shared(lab).ip().to_string());
    wait_until(
        "the other service is served from the node",
        EVENT_TIMEOUT,
        || {
            lab.node
                .ask(Protocol::Tcp, to)
                .and_then(Outcome::answer)
                .is_ok_and(|answer| answer.by == by.name)
        },
    )?;
    let found = routes(&lab.node, DIRECT)?;
    assert!(
        !found.iter().any(|route| route.contains("unreachable")),
        "{found:?}"
    );
    assert!(
        !found.iter().any(|route| route.contains(OTHER_CLUSTER_IP)),
        "{found:?}"
    );
    assert_eq!(
        found.iter().any(|route| route.starts_with(&address)),
        with_route,
        "{found:?}"
    );
    finds_no_fault(lab, &["verify"])?;
    let from = lab.node.host.v4.to_string();
    finds_no_fault(
        lab,
        &[
            "trace",
            "--kernel",
            "--from",
            &from,
            "--to",
            &to.to_string(),
        ],
    )
}

/// A service with these backends is carried by routes and begins to share an address; then the agent is restarted.
fn comes_to_share(lab: &Lab, backends: &[&'static Host]) -> Result<()> {
    let with_route = !backends.is_empty();
    let _backend = Backend::start(lab, &lab.pod1)?;
    let _other = Responder::start(&lab.pod3, BACKEND_PORT)?;
    let state = Manifests::new(lab)?;
    let agent = start(&lab.node, &state, &[])?;
    put(&state, &[&agent], &web(backends), "route")?;
    put_other(lab, &state, lab.pod3.host)?;
    wait_for_carrier(&agent, "nftables")?;
    is_served(lab, lab.pod3.host, with_route)?;
    agent.stop()?;
    let agent: Agent<'_> = start(&lab.node, &state, &[])?;
    wait_for_carrier(&agent, "nftables")?;
    is_served(lab, lab.pod3.host, with_route)
}

#[test]
fn service_without_backends_that_shares_address_keeps_no_route() -> Result<()> {
    isolated(
        "routes::direct::shared::service_without_backends_that_shares_address_keeps_no_route",
        |lab| comes_to_share(lab, &[]),
    )
}

#[test]
fn service_with_backends_that_shares_address_keeps_its_routes() -> Result<()> {
    isolated(
        "routes::direct::shared::service_with_backends_that_shares_address_keeps_its_routes",
        |lab| comes_to_share(lab, &[lab.pod1.host]),
    )
}
