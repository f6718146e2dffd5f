//! The table of failover, without an agent: attempts at a backend that fails reach another one, and the kernel says which it was.

use std::{collections::BTreeSet, net::SocketAddr, thread, time::Duration};

use contiv_model::Protocol as ModelProtocol;
use contiv_renderer::nftables::{BackendAttempts, FailoverTable, Refusals};
use contiv_tests::lab::{Family, Lab, Result, isolated, wait_until};

use super::{Fault, assert_answered, outcomes};
use crate::gateway::{Gateway, PORT, address, service, unexpected};

/// An attempt that is not answered within this time is forgotten.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Watches backends.
fn watch(
    lab: &Lab,
    table: &mut FailoverTable,
    changes: impl IntoIterator<Item = (SocketAddr, Option<bool>)> + Send,
) -> Result<()> {
    lab.node.run(|| table.watch(changes).map_err(unexpected))
}

fn counted(attempts: &[BackendAttempts], backend: SocketAddr) -> (u64, u64) {
    let of_backend = attempts.iter().find(|one| one.backend == backend);
    of_backend.map_or((0, 0), |one| (one.tried, one.answered))
}

#[test]
fn attempts_at_failing_backend_reach_the_other_one() -> Result<()> {
    isolated(
        "failover::table::attempts_at_failing_backend_reach_the_other_one",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            // Nearly all choose the failing one first, and later the other one.
            let weighed = |of_failing: u16, of_healthy: u16| {
                let mut web = service("web", 1, ModelProtocol::Tcp, &[&lab.pod2, &lab.pod3]);
                for backend in web.ports.iter_mut().flat_map(|port| &mut port.backends) {
                    let is_failing = Family::BOTH
                        .map(|family| lab.pod2.host.address(family))
                        .contains(&backend.address);
                    backend.weight = if is_failing { of_failing } else { of_healthy };
                }
                web
            };
            let mut refusals = lab.node.run(|| Refusals::listen().map_err(unexpected))?;
            for fault in [Fault::Refuses, Fault::Unreachable, Fault::Silent] {
                fault.begin(&lab.pod2, PORT)?;
                for family in Family::BOTH {
                    let of = format!("{fault:?}, {family:?}");
                    let [failing, healthy] =
                        [&lab.pod2, &lab.pod3].map(|pod| pod.host.socket(family, PORT));
                    let mut table = FailoverTable::new(ANSWER_WITHIN);
                    watch(
                        lab,
                        &mut table,
                        [failing, healthy].map(|it| (it, Some(true))),
                    )?;
                    assert!(table.forgets_attempts());
                    gateway.program(&[&weighed(255, 1)])?;
                    let found = thread::scope(|scope| {
                        let clients = scope.spawn(|| outcomes(&lab.pod1, address(1, family), 16));
                        thread::sleep(Duration::from_millis(700));
                        gateway.program(&[&weighed(1, 255)])?;
                        clients
                            .join()
                            .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
                    })?;
                    let names = assert_answered(found, &of)?;
                    assert!(names.iter().all(|name| name == "pod3"), "{of}: {names:?}");
                    let attempts = lab.node.run(|| table.read().map_err(unexpected))?;
                    let (tried, answered) = counted(&attempts, failing);
                    assert!(tried > 0 && answered == 0, "{of}: {attempts:?}");
                    let (tried, answered) = counted(&attempts, healthy);
                    assert!((16..=tried).contains(&answered), "{of}: {attempts:?}");
                    if fault != Fault::Silent {
                        // Errors of the other family may come first: each is logged.
                        while refusals.wait().map_err(unexpected)? != [failing] {}
                    }
                    // With the last backend the table is gone.
                    watch(lab, &mut table, [failing, healthy].map(|it| (it, None)))?;
                    let tables = lab.node.exec(&["nft", "list", "tables"])?;
                    assert!(!tables.contains("failover"), "{tables}");
                }
                fault.end(&lab.pod2)?;
            }
            Ok(())
        },
    )
}

#[test]
fn without_second_chance_refusals_reach_the_client_at_once() -> Result<()> {
    isolated(
        "failover::table::without_second_chance_refusals_reach_the_client_at_once",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            gateway.program(&[&service("web", 1, ModelProtocol::Tcp, &[&lab.pod2])])?;
            let mut refusals = lab.node.run(|| Refusals::listen().map_err(unexpected))?;
            let mut table = FailoverTable::new(ANSWER_WITHIN);
            Fault::Refuses.begin(&lab.pod2, PORT)?;
            for family in Family::BOTH {
                let backend = lab.pod2.host.socket(family, PORT);
                watch(lab, &mut table, [(backend, Some(false))])?;
                for outcome in outcomes(&lab.pod1, address(1, family), 4)? {
                    let after = outcome.refusal()?;
                    assert!(after < Duration::from_millis(900), "{after:?}");
                }
                // Each is logged once a second.
                let named = refusals.wait().map_err(unexpected)?;
                assert_eq!(named, [backend]);
            }
            Ok(())
        },
    )
}

#[test]
fn nft_lists_the_table_of_failover() -> Result<()> {
    isolated("failover::table::nft_lists_the_table_of_failover", |lab| {
        let mut table = FailoverTable::new(Duration::from_millis(1500));
        let backends: BTreeSet<SocketAddr> = ["10.1.0.2:80", "10.1.0.2:81", "[fd01::2]:80"]
            .iter()
            .filter_map(|backend| backend.parse().ok())
            .collect();
        watch(lab, &mut table, backends.iter().map(|it| (*it, Some(true))))?;
        let list = || {
            lab.node
                .exec(&["nft", "list", "table", "inet", "contiv-failover"])
        };
        let listing = list()?;
        for line in [
            "elements = { 10.1.0.2 . 80,",
            "elements = { fd01::2 . 80 }",
            "protocol tcp",
            "policy = { syn_sent : 2",
            "type nat hook postrouting priority srcnat - 10; policy accept;",
            "ct status dnat goto attempts-v4",
            "ip daddr . th dport @watched4 update @tried4 { ip daddr . th dport }",
            "ip6 daddr . th dport @second-chance6 ct timeout set \"attempt6\"",
            "meta l4proto tcp goto answers",
            "tcp flags ! syn,rst accept",
            "ip saddr . tcp sport @watched4 update @answered4 { ip saddr . tcp sport }",
            "ct direction reply ip saddr . tcp sport @watched4 jump refused-v4",
            "ip saddr . th sport != @refused4 log group 49223 snaplen 128 queue-threshold 1",
            "ip6 saddr . th sport @second-chance6 drop",
            "@watched-errors4 limit rate 1000/second",
            "ct protocol tcp @th,256,128 . @th,400,16 @second-chance-errors6 drop",
        ] {
            assert!(listing.contains(line), "no {line:?} in:\n{listing}");
        }
        // What nft lists nft can load, except that nobody else is its owner.
        let loaded = listing.replace("flags owner", "");
        lab.pod1.exec_with_input(&["nft", "-f", "-"], &loaded)?;

        let one: SocketAddr = "10.1.0.2:80".parse().map_err(unexpected)?;
        watch(lab, &mut table, [(one, Some(false))])?;
        let listing = list()?;
        assert!(
            listing.contains("elements = { 10.1.0.2 . 81 }"),
            "{listing}"
        );
        // The kernel removes it with its owner.
        drop(table);
        wait_until("the table is gone", Duration::from_secs(10), || {
            list().is_err()
        })?;
        Ok(())
    })
}
