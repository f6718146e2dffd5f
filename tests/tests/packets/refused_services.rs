//! A service that the kernel refuses is reported by name and left out; all others are applied.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use contiv_model::{
    Addresses, Backend, ChangeSet, ContivService, Protocol, ServiceId, ServicePort, Snapshot,
};
use contiv_renderer::{
    Renderer, Report, dry_run, nftables::Nftables, poison_isolator::PoisonIsolator,
};
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Protocol as LabProtocol, Responder, Result, isolated, wait_until,
    },
};

/// Limits the table to this many source ranges in all; the kernel refuses one more.
fn make_a_small_table(lab: &Lab, size: u8) -> Result<()> {
    let text = dry_run::nft(&Snapshot::default());
    let start = text
        .find("set source-ranges4 {")
        .unwrap_or_else(|| panic!("no such set in\n{text}"));
    let (before, set) = text.split_at(start);
    let small = set.replacen('{', &format!("{{\n\t\tsize {size}\n"), 1);
    lab.node
        .exec_with_input(&["nft", "-f", "-"], &format!("{before}{small}"))
        .map(drop)
}

/// A service with a load-balancer address; with `ranges`, only these may connect to it.
fn service(number: u8, ranges: &[&str]) -> ContivService {
    let backend = Backend::new((IpAddr::from([10, 244, 1, number]), 8080).into());
    let load_balancer = Addresses::from([IpAddr::from([203, 0, 113, number])]);
    ContivService {
        cluster_ips: Addresses::from([IpAddr::from([10, 96, 0, number])]),
        external_ips: load_balancer.clone(),
        load_balancer_ips: load_balancer,
        source_ranges: ranges.iter().flat_map(|range| range.parse()).collect(),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port: None,
            backends: vec![backend],
        }],
        ..ContivService::new(ServiceId::new("default", format!("s{number}")))
    }
}

fn snapshot(services: Vec<ContivService>) -> Snapshot {
    let services: BTreeMap<_, _> = services
        .into_iter()
        .map(|service| (service.id.clone(), Arc::new(service)))
        .collect();
    Snapshot {
        services,
        ..Snapshot::default()
    }
}

fn rejected(report: &Report) -> Vec<(String, &'static str)> {
    report
        .rejected
        .iter()
        .map(|rejected| (rejected.service.to_string(), rejected.active_state))
        .collect()
}

#[test]
fn service_the_kernel_refuses_is_left_out_and_retried_on_change() -> Result<()> {
    isolated(
        "refused_services::service_the_kernel_refuses_is_left_out_and_retried_on_change",
        |lab| {
            make_a_small_table(lab, 1)?;
            let unexpected =
                |error: contiv_renderer::RenderError| LabError::Unexpected(error.to_string());
            let has = |number: u8| -> Result<bool> {
                let listed =
                    lab.node
                        .exec(&["nft", "list", "map", "inet", "contiv", "services4"])?;
                Ok(listed.contains(&format!("10.96.0.{number} . tcp . 80")))
            };
            let mut renderer = PoisonIsolator::new(Nftables::new());
            let many = |ranges: &[&str]| {
                (3..200)
                    .map(|number| service(number, &[]))
                    .chain([service(2, ranges)])
            };
            let full = snapshot(
                many(&["192.0.2.0/24"])
                    .chain([service(1, &["192.0.2.0/24"])])
                    .collect(),
            );
            let report = lab
                .node
                .run(|| renderer.resync(&full).map_err(unexpected))?;
            let [(left_out, "nothing")] = &rejected(&report)[..] else {
                panic!("{report:?}")
            };
            let reason = &report.rejected[0].reason;
            assert!(
                reason.contains("source-ranges4") && reason.contains("192.0.2.0/24"),
                "{reason}"
            );
            let (refused, taken) = if left_out == "default/s1" {
                (1, 2)
            } else {
                (2, 1)
            };
            assert_eq!((has(refused)?, has(taken)?, has(199)?), (false, true, true));

            // It needs no element any more.
            let mut next = full.clone();
            let good = Arc::new(service(refused, &[]));
            next.services.insert(good.id.clone(), Arc::clone(&good));
            let update =
                |renderer: &mut PoisonIsolator<Nftables>, from: &Snapshot, to: &Snapshot| {
                    lab.node.run(|| {
                        renderer
                            .update(&ChangeSet::between(from, to))
                            .map_err(unexpected)
                    })
                };
            let report = update(&mut renderer, &full, &next)?;
            assert_eq!((rejected(&report), has(refused)?), (vec![], true));

            // Now it does again: it is refused in an update, the others in the update are not.
            let mut bad = next.clone();
            bad.services
                .insert(good.id.clone(), full.services[&good.id].clone());
            let new = Arc::new(service(200, &[]));
            bad.services.insert(new.id.clone(), new);
            let report = update(&mut renderer, &next, &bad)?;
            assert_eq!(rejected(&report), [(good.id.to_string(), "last good")]);
            assert_eq!((has(refused)?, has(200)?), (true, true));

            // It stays refused while others change, until it is deleted.
            let mut others = bad.clone();
            others.services.remove(&ServiceId::new("default", "s200"));
            let report = update(&mut renderer, &bad, &others)?;
            assert_eq!((rejected(&report).len(), has(200)?), (1, false));
            let mut less = others.clone();
            less.services.remove(&good.id);
            let report = update(&mut renderer, &others, &less)?;
            assert_eq!((rejected(&report), has(refused)?), (vec![], false));
            Ok(())
        },
    )
}

#[test]
fn refused_service_is_in_quarantine_and_all_others_work() -> Result<()> {
    isolated(
        "refused_services::refused_service_is_in_quarantine_and_all_others_work",
        |lab| {
            // One for each protocol.
            make_a_small_table(lab, 3)?;
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let (first, second) = (
                Service::new("first", 80, &[lab.pod1.host]),
                Service::new("second", 81, &[lab.pod3.host]),
            );
            let guarded = |service: &Service| ServiceManifest {
                source_ranges: vec!["192.0.2.0/24".to_owned()],
                ..ServiceManifest::new(service.clone())
            };
            state.put_manifest(&guarded(&first))?;
            let agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            agent.wait_until_applied(&first)?;
            state.put_manifest(&guarded(&second))?;
            let quarantine = || {
                agent
                    .http("GET", "/quarantine")
                    .and_then(|answer| answer.json())
            };
            wait_until("it is in the quarantine", Duration::from_secs(20), || {
                quarantine().is_ok_and(|listed| listed[0]["object"] == "service default/second")
            })?;
            let listed = quarantine()?;
            assert_eq!(
                (&listed[0]["source"], &listed[0]["active_state"]),
                (&"renderer nftables".into(), &"nothing".into())
            );
            let renderers = agent.http("GET", "/renderers")?.json()?;
            let rejected = &renderers[0]["last_report"]["rejected"];
            assert!(rejected.to_string().contains("second"), "{renderers}");
            let ask = |service: &Service| {
                lab.pod1.ask(
                    LabProtocol::Tcp,
                    service.address(lab, Frontend::ClusterIp, Family::V4),
                )
            };
            assert_eq!(ask(&first)?.answer()?.by, "pod1");

            state.put(&second)?;
            wait_until("it left the quarantine", Duration::from_secs(20), || {
                quarantine().is_ok_and(|listed| listed.as_array().is_some_and(Vec::is_empty))
            })?;
            assert_eq!(ask(&second)?.answer()?.by, "pod3");
            Ok(())
        },
    )
}
