//! Connections to a backend survive when other backends are added and removed.

use contiv_tests::{
    cluster::{Frontend, Manifests},
    lab::{Family, Lab, LabError, Protocol, Result, Session, isolated, wait_until},
};

use super::{Backend, answering, expect, put, start, web};
use crate::routes::EVENT_TIMEOUT;

const SESSIONS: usize = 20;

/// Opens connections to the cluster IPs. Returns each with the name of its backend.
fn open(lab: &Lab) -> Result<Vec<(Session, String)>> {
    let mut sessions = Vec::new();
    for family in Family::BOTH {
        let address = web(&[]).service.address(lab, Frontend::ClusterIp, family);
        for _ in 0..SESSIONS {
            let mut session = lab.client.open(Protocol::Tcp, address)?;
            let by = session.ask()?.by;
            sessions.push((session, by));
        }
    }
    Ok(sessions)
}

/// Checks that the host `name` still answers each connection that was opened to it.
fn check_answers(sessions: &mut [(Session, String)], name: &str, when: &str) -> Result<()> {
    for (session, by) in sessions.iter_mut().filter(|(_, by)| by == name) {
        let answer = session.ask().map_err(|error| {
            LabError::Unexpected(format!(
                "{when}: {by}, {:?}: {error}",
                session.local_address()
            ))
        })?;
        expect(
            answer.by == *by,
            &format!("a connection to {by} went to {}", answer.by),
        )?;
    }
    Ok(())
}

#[test]
fn connections_survive_changes_of_other_backends() -> Result<()> {
    isolated(
        "routes::direct::changes::connections_survive_changes_of_other_backends",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod2)?,
            ];
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &[])?;
            put(
                &state,
                &[&agent],
                &web(&[lab.pod1.host, lab.pod2.host]),
                "route",
            )?;
            let mut sessions = open(lab)?;
            let count_to = |name| sessions.iter().filter(|(_, by)| by == name).count();
            assert!(
                count_to("pod1") > 0 && count_to("pod2") > 0,
                "both have connections"
            );
            put(&state, &[&agent], &web(&[lab.pod1.host]), "route")?;
            check_answers(&mut sessions, "pod1", "after the other backend was removed")?;
            for family in Family::BOTH {
                let address = web(&[]).service.address(lab, Frontend::ClusterIp, family);
                for _ in 0..SESSIONS {
                    assert_eq!(answering(&lab.client, address)?, "pod1");
                }
            }
            let mut later_sessions = open(lab)?;
            put(
                &state,
                &[&agent],
                &web(&[lab.pod1.host, lab.pod2.host]),
                "route",
            )?;
            check_answers(
                &mut sessions,
                "pod1",
                "after the other backend was added again",
            )?;
            check_answers(
                &mut later_sessions,
                "pod1",
                "after another backend was added",
            )
        },
    )
}

#[test]
fn new_backend_gets_connections_once_buckets_are_idle() -> Result<()> {
    isolated(
        "routes::direct::changes::new_backend_gets_connections_once_buckets_are_idle",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod2)?,
            ];
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &["--route-nexthop-idle=1s"])?;
            put(&state, &[&agent], &web(&[lab.pod1.host]), "route")?;
            put(
                &state,
                &[&agent],
                &web(&[lab.pod1.host, lab.pod2.host]),
                "route",
            )?;
            for family in Family::BOTH {
                let address = web(&[]).service.address(lab, Frontend::ClusterIp, family);
                wait_until("the new backend answers", EVENT_TIMEOUT, || {
                    answering(&lab.client, address).is_ok_and(|by| by == "pod2")
                })?;
            }
            Ok(())
        },
    )
}

#[test]
fn link_down_and_up_restores_routes_to_backends() -> Result<()> {
    isolated(
        "routes::direct::changes::link_down_and_up_restores_routes_to_backends",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod2)?,
            ];
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &[])?;
            put(
                &state,
                &[&agent],
                &web(&[lab.pod1.host, lab.pod2.host]),
                "route",
            )?;
            let address = web(&[])
                .service
                .address(lab, Frontend::ClusterIp, Family::V4);
            let has_backends = |count: usize| {
                let routes = lab.node.exec(&[
                    "ip",
                    "route",
                    "show",
                    "table",
                    "69",
                    &address.ip().to_string(),
                ]);
                // Each backend has two routes.
                routes.is_ok_and(|routes| routes.matches(" dev pod").count() == 2 * count)
            };
            assert!(has_backends(2));
            lab.node.exec(&["ip", "link", "set", "pod1", "down"])?;
            wait_until("only the route to pod2 is left", EVENT_TIMEOUT, || {
                has_backends(1)
            })?;
            // The remaining next hop must be the other pod, not the default route.
            for _ in 0..SESSIONS {
                assert_eq!(answering(&lab.client, address)?, "pod2");
            }
            assert!(
                !lab.node
                    .exec(&["ip", "route", "show", "table", "69"])?
                    .contains("dev eth0")
            );
            lab.node.exec(&["ip", "link", "set", "pod1", "up"])?;
            lab.node
                .exec(&["ip", "route", "replace", "10.244.1.10/32", "dev", "pod1"])?;
            wait_until("both routes are back", EVENT_TIMEOUT, || has_backends(2)).map(drop)
        },
    )
}
