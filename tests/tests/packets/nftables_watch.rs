//! The events of the nftables renderer's watch, without an agent.

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_model::{Backend, ContivService, Protocol, ServiceId, ServicePort, Snapshot};
use contiv_renderer::{Renderer, Watch, nftables::Nftables};
use contiv_tests::lab::{LabError, Namespace, Result, isolated};

/// The time limit for expected events. Generous, so that a busy machine fails no test.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Enough services for a large transaction.
fn many() -> Snapshot {
    let service = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port: None,
            backends: vec![Backend::new(
                (IpAddr::from([10, 128, high, low]), 8080).into(),
            )],
        };
        ContivService {
            cluster_ips: [IpAddr::from([10, 96, high, low])].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", format!("s{number}")))
        }
    };
    let services: BTreeMap<_, _> = (0..2000)
        .map(service)
        .map(|service| (service.id.clone(), Arc::new(service)))
        .collect();
    Snapshot {
        services,
        ..Snapshot::default()
    }
}

fn failed(error: impl Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// Runs `work` with a renderer whose watch is running, and with the events of the watch. The watch must end with the renderer.
fn watching(
    node: &Namespace,
    work: impl FnOnce(&mut Nftables, &mpsc::Receiver<String>) -> Result<()> + Send,
) -> Result<()> {
    node.run(|| {
        let mut renderer = Nftables::new();
        let watch: Option<Box<dyn Watch>> = renderer.watch().map_err(failed)?;
        let mut watch = watch.unwrap_or_else(|| panic!("foreign changes can be watched"));
        let (sender, changes) = mpsc::channel();
        let listen = thread::spawn(move || {
            while let Some(change) = watch.next().map_err(failed)? {
                let _ = sender.send(change.to_string());
            }
            Ok::<_, LabError>(())
        });
        let outcome = work(&mut renderer, &changes);
        drop(renderer);
        listen
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
        outcome
    })
}

#[test]
fn own_transactions_are_ignored_and_foreign_ones_seen() -> Result<()> {
    isolated(
        "nftables_watch::own_transactions_are_ignored_and_foreign_ones_seen",
        |lab| {
            watching(&lab.node, |renderer, changes| {
                for snapshot in [Snapshot::default(), many(), Snapshot::default()] {
                    renderer.resync(&snapshot).map_err(failed)?;
                }
                lab.node.exec(&[
                    "nft",
                    "add",
                    "element",
                    "inet",
                    "contiv",
                    "cluster-ips6",
                    "{ fd00::7 }",
                ])?;
                let first = changes
                    .recv_timeout(EVENT_TIMEOUT)
                    .unwrap_or_else(|error| panic!("{error}"));
                assert!(first.starts_with("nft (pid "), "{first}");
                assert!(
                    first.ends_with("added 1 element to cluster-ips6 (fd00::7)"),
                    "{first}"
                );
                Ok(())
            })
        },
    )
}

#[test]
fn foreign_change_during_a_large_transaction_is_not_missed() -> Result<()> {
    isolated(
        "nftables_watch::foreign_change_during_a_large_transaction_is_not_missed",
        |lab| {
            let over = AtomicBool::new(false);
            let change_a_table = || {
                while !over.load(Ordering::Relaxed) {
                    lab.node
                        .exec(&["nft", "add table ip neighbour; delete table ip neighbour"])?;
                }
                Ok(())
            };
            thread::scope(|scope| {
                let neighbour = scope.spawn(change_a_table);
                let outcome = watching(&lab.node, |renderer, changes| {
                    let start = Instant::now();
                    for snapshot in [many(), Snapshot::default()].iter().cycle() {
                        renderer.resync(snapshot).map_err(failed)?;
                        // Not a panic, after which the other thread would never end.
                        match changes.recv_timeout(Duration::from_millis(1)) {
                            Ok(what)
                                if what.contains("while a large transaction was committed") =>
                            {
                                break;
                            }
                            Err(RecvTimeoutError::Timeout) if start.elapsed() < EVENT_TIMEOUT => {}
                            other => return Err(LabError::Unexpected(format!("{other:?}"))),
                        }
                    }
                    Ok(())
                });
                over.store(true, Ordering::Relaxed);
                neighbour
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
                outcome
            })
        },
    )
}
