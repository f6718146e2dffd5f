//! Tests of the connections that backends receive, and the client addresses that they see.

use contiv_tests::{
    cluster::{Frontend, Manifests, ServiceManifest, TARGET_PORT},
    lab::{Family, Protocol, Responder, Result, isolated, wait_until},
};

use crate::routes::EVENT_TIMEOUT;

use super::{
    ADDRESSES, Backend, CONNECTIONS, addresses, assignment, put, start, wait_for_answer, web,
};

#[test]
fn single_backend_gets_untranslated_traffic_from_everywhere() -> Result<()> {
    isolated(
        "routes::direct::delivery::single_backend_gets_untranslated_traffic_from_everywhere",
        |lab| {
            let _backend = Backend::start(lab, &lab.pod1)?;
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &[])?;
            let manifest = web(&[lab.pod1.host]);
            put(&state, &[&agent], &manifest, "route")?;
            for family in Family::BOTH {
                for address in addresses(lab, family) {
                    for protocol in [Protocol::Tcp, Protocol::Udp] {
                        for client in [&lab.client, &lab.pod2, &lab.node] {
                            let answer = client.ask(protocol, address)?.answer()?;
                            assert_eq!(answer.by, "pod1", "{address} {protocol:?}");
                            let seen = answer.seen_source.ip().to_canonical();
                            assert_eq!(
                                seen,
                                client.host.address(family),
                                "no address is hidden: {address}"
                            );
                        }
                    }
                }
                // The same service's node port is translated.
                let address = manifest.service.address(lab, Frontend::NodePort, family);
                assert_eq!(lab.client.ask(Protocol::Tcp, address)?.answer()?.by, "pod1");
            }
            let found = assignment(&agent)?;
            assert_eq!(
                (found["addresses"].as_str(), found["node_ports"].as_str()),
                (Some("route"), Some("nftables"))
            );
            let flows = lab
                .node
                .exec(&["cat", "/proc/net/nf_conntrack"])
                .unwrap_or_default();
            let cluster = manifest
                .service
                .address(lab, Frontend::ClusterIp, Family::V4)
                .ip()
                .to_string();
            let to_backend = flows.lines().find(|flow| {
                flow.contains(&format!("dst={cluster} ")) && flow.contains("src=10.244.1.10 ")
            });
            assert_eq!(to_backend, None, "nothing was translated");
            Ok(())
        },
    )
}

#[test]
fn two_local_backends_share_connections_by_weight() -> Result<()> {
    isolated(
        "routes::direct::delivery::two_local_backends_share_connections_by_weight",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod2)?,
            ];
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &[])?;
            let all = [lab.pod1.host, lab.pod2.host, lab.pod3.host];
            put(&state, &[&agent], &web(&all), "route")?;
            let shares = |number: u8| -> Result<Vec<usize>> {
                let mut shares = Vec::new();
                for address in Family::BOTH
                    .into_iter()
                    .flat_map(|family| addresses(lab, family))
                {
                    let answered = lab
                        .client
                        .distribution(Protocol::Tcp, address, CONNECTIONS)?;
                    assert!(
                        answered.keys().all(|name| name == "pod1" || name == "pod2"),
                        "{number}: {answered:?}"
                    );
                    shares.push(answered["pod1"]);
                }
                Ok(shares)
            };
            // Six standard deviations; the hash is no worse than chance.
            assert!(
                shares(1)?.iter().all(|share| (20..=80).contains(share)),
                "equal weights"
            );
            // Starting without backends, so that the groups begin with these weights.
            let heavy = ServiceManifest {
                weights: vec![(lab.pod1.host, 9), (lab.pod2.host, 1)],
                ..web(&all)
            };
            put(&state, &[&agent], &web(&[]), "route")?;
            put(&state, &[&agent], &heavy, "route")?;
            assert!(shares(2)?.iter().all(|share| *share > 70), "nine of ten");
            Ok(())
        },
    )
}

#[test]
fn other_nodes_get_connections_only_without_local_backend() -> Result<()> {
    isolated(
        "routes::direct::delivery::other_nodes_get_connections_only_without_local_backend",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod3)?,
            ];
            let state = Manifests::new(lab)?;
            let (ours, theirs) = (
                start(&lab.node, &state, &[])?,
                start(&lab.node2, &state, &[])?,
            );
            let agents = [&ours, &theirs];
            put(
                &state,
                &agents,
                &web(&[lab.pod1.host, lab.pod3.host]),
                "route",
            )?;
            wait_for_answer(lab, &lab.pod2, lab.pod1.host)?;
            put(&state, &agents, &web(&[lab.pod3.host]), "route")?;
            wait_for_answer(lab, &lab.pod2, lab.pod3.host)?;
            for family in Family::BOTH {
                for address in addresses(lab, family) {
                    let way = lab
                        .node
                        .exec(&["ip", "route", "get", &address.ip().to_string()])?;
                    assert!(
                        way.contains(&format!("via {} ", lab.node2.host.address(family))),
                        "{way}"
                    );
                    let answer = lab.client.ask(Protocol::Tcp, address)?.answer()?;
                    assert_eq!(
                        answer.seen_source.ip().to_canonical(),
                        lab.client.host.address(family)
                    );
                }
            }
            put(
                &state,
                &agents,
                &web(&[lab.pod1.host, lab.pod3.host]),
                "route",
            )?;
            wait_for_answer(lab, &lab.pod2, lab.pod1.host)?;
            // Policy Local allows no other node; the cluster IP has its own policy.
            let local = ServiceManifest {
                external_local: true,
                ..web(&[lab.pod3.host])
            };
            put(&state, &agents, &local, "route")?;
            let [cluster, external, _] = addresses(lab, Family::V4);
            let way = lab.node.exec(&[
                "ip",
                "route",
                "show",
                "table",
                "69",
                &external.ip().to_string(),
            ])?;
            assert!(way.starts_with("blackhole "), "{way}");
            assert_eq!(lab.pod2.ask(Protocol::Tcp, cluster)?.answer()?.by, "pod3");
            Ok(())
        },
    )
}

#[test]
fn backend_on_network_of_node_answers_itself() -> Result<()> {
    isolated(
        "routes::direct::delivery::backend_on_network_of_node_answers_itself",
        |lab| {
            let _servers = [
                Backend::everywhere(&lab.node)?,
                Backend::everywhere(&lab.node2)?,
            ];
            let state = Manifests::new(lab)?;
            let (ours, theirs) = (
                start(&lab.node, &state, &[])?,
                start(&lab.node2, &state, &[])?,
            );
            let agents = [&ours, &theirs];
            put(
                &state,
                &agents,
                &web(&[lab.node.host, lab.node2.host]),
                "route",
            )?;
            wait_for_answer(lab, &lab.pod1, lab.node.host)?;
            wait_for_answer(lab, &lab.node, lab.node.host)?;
            wait_for_answer(lab, &lab.pod3, lab.node2.host)?;
            put(&state, &agents, &web(&[lab.node2.host]), "route")?;
            wait_for_answer(lab, &lab.pod1, lab.node2.host)?;
            wait_for_answer(lab, &lab.node, lab.node2.host)
        },
    )
}

#[test]
fn services_routes_cannot_carry_are_left_to_nftables_and_named() -> Result<()> {
    isolated(
        "routes::direct::delivery::services_routes_cannot_carry_are_left_to_nftables_and_named",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            // All services, by configuration.
            let agent = start(&lab.node, &state, &["--route-direct"])?;
            let silent = |target_port| ServiceManifest {
                target_port,
                annotations: vec![],
                ..web(&[lab.pod1.host])
            };
            put(&state, &[&agent], &silent(TARGET_PORT), "nftables")?;
            let reason = assignment(&agent)?["reason"].to_string();
            assert!(reason.contains("port 80 leads to port 8080"), "{reason}");
            for frontend in ADDRESSES {
                let address = silent(0).service.address(lab, frontend, Family::V6);
                assert_eq!(lab.client.ask(Protocol::Tcp, address)?.answer()?.by, "pod1");
            }
            assert!(
                super::super::routes(&lab.node, "69")?.is_empty(),
                "never half"
            );
            put(&state, &[&agent], &silent(80), "route")?;
            let never = ServiceManifest {
                annotations: vec![("contiv.io/renderer", "nftables")],
                ..silent(80)
            };
            put(&state, &[&agent], &never, "nftables")?;
            assert!(assignment(&agent)?["reason"].is_null(), "nobody asked");
            let sticky = ServiceManifest {
                affinity: Some(600),
                ..silent(80)
            };
            put(&state, &[&agent], &sticky, "nftables")?;
            // The previous service was left to nftables too.
            let is_said = || {
                assignment(&agent)
                    .is_ok_and(|found| found["reason"].to_string().contains("session affinity"))
            };
            wait_until("the reason is the affinity", EVENT_TIMEOUT, is_said).map(drop)
        },
    )
}
