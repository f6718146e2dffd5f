//! Refusals of the kernel that concern every service: missing modules, and a missing capability.
//!
//! The real kernel answers: the renderer asks it for a name that does not exist instead of the module.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Command,
    sync::Arc,
    time::Duration,
};

use contiv_model::{
    Backend, Balance, ChangeSet, ContivService, Protocol, ServiceId, ServicePort, Snapshot,
};
use contiv_renderer::{
    RenderError, Renderer, Report, nftables::Nftables, poison_isolator::PoisonIsolator,
};
use contiv_renderer_testing::{FaultSwitch, MissingModule, NetlinkFaults};
use contiv_tests::{
    agent::binary,
    cluster::{Manifests, Service, State},
    lab::{LabError, Namespace, Process, Result, isolated, scratch, wait_until},
};

/// Kinds of attributes: the name of an expression, and the type of a chain.
const EXPRESSION: u16 = 1;
const CHAIN_TYPE: u16 = 7;

/// Each module that all services need, and the request that needs it.
const MODULES: [(&str, MissingModule); 8] = [
    ("nft_chain_nat", (CHAIN_TYPE, "nat")),
    ("nft_counter", (EXPRESSION, "counter")),
    ("nft_ct", (EXPRESSION, "ct")),
    ("nft_fib_inet", (EXPRESSION, "fib")),
    ("nft_masq", (EXPRESSION, "masq")),
    ("nft_nat", (EXPRESSION, "nat")),
    ("nft_numgen", (EXPRESSION, "numgen")),
    ("nft_reject_inet", (EXPRESSION, "reject")),
];

const HASH: MissingModule = (EXPRESSION, "hash");

/// A renderer as in an agent, on a kernel that lacks these modules until the switch is turned off.
fn renderer(missing: &[MissingModule], switch: &FaultSwitch) -> PoisonIsolator<Nftables> {
    let faults = NetlinkFaults::missing_modules(missing.to_vec(), switch.clone());
    PoisonIsolator::new(Nftables::owning_on(faults.into_kernel()))
}

fn service(number: u8, balance: Balance) -> ContivService {
    let backend = |host| Backend::new(SocketAddr::new(IpAddr::from([10, 244, number, host]), 8080));
    ContivService {
        cluster_ips: [IpAddr::from([10, 96, 0, number])].into(),
        balance,
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port: None,
            backends: vec![backend(1), backend(2)],
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

fn random(count: u8) -> Snapshot {
    snapshot(
        (1..=count)
            .map(|number| service(number, Balance::Random))
            .collect(),
    )
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in for a closure in map_err"
)]
fn unexpected(error: impl ToString) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// The missing modules that an error names. The call must fail.
fn complaint(
    result: std::result::Result<Report, RenderError>,
) -> Result<(Vec<&'static str>, String)> {
    match result {
        Err(error) => {
            let text = error.to_string();
            match error {
                RenderError::MissingModules { modules } => Ok((modules, text)),
                error => Err(unexpected(error)),
            }
        }
        Ok(report) => Err(LabError::Unexpected(format!("no failure, but {report:?}"))),
    }
}

fn tables(namespace: &Namespace) -> Result<String> {
    namespace.exec(&["nft", "list", "tables"])
}

#[test]
fn missing_module_is_named_and_no_service_is_blamed() -> Result<()> {
    isolated(
        "kernel_refusals::missing_module_is_named_and_no_service_is_blamed",
        |lab| {
            for (name, missing) in MODULES {
                let switch = FaultSwitch::default();
                let mut renderer = renderer(&[missing], &switch);
                // Repeated until the search for bad services would begin; without services the error is immediate.
                for wanted in [vec![random(0)], vec![random(3); 7]].concat() {
                    let (modules, text) =
                        complaint(lab.node.run(|| Ok(renderer.resync(&wanted)))?)?;
                    assert_eq!(modules, [name], "{text}");
                    assert!(
                        text.starts_with(&format!("the kernel lacks {name}")),
                        "{text}"
                    );
                }
                assert_eq!(tables(&lab.node)?, "", "{name}: nothing is left");
                // As soon as the module is loaded, everything is applied.
                switch.turn_off();
                let report = lab
                    .node
                    .run(|| renderer.resync(&random(3)).map_err(unexpected))?;
                assert_eq!(report.rejected, [], "{name}");
                lab.node.run(|| renderer.cleanup().map_err(unexpected))?;
            }
            Ok(())
        },
    )
}

#[test]
fn missing_modules_are_named_together() -> Result<()> {
    isolated(
        "kernel_refusals::missing_modules_are_named_together",
        |lab| {
            let missing: Vec<MissingModule> = MODULES
                .iter()
                .map(|(_, missing)| *missing)
                .chain([HASH])
                .collect();
            let mut renderer = renderer(&missing, &FaultSwitch::default());
            let (modules, text) = complaint(lab.node.run(|| Ok(renderer.resync(&random(3))))?)?;
            let all = MODULES.iter().map(|(name, _)| *name);
            assert!(
                all.chain(["nft_hash"]).all(|name| modules.contains(&name)),
                "{text}"
            );
            Ok(())
        },
    )
}

#[test]
fn missing_hash_module_excludes_only_services_that_need_it() -> Result<()> {
    isolated(
        "kernel_refusals::missing_hash_module_excludes_only_services_that_need_it",
        |lab| {
            let switch = FaultSwitch::default();
            let mut renderer = renderer(&[HASH], &switch);
            let mut renderer =
                |snapshot: &Snapshot, changes: Option<&ChangeSet>| -> Result<Report> {
                    lab.node.run(|| match changes {
                        Some(changes) => renderer.update(changes).map_err(unexpected),
                        None => renderer.resync(snapshot).map_err(unexpected),
                    })
                };
            let by_client = |number| service(number, Balance::ClientAddress);
            let left_out = |report: &Report| -> Vec<(String, &'static str)> {
                let of = |rejected: &contiv_renderer::Rejected| {
                    assert!(
                        rejected.reason.contains("lacks the module nft_hash"),
                        "{}",
                        rejected.reason
                    );
                    (rejected.service.name.to_string(), rejected.active_state)
                };
                report.rejected.iter().map(of).collect()
            };
            let nothing = |name: &str| (name.to_owned(), "nothing");
            let first = snapshot(vec![service(1, Balance::Random), by_client(2)]);
            assert_eq!(left_out(&renderer(&first, None)?), [nothing("s2")]);
            // An applied service is changed to need it, and another one is added.
            let second = snapshot(vec![
                by_client(1),
                by_client(2),
                by_client(3),
                service(4, Balance::Random),
            ]);
            let report = renderer(&second, Some(&ChangeSet::between(&first, &second)))?;
            assert_eq!(
                left_out(&report),
                [("s1".to_owned(), "last good"), nothing("s2"), nothing("s3")]
            );
            let listing = lab
                .node
                .exec(&["nft", "list", "map", "inet", "contiv", "services4"])?;
            let has = |number| listing.contains(&format!("10.96.0.{number} . tcp . 80"));
            assert_eq!(
                [1, 2, 3, 4].map(has),
                [true, false, false, true],
                "{listing}"
            );
            // A change of one that needs it costs the kernel nothing.
            let mut third = second.clone();
            let mut changed = by_client(2);
            changed.ports[0].backends.pop();
            third.services.insert(changed.id.clone(), Arc::new(changed));
            let report = renderer(&third, Some(&ChangeSet::between(&second, &third)))?;
            assert_eq!((left_out(&report).len(), report.transactions), (3, 0));
            // With the module everything is served after a resync.
            switch.turn_off();
            assert_eq!(left_out(&renderer(&third, None)?), []);
            Ok(())
        },
    )
}

#[test]
fn agent_without_net_admin_logs_it_once() -> Result<()> {
    const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9999);
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);
    isolated(
        "kernel_refusals::agent_without_net_admin_logs_it_once",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let mut command = Command::new("setpriv");
            command
                .args(["--bounding-set", "-net_admin"])
                .arg(binary()?);
            command.args([
                "agent",
                "--node-name",
                lab.node.host.name,
                "--store",
                &state.url(),
            ]);
            command
                .args(["--listen", &LISTEN.to_string()])
                .arg("--state-dir")
                .arg(scratch("state")?);
            let agent = Process::start(&lab.node, "agent", &mut command)?;
            wait_until("it has failed again and again", TEST_TIMEOUT, || {
                let renderers = lab
                    .node
                    .http("GET", LISTEN, "/renderers")
                    .and_then(|response| response.json());
                renderers.is_ok_and(|renderers| renderers[0]["failures"].as_u64() >= Some(5))
            })?;
            let readiness = lab.node.http("GET", LISTEN, "/readiness")?;
            assert_eq!(readiness.status, 503);
            assert!(
                readiness.body.contains("CAP_NET_ADMIN"),
                "{}",
                readiness.body
            );
            let log = agent.log();
            let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
            assert!(
                !log.contains("this kernel cannot"),
                "the kernel is not to blame:\n{log}"
            );
            assert_eq!(count("will not be noticed"), 1, "{log}");
            assert_eq!(
                count("CAP_NET_ADMIN"),
                2,
                "once for the watch, once for the table:\n{log}"
            );
            Ok(())
        },
    )
}
