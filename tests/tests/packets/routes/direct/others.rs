//! Routes and next hops of others, and what others do to ours.

use contiv_tests::{
    agent::binary,
    cluster::{Frontend, Manifests},
    lab::{Family, Lab, Result, isolated, wait_until},
};

use super::{
    Backend, DIRECT, answering, assignment, next_hops, put, start, wait_for_answer,
    wait_for_carrier, web,
};
use crate::routes::{EVENT_TIMEOUT, routes};

/// Our routes to backends, and our next hops without their order.
fn ours(lab: &Lab) -> Result<(std::collections::BTreeSet<String>, usize)> {
    Ok((
        routes(&lab.node, DIRECT)?,
        next_hops(&lab.node)?.lines().count(),
    ))
}

#[test]
fn foreign_route_stays_and_its_service_uses_nftables() -> Result<()> {
    isolated(
        "routes::direct::others::foreign_route_stays_and_its_service_uses_nftables",
        |lab| {
            let _backend = Backend::start(lab, &lab.pod1)?;
            let state = Manifests::new(lab)?;
            let address = web(&[])
                .service
                .address(lab, Frontend::ClusterIp, Family::V4);
            let to = address.ip().to_string();
            let foreign = [
                "unreachable",
                &to,
                "table",
                DIRECT,
                "metric",
                "1024",
                "proto",
                "static",
            ];
            lab.node
                .exec(&[&["ip", "route", "add"], &foreign[..]].concat())?;
            let theirs = routes(&lab.node, DIRECT)?;
            state.put_manifest(&web(&[lab.pod1.host]))?;
            let agent = start(&lab.node, &state, &[])?;
            agent.wait_until_applied(&web(&[lab.pod1.host]).service)?;
            assert!(routes(&lab.node, DIRECT)?.is_superset(&theirs));
            assert_eq!(assignment(&agent)?["addresses"], "nftables-until-route");
            wait_for_answer(lab, &lab.client, lab.pod1.host)?;
            let said = agent.http("GET", "/quarantine")?.json()?.to_string();
            assert!(
                said.contains(&to) && said.contains("route-direct-table"),
                "{said}"
            );
            lab.node
                .exec(&[&["ip", "route", "del"], &foreign[..]].concat())?;
            wait_for_carrier(&agent, "route")?;
            wait_for_answer(lab, &lab.client, lab.pod1.host)
        },
    )
}

#[test]
fn foreign_deletion_is_undone_and_a_restart_changes_nothing() -> Result<()> {
    isolated(
        "routes::direct::others::foreign_deletion_is_undone_and_a_restart_changes_nothing",
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
            let before = ours(lab)?;
            let listed = next_hops(&lab.node)?;
            // Two next hops for each backend and family, and a group for each address.
            assert_eq!(
                (
                    before.0.len(),
                    before.1,
                    listed.matches("resilient").count()
                ),
                (6, 14, 6),
                "{listed}"
            );
            agent.stop()?;
            let agent = start(&lab.node, &state, &[])?;
            wait_for_carrier(&agent, "route")?;
            assert_eq!(next_hops(&lab.node)?, listed, "not even numbers change");
            let is_as_before = || {
                let same = |now: (std::collections::BTreeSet<String>, usize)| {
                    now.0.len() == before.0.len() && now.1 == before.1
                };
                ours(lab).is_ok_and(same)
            };
            let [v4, v6] = Family::BOTH.map(|family| {
                web(&[])
                    .service
                    .address(lab, Frontend::ClusterIp, family)
                    .ip()
                    .to_string()
            });
            for damage in [
                &["ip", "route", "del", &v4, "table", DIRECT][..],
                &["ip", "-6", "route", "del", &v6, "table", DIRECT],
                &["ip", "nexthop", "flush", "proto", "67"],
                &["ip", "rule", "del", "table", DIRECT],
            ] {
                lab.node.exec(damage)?;
                wait_until(
                    &format!("`{}` is undone", damage.join(" ")),
                    EVENT_TIMEOUT,
                    || {
                        is_as_before()
                            && lab
                                .node
                                .exec(&["ip", "rule"])
                                .is_ok_and(|rules| rules.contains("lookup 69"))
                    },
                )?;
            }
            let address = web(&[])
                .service
                .address(lab, Frontend::ClusterIp, Family::V6);
            assert!(answering(&lab.client, address)?.starts_with("pod"));
            agent.stop()?;
            // Another way to divide connections: groups cannot change it, and are replaced.
            let agent = start(&lab.node, &state, &["--route-nexthops=plain"])?;
            wait_for_carrier(&agent, "route")?;
            let listed = next_hops(&lab.node)?;
            assert!(
                listed.lines().count() == 10 && !listed.contains("resilient"),
                "{listed}"
            );
            assert!(answering(&lab.client, address)?.starts_with("pod"));
            Ok(())
        },
    )
}

#[test]
fn foreign_next_hops_survive_cleanup_and_own_ones_do_not() -> Result<()> {
    isolated(
        "routes::direct::others::foreign_next_hops_survive_cleanup_and_own_ones_do_not",
        |lab| {
            let _backend = Backend::start(lab, &lab.pod1)?;
            // One with the first number that we would use.
            let theirs = (67_u32 << 24).to_string();
            let foreign = [
                "ip",
                "nexthop",
                "add",
                "id",
                &theirs,
                "via",
                "172.31.0.2",
                "dev",
                "eth0",
                "proto",
                "static",
            ];
            lab.node.exec(&foreign)?;
            let everything = || -> Result<Vec<String>> {
                let lists: [&[&str]; 5] = [
                    &["ip", "nexthop"],
                    &["ip", "-4", "route", "show", "table", "all"],
                    &["ip", "-6", "route", "show", "table", "all"],
                    &["ip", "-4", "rule"],
                    &["ip", "-6", "rule"],
                ];
                lists.into_iter().map(|list| lab.node.exec(list)).collect()
            };
            let before = everything()?;
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &[])?;
            put(&state, &[&agent], &web(&[lab.pod1.host]), "route")?;
            wait_for_answer(lab, &lab.client, lab.pod1.host)?;
            let with_ours = everything()?;
            assert!(with_ours[0].contains(before[0].trim()), "{}", with_ours[0]);
            agent.stop()?;
            assert_eq!(
                everything()?,
                with_ours,
                "SIGTERM leaves all of it in place"
            );
            lab.node
                .exec(&[&binary()?.to_string_lossy(), "cleanup", "--renderers=route"])?;
            assert_eq!(everything()?, before);
            Ok(())
        },
    )
}
