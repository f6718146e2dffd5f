//! Connections of the node to services to which it has no route.

use contiv_tests::{
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Outcome, Protocol, Responder, Result, isolated, wait_until},
};

use super::{EVENT_TIMEOUT, FROM_NODE, routes, start};

fn without_default_routes(lab: &Lab) -> Result<()> {
    for family in ["-4", "-6"] {
        lab.node.exec(&["ip", family, "route", "del", "default"])?;
    }
    Ok(())
}

fn all_answer(lab: &Lab, web: &Service) -> bool {
    Family::BOTH.into_iter().all(|family| {
        let address = web.address(lab, Frontend::ClusterIp, family);
        lab.node
            .ask(Protocol::Tcp, address)
            .is_ok_and(|outcome| matches!(outcome, Outcome::Answered { .. }))
    })
}

#[test]
fn node_without_default_route_reaches_every_kind_of_address() -> Result<()> {
    isolated(
        "routes::from_the_node::node_without_default_route_reaches_every_kind_of_address",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            // One backend here, and one on the other node.
            let services = [
                Service::new("here", 80, &[lab.pod1.host]),
                Service::new("there", 81, &[lab.pod3.host]),
            ];
            without_default_routes(lab)?;
            for service in &services {
                state.put(service)?;
            }
            let agent = start(lab, &state, &["--route-reach-from-node=false"])?;
            let address = services[0].address(lab, Frontend::ClusterIp, Family::V4);
            assert_eq!(
                lab.node.ask(Protocol::Tcp, address)?,
                Outcome::Unreachable,
                "this is what is amended"
            );
            agent.stop()?;
            let _agent = start(lab, &state, &[])?;
            for service in &services {
                for frontend in [
                    Frontend::ClusterIp,
                    Frontend::ExternalIp,
                    Frontend::LoadBalancer,
                ] {
                    for (family, protocol) in Family::BOTH
                        .into_iter()
                        .flat_map(|family| Protocol::ALL.map(|protocol| (family, protocol)))
                    {
                        let address = service.address(lab, frontend, family);
                        let answer = lab.node.ask(protocol, address)?.answer()?;
                        assert_eq!(
                            answer.by, service.backends[0].name,
                            "{address} {protocol:?}"
                        );
                    }
                }
            }
            Ok(())
        },
    )
}

#[test]
fn connections_come_from_address_that_node_is_known_by() -> Result<()> {
    isolated(
        "routes::from_the_node::connections_come_from_address_that_node_is_known_by",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            without_default_routes(lab)?;
            // Without the preferred source address the kernel could choose this one.
            lab.node
                .exec(&["ip", "addr", "add", "10.0.0.1/24", "dev", "eth0"])?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let _agent = start(lab, &state, &[])?;
            for family in Family::BOTH {
                let address = web.address(lab, Frontend::ClusterIp, family);
                let session = lab.node.open(Protocol::Tcp, address)?;
                assert_eq!(session.local_address()?.ip(), lab.node.host.address(family));
            }
            Ok(())
        },
    )
}

#[test]
fn every_other_route_of_node_goes_first() -> Result<()> {
    isolated(
        "routes::from_the_node::every_other_route_of_node_goes_first",
        |lab| {
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let _agent = start(lab, &state, &[])?;
            for family in Family::BOTH {
                let address = web
                    .address(lab, Frontend::ExternalIp, family)
                    .ip()
                    .to_string();
                let way = lab.node.exec(&["ip", "route", "get", &address])?;
                assert!(way.contains(" via "), "the default route: {way}");
            }
            without_default_routes(lab)?;
            for family in Family::BOTH {
                let address = web
                    .address(lab, Frontend::ExternalIp, family)
                    .ip()
                    .to_string();
                let way = lab.node.exec(&["ip", "route", "get", &address])?;
                let source = lab.node.host.address(family).to_string();
                assert!(
                    way.contains(&format!("src {source}")) && !way.contains(" via "),
                    "{way}"
                );
                let client = lab.client.host.address(family).to_string();
                let through = lab.node.exec(&[
                    "ip", "route", "get", &address, "from", &client, "iif", "eth0",
                ]);
                assert!(
                    through.is_err(),
                    "what passes through the node has no new way: {through:?}"
                );
            }
            Ok(())
        },
    )
}

#[test]
fn link_down_and_up_restores_routes() -> Result<()> {
    isolated(
        "routes::from_the_node::link_down_and_up_restores_routes",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            without_default_routes(lab)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            state.put(&web)?;
            let _agent = start(lab, &state, &[])?;
            assert!(all_answer(lab, &web));
            let before = routes(&lab.node, FROM_NODE)?;
            // Otherwise the kernel removes the IPv6 address with the link.
            lab.node
                .exec(&["sysctl", "-w", "net.ipv6.conf.eth0.keep_addr_on_down=1"])?;
            lab.node.exec(&["ip", "link", "set", "eth0", "down"])?;
            wait_until("the routes are gone", EVENT_TIMEOUT, || {
                routes(&lab.node, FROM_NODE).is_ok_and(|routes| routes.is_empty())
            })?;
            lab.node.exec(&["ip", "link", "set", "eth0", "up"])?;
            wait_until("the services answer again", EVENT_TIMEOUT, || {
                all_answer(lab, &web)
            })?;
            wait_until("all routes are back", EVENT_TIMEOUT, || {
                routes(&lab.node, FROM_NODE).is_ok_and(|routes| routes == before)
            })
            .map(drop)
        },
    )
}

#[test]
fn changed_node_address_is_the_new_source() -> Result<()> {
    isolated(
        "routes::from_the_node::changed_node_address_is_the_new_source",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let _agent = start(lab, &state, &["--node-ips=172.31.0.1,172.31.0.77"])?;
            let sources = |source: &str| {
                let ipv4 = |route: &&String| route.contains(" 172.31.0.") || !route.contains(':');
                routes(&lab.node, FROM_NODE).is_ok_and(|routes| {
                    let routes: Vec<&String> = routes.iter().filter(ipv4).collect();
                    routes.len() == 3
                        && routes
                            .iter()
                            .all(|route| route.contains(&format!(" src {source} ")))
                })
            };
            assert!(sources("172.31.0.1"));
            lab.node
                .exec(&["ip", "addr", "add", "172.31.0.77/24", "dev", "eth0"])?;
            lab.node
                .exec(&["sysctl", "-w", "net.ipv4.conf.eth0.promote_secondaries=1"])?;
            lab.node
                .exec(&["ip", "addr", "del", "172.31.0.1/24", "dev", "eth0"])?;
            wait_until(
                "connections come from the other address",
                EVENT_TIMEOUT,
                || sources("172.31.0.77"),
            )
            .map(drop)
        },
    )
}
