//! The routing table with the addresses for routing daemons to advertise.

use contiv_tests::{
    cluster::{Manifests, Service, ServiceManifest, State},
    lab::{Family, Host, Range, Result, isolated, ranges, wait_until},
};

use super::{ADVERTISED, EVENT_TIMEOUT, FROM_NODE, routes, start, wait_for_addresses};

/// The external and the load-balancer addresses of the service with this number.
fn external_addresses(number: u8) -> Vec<String> {
    let of_range =
        |range: &Range| Family::BOTH.map(|family| range.address(family, number).to_string());
    [
        of_range(&ranges::EXTERNAL_IPS),
        of_range(&ranges::LOAD_BALANCERS),
    ]
    .concat()
}

fn as_strs(addresses: &[String]) -> Vec<&str> {
    addresses.iter().map(String::as_str).collect()
}

#[test]
fn policy_local_advertises_only_with_a_ready_local_backend() -> Result<()> {
    isolated(
        "routes::advertised::policy_local_advertises_only_with_a_ready_local_backend",
        |lab| {
            let state = Manifests::new(lab)?;
            let web = |backends: &[&'static Host], terminating| {
                let service = Service::new("web", 80, backends);
                ServiceManifest {
                    external_local: true,
                    terminating,
                    ..ServiceManifest::new(service)
                }
            };
            state.put_manifest(&web(&[lab.pod3.host], vec![]))?;
            let _agent = start(lab, &state, &[])?;
            assert!(
                routes(&lab.node, ADVERTISED)?.is_empty(),
                "the only backend is on the other node"
            );
            let expected = external_addresses(80);
            state.put_manifest(&web(&[lab.pod3.host, lab.pod1.host], vec![]))?;
            wait_for_addresses(&lab.node, ADVERTISED, &as_strs(&expected))?;
            let listed = routes(&lab.node, ADVERTISED)?;
            assert!(
                listed
                    .iter()
                    .all(|route| route.starts_with("blackhole ") && route.contains(" proto 67 ")),
                "{listed:?}"
            );
            state.put_manifest(&web(&[lab.pod3.host], vec![lab.pod1.host]))?;
            wait_for_addresses(&lab.node, ADVERTISED, &[])
        },
    )
}

#[test]
fn policy_cluster_advertises_with_any_backend() -> Result<()> {
    isolated(
        "routes::advertised::policy_cluster_advertises_with_any_backend",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod3.host]))?;
            let _agent = start(lab, &state, &[])?;
            wait_for_addresses(&lab.node, ADVERTISED, &as_strs(&external_addresses(80)))?;
            state.put(&Service::new("web", 80, &[]))?;
            wait_for_addresses(&lab.node, ADVERTISED, &[])?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            wait_for_addresses(&lab.node, ADVERTISED, &as_strs(&external_addresses(80)))?;
            state.delete(&Service::new("web", 80, &[]))?;
            wait_for_addresses(&lab.node, ADVERTISED, &[])
        },
    )
}

#[test]
fn advertised_addresses_change_with_the_setting() -> Result<()> {
    isolated(
        "routes::advertised::advertised_addresses_change_with_the_setting",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let agent = start(lab, &state, &[])?;
            agent.stop()?;
            wait_for_addresses(&lab.node, ADVERTISED, &as_strs(&external_addresses(80)))?;
            let flags = [
                "--route-advertise=cluster",
                "--route-advertise-table=1067",
                "--route-reach-from-node=false",
            ];
            let _agent = start(lab, &state, &flags)?;
            let cluster =
                Family::BOTH.map(|family| ranges::SERVICES.address(family, 80).to_string());
            wait_for_addresses(&lab.node, "1067", &as_strs(&cluster))?;
            assert!(routes(&lab.node, ADVERTISED)?.is_empty());
            let rules = lab.node.exec(&["ip", "rule"])?;
            assert!(!rules.contains("68"), "{rules}");
            Ok(())
        },
    )
}

#[test]
fn restart_changes_no_route() -> Result<()> {
    isolated("routes::advertised::restart_changes_no_route", |lab| {
        let state = Manifests::new(lab)?;
        state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
        start(lab, &state, &[])?.stop()?;
        let agent = start(lab, &state, &[])?;
        let report = agent.http("GET", "/renderers")?.json()?;
        let route = report
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == "route"))
            .cloned();
        let report = route
            .map(|route| route["last_report"].clone())
            .unwrap_or_default();
        assert_eq!(
            (&report["added"], &report["removed"]),
            (&0.into(), &0.into()),
            "{report}"
        );
        wait_until("the routes are still there", EVENT_TIMEOUT, || {
            routes(&lab.node, ADVERTISED).is_ok_and(|routes| routes.len() == 4)
        })
        .map(drop)
    })
}

#[test]
fn stop_withdraws_advertised_routes_if_configured() -> Result<()> {
    isolated(
        "routes::advertised::stop_withdraws_advertised_routes_if_configured",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let agent = start(lab, &state, &["--route-withdraw-on-stop=true"])?;
            let from_node = routes(&lab.node, FROM_NODE)?;
            assert!(!routes(&lab.node, ADVERTISED)?.is_empty() && !from_node.is_empty());
            agent.stop()?;
            assert!(routes(&lab.node, ADVERTISED)?.is_empty());
            assert_eq!(
                routes(&lab.node, FROM_NODE)?,
                from_node,
                "routes for the node itself stay"
            );
            Ok(())
        },
    )
}
