//! Base chains exist only where a service needs them, so that other packets do not traverse them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contiv_model::{
    Addresses, Backend, ChangeSet, ContivService, NodeFacts, Protocol, ServiceId, ServicePort,
    Snapshot,
};
use contiv_renderer::{Renderer, nftables::Nftables};
use contiv_tests::lab::{LabError, Namespace, Result, isolated};

/// The base chains of every table.
const ALWAYS: [&str; 5] = [
    "nat-output",
    "nat-postrouting",
    "nat-prerouting",
    "refuse-output",
    "refuse-prerouting",
];

/// The features of a service besides a cluster IP.
#[derive(Default, Clone, Copy)]
struct Features {
    sticky: bool,
    external: External,
    on_loopback: bool,
}

/// Its external address.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum External {
    #[default]
    No,
    Open,
    /// With source ranges.
    Restricted,
}

impl Features {
    const ALL: Self = Self {
        sticky: true,
        external: External::Restricted,
        on_loopback: true,
    };

    fn snapshot(self) -> Snapshot {
        let address = |is_there: bool, last| -> Addresses {
            is_there
                .then(|| IpAddr::from([192, 0, 2, last]))
                .into_iter()
                .collect()
        };
        let service = ContivService {
            cluster_ips: [IpAddr::from([10, 96, 0, 1])].into(),
            external_ips: address(self.external != External::No, 1),
            load_balancer_ips: address(self.external == External::Restricted, 1),
            source_ranges: "198.51.100.0/24".parse().into_iter().collect(),
            session_affinity_timeout: if self.sticky { 600 } else { 0 },
            ports: vec![ServicePort {
                port: 80,
                protocol: Protocol::Tcp,
                name: "main".into(),
                node_port: None,
                backends: vec![Backend::new((IpAddr::from([10, 244, 0, 1]), 8080).into())],
            }],
            ..ContivService::new(ServiceId::new("default", "web"))
        };
        let node_ips = self
            .on_loopback
            .then(|| IpAddr::from([127, 0, 0, 1]))
            .into_iter()
            .collect();
        Snapshot {
            services: BTreeMap::from([(service.id.clone(), Arc::new(service))]),
            node: NodeFacts {
                node_ips,
                ..NodeFacts::default()
            },
            ..Snapshot::default()
        }
    }

    /// The expected base chains besides those of every table.
    fn chains(self) -> BTreeSet<String> {
        let of = |is_needed: bool, chains: &'static [&str]| if is_needed { chains } else { &[] };
        [
            &ALWAYS[..],
            of(self.sticky, &["learn-postrouting", "learn-input"]),
            of(self.external != External::No, &["external-postrouting"]),
            of(
                self.external == External::Restricted,
                &["firewall-prerouting", "firewall-output"],
            ),
            of(self.on_loopback, &["loopback-prerouting"]),
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }
}

/// The base chains that nft lists, with their content.
fn base_chains(namespace: &Namespace) -> Result<BTreeMap<String, String>> {
    let listed = namespace.exec(&["nft", "list", "table", "inet", "contiv"])?;
    let parts = listed
        .split("\n\tchain ")
        .skip(1)
        .filter_map(|part| part.split_once(" {\n"));
    let base = parts.filter(|(_, rules)| rules.trim_start().starts_with("type "));
    Ok(base
        .map(|(name, rules)| {
            (
                name.to_owned(),
                rules.trim_end_matches("\n}\n").trim_end().to_owned(),
            )
        })
        .collect())
}

/// Their names.
fn names(namespace: &Namespace) -> Result<BTreeSet<String>> {
    base_chains(namespace).map(|chains| chains.into_keys().collect())
}

fn call<T: Send, E: ToString + Send>(
    namespace: &Namespace,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T> {
    namespace.run(|| work().map_err(|error| LabError::Unexpected(error.to_string())))
}

#[test]
fn base_chain_lives_from_its_first_element_to_the_last_resync() -> Result<()> {
    isolated(
        "base_chains::base_chain_lives_from_its_first_element_to_the_last_resync",
        |lab| {
            let none = Features::default();
            for features in [
                Features {
                    sticky: true,
                    ..none
                },
                Features {
                    external: External::Open,
                    ..none
                },
                Features {
                    external: External::Restricted,
                    ..none
                },
                Features {
                    on_loopback: true,
                    ..none
                },
                Features::ALL,
            ] {
                let (without, with) = (none.snapshot(), features.snapshot());
                let mut renderer = Nftables::new();
                call(&lab.node, || renderer.resync(&without))?;
                assert_eq!(names(&lab.node)?, none.chains());
                call(&lab.node, || {
                    renderer.update(&ChangeSet::between(&without, &with))
                })?;
                assert_eq!(names(&lab.node)?, features.chains());
                call(&lab.node2, || Nftables::new().resync(&with))?;
                assert_eq!(
                    base_chains(&lab.node)?,
                    base_chains(&lab.node2)?,
                    "as from nothing"
                );
                call(&lab.node, || {
                    renderer.update(&ChangeSet::between(&with, &without))
                })?;
                assert_eq!(
                    names(&lab.node)?,
                    features.chains(),
                    "the next service may need it"
                );
                call(&lab.node, || renderer.resync(&without))?;
                assert_eq!(names(&lab.node)?, none.chains());
            }
            Ok(())
        },
    )
}

/// The kernel accepts no new base chain in a transaction that changes the table's owner or its dormant flag.
#[test]
fn base_chains_are_added_to_unowned_or_dormant_table() -> Result<()> {
    isolated(
        "base_chains::base_chains_are_added_to_unowned_or_dormant_table",
        |lab| {
            let none = Features::default();
            call(&lab.node, || Nftables::owning().resync(&none.snapshot()))?;
            assert_eq!(names(&lab.node)?, none.chains());
            let handle = || lab.node.exec(&["nft", "-a", "list", "tables"]);
            let before = handle()?;
            call(&lab.node, || {
                Nftables::owning().resync(&Features::ALL.snapshot())
            })?;
            assert_eq!(names(&lab.node)?, Features::ALL.chains());
            assert_eq!(handle()?, before, "the same table");

            call(&lab.node2, || Nftables::new().resync(&none.snapshot()))?;
            lab.node2.exec(&[
                "nft",
                "add",
                "table",
                "inet",
                "contiv",
                "{ flags dormant; }",
            ])?;
            call(&lab.node2, || {
                Nftables::new().resync(&Features::ALL.snapshot())
            })?;
            assert_eq!(names(&lab.node2)?, Features::ALL.chains());
            assert!(
                !lab.node2
                    .exec(&["nft", "list", "table", "inet", "contiv"])?
                    .contains("dormant")
            );
            Ok(())
        },
    )
}

#[test]
fn base_chain_unneeded_at_a_repair_is_complete_later() -> Result<()> {
    isolated(
        "base_chains::base_chain_unneeded_at_a_repair_is_complete_later",
        |lab| {
            let (without, with) = (Features::default().snapshot(), Features::ALL.snapshot());
            let mut renderer = Nftables::new();
            let mut watch = call(&lab.node, || renderer.watch())?
                .unwrap_or_else(|| panic!("there is no watch"));
            call(&lab.node, || renderer.resync(&with))?;
            let right = base_chains(&lab.node)?;
            call(&lab.node, || {
                renderer.update(&ChangeSet::between(&with, &without))
            })?;
            lab.node
                .exec(&["nft", "flush", "chain", "inet", "contiv", "services-v4"])?;
            let change = watch
                .next()
                .map_err(|error| LabError::Unexpected(error.to_string()))?;
            assert!(change.is_some_and(|change| change.to_string().contains("services-v4")));
            call(&lab.node, || renderer.heal(&without))?;
            assert_eq!(names(&lab.node)?, Features::default().chains());
            call(&lab.node, || {
                renderer.update(&ChangeSet::between(&without, &with))
            })?;
            assert_eq!(base_chains(&lab.node)?, right);
            Ok(())
        },
    )
}
