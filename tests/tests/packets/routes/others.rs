//! Routes of other programs, and their changes of our routes.

use std::collections::BTreeSet;

use contiv_tests::{
    agent::{Agent, binary},
    cluster::{Manifests, Service, State},
    lab::{Lab, Result, isolated, wait_until},
};
use serde_json::Value;

use super::{ADVERTISED, EVENT_TIMEOUT, FROM_NODE, addresses, routes, start};

/// The external address of service 80 in the network for documentation.
fn external() -> String {
    contiv_tests::lab::ranges::EXTERNAL_IPS
        .address(contiv_tests::lab::Family::V4, 80)
        .to_string()
}

fn rejected(agent: &Agent<'_>) -> Result<Value> {
    let renderers = agent.http("GET", "/renderers")?.json()?;
    let all = renderers.as_array().cloned().unwrap_or_default();
    let route = all
        .into_iter()
        .find(|one| one["name"] == "route")
        .unwrap_or_default();
    Ok(route["last_report"]["rejected"].clone())
}

fn rules(lab: &Lab) -> Result<String> {
    Ok(lab.node.exec(&["ip", "-4", "rule"])? + &lab.node.exec(&["ip", "-6", "rule"])?)
}

/// All routes and rules of the node.
fn everything(lab: &Lab) -> Result<(BTreeSet<String>, String)> {
    let mut all = BTreeSet::new();
    for family in ["-4", "-6"] {
        let listed = lab
            .node
            .exec(&["ip", "-o", family, "route", "show", "table", "all"])?;
        all.extend(listed.lines().map(|line| line.trim().to_owned()));
    }
    Ok((all, rules(lab)?))
}

#[test]
fn foreign_route_is_reported_until_ours_replaces_it() -> Result<()> {
    isolated(
        "routes::others::foreign_route_is_reported_until_ours_replaces_it",
        |lab| {
            let foreign = [
                "unreachable",
                &external(),
                "table",
                ADVERTISED,
                "metric",
                "1024",
                "proto",
                "static",
            ];
            lab.node
                .exec(&[&["ip", "route", "add"], &foreign[..]].concat())?;
            let theirs = routes(&lab.node, ADVERTISED)?;
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let agent = start(lab, &state, &[])?;
            let listed = routes(&lab.node, ADVERTISED)?;
            assert!(
                listed.len() == 4 && listed.is_superset(&theirs),
                "{listed:?}"
            );
            let report = rejected(&agent)?.to_string();
            assert!(
                report.contains(&external()) && report.contains("route-advertise-table"),
                "{report}"
            );
            // The deletion of the service does not harm it either.
            state.delete(&Service::new("web", 80, &[]))?;
            wait_until("ours are gone", EVENT_TIMEOUT, || {
                routes(&lab.node, ADVERTISED).is_ok_and(|left| left == theirs)
            })?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            lab.node
                .exec(&[&["ip", "route", "del"], &foreign[..]].concat())?;
            wait_until("ours is there", EVENT_TIMEOUT, || {
                addresses(&lab.node, ADVERTISED)
                    .is_ok_and(|found| found.len() == 4 && found.contains(&external()))
                    && rejected(&agent).is_ok_and(|rejected| rejected.is_null())
            })
            .map(drop)
        },
    )
}

#[test]
fn foreign_deletion_is_undone_at_once() -> Result<()> {
    isolated(
        "routes::others::foreign_deletion_is_undone_at_once",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let _agent = start(lab, &state, &[])?;
            let before = everything(lab)?;
            for damage in [
                vec!["ip", "route", "flush", "table", ADVERTISED],
                vec!["ip", "-6", "route", "flush", "table", FROM_NODE],
                vec!["ip", "rule", "del", "table", FROM_NODE],
                vec!["ip", "-6", "rule", "del", "table", FROM_NODE],
            ] {
                lab.node.exec(&damage)?;
                let what = format!("`{}` is undone", damage.join(" "));
                wait_until(&what, EVENT_TIMEOUT, || {
                    everything(lab).is_ok_and(|now| now == before)
                })?;
            }
            // A foreign route with our protocol is removed.
            lab.node.exec(&[
                "ip",
                "route",
                "add",
                "blackhole",
                "203.0.113.99",
                "table",
                ADVERTISED,
                "proto",
                "67",
            ])?;
            wait_until("the route in our name is gone", EVENT_TIMEOUT, || {
                everything(lab).is_ok_and(|now| now == before)
            })
            .map(drop)
        },
    )
}

#[test]
fn foreign_routes_survive_cleanup_and_own_ones_do_not() -> Result<()> {
    isolated(
        "routes::others::foreign_routes_survive_cleanup_and_own_ones_do_not",
        |lab| {
            for route in [
                &["203.0.113.0/24", "via", "172.31.0.2", "table", ADVERTISED][..],
                &[
                    "10.96.0.80",
                    "via",
                    "172.31.0.2",
                    "table",
                    FROM_NODE,
                    "metric",
                    "5",
                ],
                &["10.96.0.80", "via", "172.31.0.2", "proto", "static"],
            ] {
                lab.node.exec(&[&["ip", "route", "add"], route].concat())?;
            }
            lab.node.exec(&[
                "ip",
                "rule",
                "add",
                "priority",
                "32768",
                "from",
                "192.0.2.9",
                "table",
                FROM_NODE,
            ])?;
            let before = everything(lab)?;
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let agent = start(lab, &state, &[])?;
            let (with_ours, _) = everything(lab)?;
            assert!(with_ours.is_superset(&before.0) && with_ours.len() > before.0.len());
            agent.stop()?;
            assert_eq!(
                everything(lab)?.0,
                with_ours,
                "SIGTERM leaves the routes in place"
            );
            lab.node
                .exec(&[&binary()?.to_string_lossy(), "cleanup", "--renderers=route"])?;
            assert_eq!(everything(lab)?, before);
            // Nothing to do is not an error.
            let said =
                lab.node
                    .exec(&[&binary()?.to_string_lossy(), "cleanup", "--renderers=route"])?;
            assert!(said.contains("nothing to remove"), "{said}");
            Ok(())
        },
    )
}
