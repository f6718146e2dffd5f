//! The tables of the nftables renderer in a real kernel, compared with an independent reader: the `nft` command.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Addresses, Backend, BackendState, Balance, ChangeSet, ClusterIpMasquerade, ContivService,
    NodeFacts, Protocol, ServiceId, ServicePort, Snapshot, TrafficPolicy,
};
use contiv_renderer::{
    Renderer, Report, Verifier, dry_run,
    nftables::{Nftables, TableVerifier},
    poison_isolator::PoisonIsolator,
};
use contiv_renderer_testing::{FaultSwitch, NetlinkFaults};
use contiv_tests::{
    kernel::{Elements, count, read_elements, without_unused_chains},
    lab::{LabError, Namespace, Result, isolated, load_ruleset},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

#[test]
fn skeleton_by_nft_and_by_netlink_lists_the_same() -> Result<()> {
    isolated(
        "nftables_kernel::skeleton_by_nft_and_by_netlink_lists_the_same",
        |lab| {
            resync(&lab.node, &mut Nftables::new(), &Snapshot::default())?;
            let file = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../renderer/src/nftables/skeleton.nft"
            );
            lab.node2.exec(&["nft", "-f", file])?;
            assert_same_listing(&lab.node, &lab.node2)
        },
    )
}

#[test]
fn full_table_by_nft_and_by_netlink_lists_the_same() -> Result<()> {
    isolated(
        "nftables_kernel::full_table_by_nft_and_by_netlink_lists_the_same",
        |lab| {
            let mut snapshot = snapshot(6, 3);
            for masquerade in [
                ClusterIpMasquerade::AllButPods,
                ClusterIpMasquerade::All,
                ClusterIpMasquerade::None,
            ] {
                snapshot.node.cluster_ip_masquerade = masquerade;
                resync(&lab.node, &mut Nftables::new(), &snapshot)?;
                lab.node2.exec(&["nft", "flush", "ruleset"])?;
                load_ruleset(&lab.node2, &dry_run::nft(&snapshot))?;
                assert_same_listing(&lab.node, &lab.node2)?;
            }
            Ok(())
        },
    )
}

/// nft loads whole bytes of an address, and masks it for other prefixes.
#[test]
fn rules_with_a_range_of_pods_list_the_same() -> Result<()> {
    isolated(
        "nftables_kernel::rules_with_a_range_of_pods_list_the_same",
        |lab| {
            let mut before = snapshot(2, 1);
            let mut renderer = Nftables::new();
            resync(&lab.node, &mut renderer, &before)?;
            for (v4, v6) in [
                ("10.0.0.0/8", "fd00:10::/32"),
                ("10.244.0.0/21", "fd00:10:244::/61"),
                ("10.244.1.0/24", "fd00:10:244:1::/64"),
                ("10.244.1.128/25", "fd00:10:244:1::8000/113"),
                ("10.244.1.7/32", "fd00:10:244:1::7/128"),
                ("0.0.0.0/0", "::/0"),
            ] {
                let mut after = before.clone();
                after.node.pod_cidrs = [v4, v6].into_iter().flat_map(str::parse).collect();
                let changes = ChangeSet::between(&before, &after);
                lab.node
                    .run(|| Ok(renderer.update(&changes)))?
                    .map_err(|error| LabError::Unexpected(error.to_string()))?;
                lab.node2.exec(&["nft", "flush", "ruleset"])?;
                load_ruleset(&lab.node2, &dry_run::nft(&after))?;
                assert_same_listing(&lab.node, &lab.node2)?;
                let compared =
                    lab.node
                        .exec(&["nft", "list", "chain", "inet", "contiv", "masquerade-v4"])?;
                assert_eq!(
                    compared.contains(&format!("ip saddr != {v4} ").replace("/32", "")),
                    v4 != "0.0.0.0/0",
                    "{compared}"
                );
                let verified = lab.node.run(|| Ok(TableVerifier::new().verify(&after)))?;
                let verified = verified.map_err(|error| LabError::Unexpected(error.to_string()))?;
                assert!(verified.drift.is_empty(), "{:?}", verified.drift);
                before = after;
            }
            Ok(())
        },
    )
}

/// Elements do not matter here, only rules.
#[test]
fn chains_on_demand_of_every_kind_list_the_same() -> Result<()> {
    isolated(
        "nftables_kernel::chains_on_demand_of_every_kind_list_the_same",
        |lab| {
            let snapshot = every_kind_of_chain();
            resync(&lab.node, &mut Nftables::new(), &snapshot)?;
            let text = dry_run::nft(&snapshot);
            let table = text
                .split_once("\nadd element")
                .map_or(text.as_str(), |(table, _)| table);
            // nft 1.0.6 cannot load the rule that stores IPv6 clients, which another test covers.
            let is_loadable = |name: &str| !(name.starts_with("learn") && name.contains("-v6-"));
            load_ruleset(
                &lab.node2,
                &without_chains(table, |name| !is_loadable(name)),
            )?;
            let mut ours = chains(&lab.node.exec(&["nft", "list", "ruleset"])?);
            ours.retain(|name, _| is_loadable(name));
            let theirs = chains(&lab.node2.exec(&["nft", "list", "ruleset"])?);
            assert_eq!(ours, theirs);
            let count = |prefix: &str| ours.keys().filter(|name| name.starts_with(prefix)).count();
            assert_eq!(
                count("pick"),
                3 * 3 * 2 * 2,
                "choices, policies, node ports or not, families: {ours:#?}"
            );
            assert_eq!(count("learn-v4-") + count("learn-node-port-v4-"), 2);
            assert_eq!(
                ours.values()
                    .filter(|rules| rules[0].starts_with("type "))
                    .count(),
                5 + 8,
                "base chains"
            );
            Ok(())
        },
    )
}

/// nft 1.0.6 writes a byteorder expression for `meta l4proto` in the key of an interval set, with a size and a length that
/// hardened kernels refuse.
#[test]
fn rendered_table_loads_without_byteorder_expressions() -> Result<()> {
    isolated(
        "nftables_kernel::rendered_table_loads_without_byteorder_expressions",
        |lab| {
            let ruleset = dry_run::nft(&snapshot(6, 3));
            let messages = lab
                .node
                .exec_with_input(&["nft", "--debug=netlink", "-f", "-"], &ruleset)?;
            assert!(
                messages.contains("[ lookup reg 1 set source-ranges4"),
                "{messages}"
            );
            let conversions: Vec<&str> = messages
                .lines()
                .filter(|line| line.contains("byteorder"))
                .collect();
            assert!(conversions.is_empty(), "{conversions:#?}");
            Ok(())
        },
    )
}

#[test]
fn ipv6_affinity_set_is_listed_although_nft_cannot_load_it() -> Result<()> {
    isolated(
        "nftables_kernel::ipv6_affinity_set_is_listed_although_nft_cannot_load_it",
        |lab| {
            let mut sticky = service(1, 3);
            sticky.session_affinity_timeout = 600;
            let services = BTreeMap::from([(sticky.id.clone(), Arc::new(sticky))]);
            resync(
                &lab.node,
                &mut Nftables::new(),
                &Snapshot {
                    services,
                    ..snapshot(0, 0)
                },
            )?;
            let listing =
                lab.node
                    .exec(&["nft", "list", "chain", "inet", "contiv", "learn-v6-600"])?;
            let rule = "update @affinity6 { ct original ip6 daddr . meta l4proto . ct original proto-dst . ip6 saddr \
                    timeout 10m : ip6 daddr . th dport }";
            assert!(listing.contains(rule), "{listing}");
            lab.node.exec(&["nft", "-j", "list", "ruleset"])?;
            Ok(())
        },
    )
}

#[test]
fn another_reader_finds_exactly_elements_that_are_desired() -> Result<()> {
    isolated(
        "nftables_kernel::another_reader_finds_exactly_elements_that_are_desired",
        |lab| {
            let mut renderer = Nftables::new();
            let mut state = snapshot(0, 0);
            resync(&lab.node, &mut renderer, &state)?;
            // A sequence of states that differ in services, backends, policies and node addresses.
            for step in [(4, 1), (4, 2), (6, 5), (6, 3), (2, 3), (2, 0), (5, 7)] {
                let next = snapshot(step.0, step.1);
                let changes = ChangeSet::between(&state, &next);
                state = next;
                lab.node
                    .run(|| renderer.update(&changes).map_err(unexpected))?;
                let listed = read_elements(&lab.node)?;
                assert_eq!(verifier_elements(&lab.node)?, listed, "after {step:?}");
                assert_eq!(
                    without_unused_chains(listed),
                    desired_elements(&state),
                    "after {step:?}"
                );
                let verification = lab
                    .node
                    .run(|| TableVerifier::new().verify(&state).map_err(unexpected))?;
                assert!(
                    verification.drift.is_empty(),
                    "after {step:?}: {:#?}",
                    verification.drift
                );
                assert!(verification.checked > 100, "{}", verification.checked);
            }
            Ok(())
        },
    )
}

#[test]
fn resync_of_a_right_table_writes_nothing_and_keeps_counters() -> Result<()> {
    isolated(
        "nftables_kernel::resync_of_a_right_table_writes_nothing_and_keeps_counters",
        |lab| {
            let snapshot = snapshot(4, 3);
            resync(&lab.node, &mut Nftables::new(), &snapshot)?;
            count_a_connection_by_hand(&lab.node)?;
            let before = lab.node.exec(&["nft", "list", "ruleset"])?;
            assert!(before.contains("counter packets 7 bytes 700"), "{before}");
            let report = resync(&lab.node, &mut Nftables::new(), &snapshot)?;
            // Pods are detected, and not masqueraded, each by CIDRs and by interfaces; the latter in both families.
            let pods = 2 * snapshot.node.pod_cidrs.len() + 4 * snapshot.node.pod_interfaces.len();
            let loopback = 2;
            assert_eq!(
                (report.added, report.removed),
                (pods + loopback, 0),
                "only the few ranges are written anew"
            );
            assert_eq!(lab.node.exec(&["nft", "list", "ruleset"])?, before);
            Ok(())
        },
    )
}

#[test]
fn resync_undoes_foreign_changes_of_the_table() -> Result<()> {
    isolated(
        "nftables_kernel::resync_undoes_foreign_changes_of_the_table",
        |lab| {
            let snapshot = snapshot(5, 4);
            resync(&lab.node, &mut Nftables::new(), &snapshot)?;
            let right = lab.node.exec(&["nft", "list", "ruleset"])?;
            let damages: [&[&str]; 14] = [
                &["nft", "flush", "ruleset"],
                &["nft", "flush", "chain", "inet", "contiv", "services-v4"],
                &[
                    "nft",
                    "insert",
                    "rule",
                    "inet",
                    "contiv",
                    "nat-prerouting",
                    "accept",
                ],
                &["nft", "flush", "map", "inet", "contiv", "backends4"],
                &[
                    "nft",
                    "delete",
                    "element",
                    "inet",
                    "contiv",
                    "cluster-ips4",
                    "{ 10.96.0.1 }",
                ],
                &[
                    "nft",
                    "add",
                    "element",
                    "inet",
                    "contiv",
                    "cluster-ips4",
                    "{ 192.0.2.1 }",
                ],
                &[
                    "nft",
                    "add",
                    "element",
                    "inet",
                    "contiv",
                    "services4",
                    "{ 192.0.2.1 . tcp . 80 : 0:99 }",
                ],
                &[
                    "nft",
                    "add",
                    "element",
                    "inet",
                    "contiv",
                    "hairpin6",
                    "{ fd00::1 . fd00::2 }",
                ],
                &[
                    "nft",
                    "add",
                    "element",
                    "inet",
                    "contiv",
                    "pods4",
                    "{ 192.0.2.0/24 }",
                ],
                &["nft", "add", "chain", "inet", "contiv", "foreign"],
                &[
                    "nft",
                    "add",
                    "set",
                    "inet",
                    "contiv",
                    "foreign",
                    "{ type ipv4_addr; }",
                ],
                &["nft", "add", "chain", "inet", "contiv", "pick-v4-99"],
                &["nft", "flush", "map", "inet", "contiv", "pick-chains4"],
                &[
                    "nft",
                    "add",
                    "element",
                    "inet",
                    "contiv",
                    "pick-chains4",
                    "{ 0:99 : goto reject-now }",
                ],
            ];
            for damage in damages {
                lab.node.exec(damage)?;
                assert_ne!(
                    lab.node.exec(&["nft", "list", "ruleset"])?,
                    right,
                    "{damage:?} damages nothing"
                );
                resync(&lab.node, &mut Nftables::new(), &snapshot)?;
                assert_eq!(
                    sorted(&lab.node.exec(&["nft", "list", "ruleset"])?),
                    sorted(&right),
                    "{damage:?}"
                );
            }
            Ok(())
        },
    )
}

#[test]
fn table_of_another_shape_is_replaced() -> Result<()> {
    isolated(
        "nftables_kernel::table_of_another_shape_is_replaced",
        |lab| {
            let other = "table inet contiv { set pods4 { type inet_service; }\n chain nat-output { type nat hook output \
                     priority 0; }\n chain x { tcp dport @pods4 accept; }\n }";
            lab.node.exec_with_input(&["nft", "-f", "-"], other)?;
            let snapshot = snapshot(3, 2);
            resync(&lab.node, &mut Nftables::new(), &snapshot)?;
            load_ruleset(&lab.node2, &dry_run::nft(&snapshot))?;
            assert_same_listing(&lab.node, &lab.node2)
        },
    )
}

#[test]
fn unneeded_chains_are_kept_until_a_resync() -> Result<()> {
    isolated(
        "nftables_kernel::unneeded_chains_are_kept_until_a_resync",
        |lab| {
            let mut renderer = Nftables::new();
            let (many, few) = (snapshot(3, 7), snapshot(3, 2));
            let chains = |namespace: &Namespace| {
                namespace
                    .exec(&["nft", "list", "chains", "inet"])
                    .map(|listed| sorted(&listed))
            };
            resync(&lab.node, &mut renderer, &many)?;
            let with_many = chains(&lab.node)?;
            lab.node.run(|| {
                renderer
                    .update(&ChangeSet::between(&many, &few))
                    .map_err(unexpected)
            })?;
            let kept = chains(&lab.node)?;
            assert!(
                with_many.iter().all(|chain| kept.contains(chain)),
                "{kept:?}"
            );
            resync(&lab.node, &mut renderer, &few)?;
            resync(&lab.node2, &mut Nftables::new(), &few)?;
            assert_eq!(chains(&lab.node)?, chains(&lab.node2)?);
            Ok(())
        },
    )
}

/// Each time of affinity has a chain of its own.
#[test]
fn many_unneeded_chains_are_removed_and_made_again() -> Result<()> {
    isolated(
        "nftables_kernel::many_unneeded_chains_are_removed_and_made_again",
        |lab| {
            let sticky = |times: std::ops::Range<u16>| {
                let mut snapshot = wide(&vec![1; times.len()]);
                for (service, time) in snapshot.services.values_mut().zip(times) {
                    Arc::make_mut(service).session_affinity_timeout = 60 + u32::from(time);
                }
                snapshot
            };
            let mut renderer = Nftables::new();
            let mut state = Snapshot::default();
            resync(&lab.node, &mut renderer, &state)?;
            // Chains in the kernel after a change to these times: at most 64 that no service needs are kept.
            for (times, expected) in [
                (0..50, 50),
                (50..110, 110),
                (0..110, 110),
                (0..40, 40),
                (30..110, 110),
                (0..0, 0),
            ] {
                let next = sticky(times.clone());
                let changes = ChangeSet::between(&state, &next);
                lab.node
                    .run(|| renderer.update(&changes).map_err(unexpected))?;
                state = next;
                let listed = lab.node.exec(&["nft", "list", "chains", "inet"])?;
                assert_eq!(
                    listed.matches("chain learn-v4-").count(),
                    expected,
                    "{times:?}"
                );
                assert_eq!(
                    without_unused_chains(read_elements(&lab.node)?),
                    desired_elements(&state),
                    "{times:?}"
                );
                let verification = lab
                    .node
                    .run(|| TableVerifier::new().verify(&state).map_err(unexpected))?;
                assert!(
                    verification.drift.is_empty(),
                    "{times:?}: {:#?}",
                    verification.drift
                );
            }
            Ok(())
        },
    )
}

#[test]
fn cleanup_removes_only_its_own_table() -> Result<()> {
    isolated(
        "nftables_kernel::cleanup_removes_only_its_own_table",
        |lab| {
            let foreign = "table inet contiv-other { chain c { tcp dport 22 accept; }\n }\ntable ip contiv { }";
            lab.node.exec_with_input(&["nft", "-f", "-"], foreign)?;
            let before = lab.node.exec(&["nft", "list", "ruleset"])?;
            resync(&lab.node, &mut Nftables::new(), &snapshot(3, 3))?;
            assert_ne!(lab.node.exec(&["nft", "list", "ruleset"])?, before);
            for removed in [1, 0] {
                let report = lab
                    .node
                    .run(|| Nftables::new().cleanup().map_err(unexpected))?;
                assert_eq!(
                    report.removed, removed,
                    "a second cleanup finds nothing to do"
                );
                assert_eq!(lab.node.exec(&["nft", "list", "ruleset"])?, before);
            }
            Ok(())
        },
    )
}

#[test]
fn thousands_of_services_go_in_although_send_buffer_is_small() -> Result<()> {
    isolated(
        "nftables_kernel::thousands_of_services_go_in_although_send_buffer_is_small",
        |lab| {
            let snapshot = snapshot(4000, 3);
            let mut renderer = Nftables::new();
            let report = resync(&lab.node, &mut renderer, &snapshot)?;
            // Outside the first user namespace the kernel limits the send buffer, so the batch must have been split.
            assert!(report.transactions > 1, "{report:?}");
            assert_eq!(read_elements(&lab.node)?, desired_elements(&snapshot));
            Ok(())
        },
    )
}

#[test]
fn large_set_is_declared_for_its_size_and_remade_when_outgrown() -> Result<()> {
    isolated(
        "nftables_kernel::large_set_is_declared_for_its_size_and_remade_when_outgrown",
        |lab| {
            let declared = || {
                lab.node
                    .exec(&["nft", "list", "map", "inet", "contiv", "backends4"])
            };
            // The kernel refuses what no longer fits.
            let mut renderer = PoisonIsolator::new(Nftables::new());
            let mut state = wide(&[1200]);
            resync(&lab.node, &mut renderer, &state)?;
            assert!(declared()?.contains("size 2400"));
            for (services, size, is_planned_anew) in [
                (wide(&[1200, 700]), "size 2400", false),
                (wide(&[1200, 700, 800]), "size 5400", true),
            ] {
                let changes = ChangeSet::between(&state, &services);
                state = services;
                let report = lab
                    .node
                    .run(|| renderer.update(&changes).map_err(unexpected))?;
                assert_eq!(report.rejected, []);
                assert_eq!(report.added > 2000, is_planned_anew, "{report:?}");
                assert!(declared()?.contains(size), "{size}");
                assert_eq!(verifier_elements(&lab.node)?, desired_elements(&state));
            }
            // A fresh table, by netlink and by nft.
            resync(&lab.node2, &mut Nftables::new(), &state)?;
            assert_same_listing(&lab.node, &lab.node2)?;
            lab.node2.exec(&["nft", "flush", "ruleset"])?;
            load_ruleset(&lab.node2, &dry_run::nft(&state))?;
            assert_same_listing(&lab.node, &lab.node2)?;
            let before = lab.node.exec(&["nft", "list", "ruleset"])?;
            let report = resync(&lab.node, &mut Nftables::new(), &state)?;
            assert!(report.added < 10, "{report:?}");
            assert_eq!(lab.node.exec(&["nft", "list", "ruleset"])?, before);
            Ok(())
        },
    )
}

#[test]
fn other_services_fit_although_those_of_before_go_last() -> Result<()> {
    isolated(
        "nftables_kernel::other_services_fit_although_those_of_before_go_last",
        |lab| {
            resync(&lab.node, &mut Nftables::new(), &wide(&[1200]))?;
            // Neither has more than the 2,400 slots that are declared, but both together do.
            let state = wide(&[1, 1900]);
            resync(&lab.node, &mut Nftables::new(), &state)?;
            assert_eq!(verifier_elements(&lab.node)?, desired_elements(&state));
            Ok(())
        },
    )
}

#[test]
fn prefetched_elements_count_unless_the_table_changed_since() -> Result<()> {
    isolated(
        "nftables_kernel::prefetched_elements_count_unless_the_table_changed_since",
        |lab| {
            let state = wide(&[1200, 3]);
            resync(&lab.node, &mut Nftables::new(), &state)?;
            let list = || lab.node.exec(&["nft", "list", "ruleset"]);
            let right = list()?;
            // A foreign change, and whether the repair is large.
            for (change, is_much) in [
                ("list tables", false),
                ("add table inet other; delete table inet other", false),
                ("flush map inet contiv backends4", true),
                ("add element inet contiv cluster-ips4 { 192.0.2.9 }", false),
                ("flush ruleset", true),
            ] {
                let mut renderer = Nftables::new();
                lab.node.run(|| {
                    renderer.prepare();
                    Ok(())
                })?;
                lab.node.exec(&["nft", change])?;
                let report = resync(&lab.node, &mut renderer, &state)?;
                assert_eq!(report.added > 1000, is_much, "{change}: {report:?}");
                assert_eq!(list()?, right, "{change}");
            }
            // And for a state other than the one in the kernel.
            let next = wide(&[1200, 2, 5]);
            let mut renderer = Nftables::new();
            lab.node.run(|| {
                renderer.prepare();
                Ok(())
            })?;
            let report = resync(&lab.node, &mut renderer, &next)?;
            assert!((5..30).contains(&report.added), "{report:?}");
            assert_eq!(verifier_elements(&lab.node)?, desired_elements(&next));
            Ok(())
        },
    )
}

#[test]
fn update_without_resync_or_after_failure_is_refused() -> Result<()> {
    isolated(
        "nftables_kernel::update_without_resync_or_after_failure_is_refused",
        |lab| {
            let (old, new) = (snapshot(3, 2), snapshot(3, 3));
            let changes = ChangeSet::between(&old, &new);
            let mut renderer = Nftables::new();
            lab.node.run(|| {
                assert!(renderer.update(&changes).is_err());
                renderer.resync(&old).map_err(unexpected)?;
                Ok(())
            })?;
            lab.node
                .exec(&["nft", "delete", "table", "inet", "contiv"])?;
            let refused = lab.node.run(|| Ok(renderer.update(&changes)))?;
            let message = refused.map_err(|error| error.to_string()).err();
            assert!(
                message
                    .as_ref()
                    .is_some_and(|message| message.contains("No such file")),
                "{message:?}"
            );
            assert!(
                lab.node.run(|| Ok(renderer.update(&changes)))?.is_err(),
                "what is in the kernel is not known"
            );
            resync(&lab.node, &mut renderer, &new)?;
            assert_eq!(read_elements(&lab.node)?, desired_elements(&new));
            Ok(())
        },
    )
}

#[test]
fn netlink_faults_never_cause_unreported_errors_in_the_kernel() -> Result<()> {
    isolated(
        "nftables_kernel::netlink_faults_never_cause_unreported_errors_in_the_kernel",
        |lab| {
            let (mut done, mut failed) = (0, 0);
            for seed in 1..=8 {
                let mut random = StdRng::seed_from_u64(seed);
                let switch = FaultSwitch::default();
                let mut renderer =
                    Nftables::on(NetlinkFaults::new(0.02, seed, switch.clone()).into_kernel());
                // The last known state of the kernel, if there is one.
                let mut state = None;
                for step in 0..25 {
                    if step == 24 {
                        switch.turn_off();
                    }
                    let next = snapshot(random.random_range(0..8), random.random_range(0..6));
                    let outcome = lab.node.run(|| {
                        Ok(match &state {
                            Some(state) => renderer.update(&ChangeSet::between(state, &next)),
                            None => renderer.resync(&next),
                        })
                    })?;
                    state = outcome.is_ok().then(|| next.clone());
                    if outcome.is_err() {
                        failed += 1;
                        continue;
                    }
                    done += 1;
                    let listed = without_unused_chains(read_elements(&lab.node)?);
                    assert_eq!(listed, desired_elements(&next), "seed {seed}, step {step}");
                    let found = lab
                        .node
                        .run(|| TableVerifier::new().verify(&next).map_err(unexpected))?;
                    assert!(
                        found.drift.is_empty(),
                        "seed {seed}, step {step}: {:#?}",
                        found.drift
                    );
                }
                assert!(
                    state.is_some(),
                    "seed {seed}: the last call cannot have failed"
                );
            }
            assert!(
                done > 20 && failed > 20,
                "{done} calls went through, {failed} failed"
            );
            Ok(())
        },
    )
}

/// Generates `services` different services with up to `backends` backends each: both families, three protocols, node ports,
/// policies, weights, services without backends.
fn snapshot(services: u16, backends: u16) -> Snapshot {
    let services = (1..=services).map(|number| service(number, backends));
    Snapshot {
        services: services
            .map(|service| (service.id.clone(), Arc::new(service)))
            .collect(),
        node: NodeFacts {
            node_ips: addresses(["172.31.0.1", "fd00:172:31::1", "127.0.0.1", "::1"]),
            pod_interfaces: ["cni0", "veth*"]
                .iter()
                .flat_map(|name| name.parse())
                .collect(),
            pod_cidrs: ["10.244.1.0/24", "10.244.9.0/24", "fd00:10:244:1::/64"]
                .iter()
                .flat_map(|range| range.parse())
                .collect(),
            ..NodeFacts::default()
        },
        ..Snapshot::default()
    }
}

/// A service for each element of `backends`, with that many backends.
fn wide(backends: &[u16]) -> Snapshot {
    let service = |(number, backends): (u8, &u16)| {
        let backend = |backend: u16| {
            let [high, low] = backend.to_be_bytes();
            Backend::new((IpAddr::from([10, number, high, low]), 8080).into())
        };
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: (0..*backends).map(backend).collect(),
        };
        let service = ContivService {
            cluster_ips: [IpAddr::from([10, 96, 0, number])].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", format!("wide-{number}")))
        };
        (service.id.clone(), Arc::new(service))
    };
    Snapshot {
        services: (1..).zip(backends).map(service).collect(),
        ..Snapshot::default()
    }
}

fn service(number: u16, backends: u16) -> ContivService {
    let [high, low] = number.to_be_bytes();
    let policy = |local| {
        if local {
            TrafficPolicy::Local
        } else {
            TrafficPolicy::Cluster
        }
    };
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp][usize::from(number % 3)];
    let mut external_ips = Addresses::from([IpAddr::from([203, 0, high, low]), v6(0x2001, number)]);
    let mut cluster_ips = Addresses::from([IpAddr::from([10, 96, high, low]), v6(0xfd00, number)]);
    // nft 1.0.6 cannot load sets that store IPv6 clients, which another test covers.
    let sticky = number == 3;
    // A thousand elements for each address, so few addresses are used to fit nft's batch into the small send buffer.
    let by_client = number == 4;
    if sticky || by_client {
        cluster_ips = cluster_ips
            .iter()
            .copied()
            .filter(IpAddr::is_ipv4)
            .collect();
    }
    if by_client {
        external_ips = Addresses::new();
    }
    ContivService {
        external_policy: policy(number.is_multiple_of(2)),
        internal_policy: policy(number.is_multiple_of(5)),
        cluster_ips,
        load_balancer_ips: external_ips.clone(),
        external_ips,
        session_affinity_timeout: if sticky { 10_800 } else { 0 },
        balance: if by_client {
            Balance::ClientAddress
        } else {
            Balance::Random
        },
        source_ranges: ["192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32"]
            .iter()
            .filter_map(|range| range.parse().ok().filter(|_| number == 2))
            .collect(),
        source_ranges_on_node_ports: true,
        ports: vec![ServicePort {
            port: 80,
            protocol,
            name: "main".into(),
            node_port: (number <= 2000 && !by_client).then_some(30_000 + number),
            // Every third service has fewer backends, so that several numbers of slots are used.
            backends: (0..backends.saturating_sub(number % 3))
                .flat_map(|backend| both_families(number, backend))
                .collect(),
        }],
        ..ContivService::new(ServiceId::new("default", format!("s{number}")))
    }
}

/// A service for each way to choose a backend and each external policy, on a node that uses every base chain.
fn every_kind_of_chain() -> Snapshot {
    let choices = [
        (0, Balance::Random),
        (600, Balance::Random),
        (0, Balance::ClientAddress),
    ];
    let policies = [
        (TrafficPolicy::Cluster, true),
        (TrafficPolicy::Local, true),
        (TrafficPolicy::Local, false),
    ];
    let kinds = choices
        .iter()
        .flat_map(|choice| policies.map(|policy| (*choice, policy)));
    let service = |(number, ((timeout, balance), (policy, is_local))): (u16, _)| {
        let mut service = service(5, 1);
        service.id = ServiceId::new("default", format!("kind-{number}"));
        let [high, low] = number.to_be_bytes();
        service.cluster_ips = [IpAddr::from([10, 96, high, low]), v6(0xfd00, number)].into();
        service.external_ips = [IpAddr::from([203, 0, high, low]), v6(0x2001, number)].into();
        service.load_balancer_ips = service.external_ips.clone();
        service.source_ranges = ["192.0.2.0/24".parse().ok()]
            .into_iter()
            .flatten()
            .collect();
        service.internal_policy = TrafficPolicy::Cluster;
        (service.external_policy, service.balance) = (policy, balance);
        service.session_affinity_timeout = timeout;
        let port = &mut service.ports[0];
        port.node_port = Some(30_000 + number);
        port.backends = both_families(number, 0)
            .map(|backend| Backend {
                local: is_local,
                ..backend
            })
            .into();
        (service.id.clone(), Arc::new(service))
    };
    let node = NodeFacts {
        node_ips: addresses(["192.168.0.1", "127.0.0.1", "fd00:a::1"]),
        non_masquerade_cidrs: Some(
            ["169.254.0.0/16", "fe80::/10"]
                .iter()
                .filter_map(|it| it.parse().ok())
                .collect(),
        ),
        service_interfaces: Some(
            ["lo", "eth*"]
                .iter()
                .filter_map(|it| it.parse().ok())
                .collect(),
        ),
        ..NodeFacts::default()
    };
    Snapshot {
        services: (1..).zip(kinds).map(service).collect(),
        node,
        ..Snapshot::default()
    }
}

fn both_families(service: u16, backend: u16) -> [Backend; 2] {
    let [high, low] = service.to_be_bytes();
    #[allow(clippy::cast_possible_truncation)]
    let addresses = [
        IpAddr::from([10, 128 + high, low, 1 + backend as u8]),
        v6(0xfd01, service * 16 + backend),
    ];
    addresses.map(|address| Backend {
        local: backend.is_multiple_of(2),
        weight: 1 + backend % 2,
        state: if backend < 5 {
            BackendState::Ready
        } else {
            BackendState::Terminating
        },
        ..Backend::new(SocketAddr::new(address, 8080))
    })
}

fn v6(prefix: u16, number: u16) -> IpAddr {
    IpAddr::from([prefix, 0, 0, 0, 0, 0, 0, number])
}

fn addresses<const N: usize>(texts: [&str; N]) -> BTreeSet<IpAddr> {
    texts.iter().flat_map(|text| text.parse()).collect()
}

fn resync(
    namespace: &Namespace,
    renderer: &mut dyn Renderer,
    snapshot: &Snapshot,
) -> Result<Report> {
    namespace.run(|| renderer.resync(snapshot).map_err(unexpected))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in for a closure in map_err"
)]
fn unexpected(error: impl ToString) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// The kernel lists elements of a hash in its own order, so lines are compared as sets.
fn assert_same_listing(ours: &Namespace, theirs: &Namespace) -> Result<()> {
    let ours = ours.exec(&["nft", "list", "ruleset"])?;
    let theirs = theirs.exec(&["nft", "list", "ruleset"])?;
    assert!(ours.contains("chain nat-prerouting"), "{ours}");
    let (ours, theirs) = (sorted(&ours), sorted(&theirs));
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these
            .iter()
            .filter(|line| !those.contains(line))
            .cloned()
            .collect()
    };
    assert_eq!(only(&ours, &theirs), only(&theirs, &ours));
    assert_eq!(ours, theirs);
    Ok(())
}

/// The sorted lines, without parts that depend on the position of an element.
fn sorted(listing: &str) -> Vec<String> {
    let line = |line: &str| {
        line.trim()
            .trim_start_matches("elements = { ")
            .trim_end_matches([',', '}', ' '])
            .to_owned()
    };
    let mut lines: Vec<String> = listing.lines().map(line).collect();
    lines.sort();
    lines
}

/// The rules of each chain, with its hook first.
fn chains(listing: &str) -> BTreeMap<String, Vec<String>> {
    let mut chains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut chain = None;
    for line in listing.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix("chain ")
            .and_then(|line| line.strip_suffix(" {"))
        {
            chain = Some(chains.entry(name.to_owned()).or_default());
        } else if line == "}" {
            chain = None;
        } else if let Some(rules) = &mut chain {
            rules.push(line.to_owned());
        }
    }
    chains
}

/// The table without some of its chains.
fn without_chains(text: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    let mut kept = String::new();
    let mut is_within = false;
    for line in text.split_inclusive('\n') {
        let name = line
            .trim()
            .strip_prefix("chain ")
            .and_then(|line| line.strip_suffix(" {"));
        is_within = is_within || name.is_some_and(&is_left_out);
        if is_within {
            is_within = line.trim() != "}";
        } else {
            kept.push_str(line);
        }
    }
    kept
}

/// Gives one element a counter that a new element would not have.
fn count_a_connection_by_hand(namespace: &Namespace) -> Result<()> {
    let script = "delete element inet contiv services4 { 10.96.0.1 . udp . 80 }\nadd element inet contiv services4 { \
                  10.96.0.1 . udp . 80 counter packets 7 bytes 700 : 0:3 }\n";
    namespace.exec_with_input(&["nft", "-f", "-"], script)?;
    Ok(())
}

/// The elements that the verifier reads: without `nft`, and by other code than the writer's.
fn verifier_elements(namespace: &Namespace) -> Result<Elements> {
    let read = namespace.run(|| TableVerifier::new().elements().map_err(unexpected))?;
    let mut elements = Elements::new();
    for (set, texts) in read.into_iter().flatten() {
        for text in texts {
            count(&mut elements, &set, text.replace('"', ""));
        }
    }
    Ok(elements)
}

fn desired_elements(snapshot: &Snapshot) -> Elements {
    let json = dry_run::json(snapshot);
    let sets = json["elements"].as_object().into_iter().flatten();
    let mut elements = Elements::new();
    for (set, texts) in sets {
        for text in texts
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(serde_json::Value::as_str)
        {
            // nft quotes names of interfaces, the crate does not.
            count(&mut elements, set, text.replace('"', ""));
        }
    }
    elements
}
