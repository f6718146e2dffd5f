//! The cost of reading ten thousand services back, and its effect on changes.
//!
//! `cargo test --release -p contiv-tests --test packets verify_cost -- --nocapture` prints the figures of an optimised build.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_model::{Backend, ChangeSet, ContivService, Protocol, ServiceId, ServicePort, Snapshot};
use contiv_renderer::{
    Renderer, Verifier,
    nftables::{Nftables, TableVerifier},
};
use contiv_tests::lab::{LabError, Result, isolated};

const SERVICES: u32 = 10_000;
const BACKENDS: u32 = 4;
const CHANGES: u32 = 200;

/// Service `i`, whose backends differ from `generation` to `generation`.
fn service(i: u32, generation: u32) -> (ServiceId, Arc<ContivService>) {
    let address =
        |first: [u8; 4], number: u32| Ipv4Addr::from_bits(Ipv4Addr::from(first).to_bits() + number);
    let mut service = ContivService::new(ServiceId::new("default", format!("s{i}")));
    service.cluster_ips = [address([10, 97, 0, 0], i).into()].into();
    let number = |n| i * 8 + (n + generation) % 8;
    let backend = |n| {
        Backend::new(SocketAddr::from((
            address([10, 128, 0, 0], number(n)),
            8080,
        )))
    };
    let mut backends: Vec<Backend> = (0..BACKENDS).map(backend).collect();
    backends.sort();
    let (port, protocol) = (80, Protocol::Tcp);
    service.ports = vec![ServicePort {
        port,
        protocol,
        name: "".into(),
        node_port: None,
        backends,
    }];
    (service.id.clone(), Arc::new(service))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in for a closure in map_err"
)]
fn unexpected(error: impl ToString) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// The median and the maximum of some changes, each of one service.
fn changes(
    renderer: &mut Nftables,
    state: &mut Snapshot,
    generation: u32,
) -> Result<[Duration; 2]> {
    let mut durations = Vec::new();
    for i in 0..CHANGES {
        let mut next = state.clone();
        next.services.extend([service(i * 7, generation)]);
        let changes = ChangeSet::between(state, &next);
        *state = next;
        let start = Instant::now();
        renderer.update(&changes).map_err(unexpected)?;
        durations.push(start.elapsed());
    }
    durations.sort();
    Ok([
        durations[durations.len() / 2],
        durations[durations.len() - 1],
    ])
}

#[test]
fn ten_thousand_services_are_verified_during_changes() -> Result<()> {
    isolated(
        "verify_cost::ten_thousand_services_are_verified_during_changes",
        |lab| {
            let mut state = Snapshot {
                services: (0..SERVICES).map(|i| service(i, 0)).collect(),
                ..Snapshot::default()
            };
            lab.node.run(|| {
            let mut renderer = Nftables::new();
            renderer.resync(&state).map_err(unexpected)?;
            let start = Instant::now();
            let verification = TableVerifier::new().verify(&state).map_err(unexpected)?;
            println!("{} elements and rules compared in {:?}", verification.checked, start.elapsed());
            assert!(verification.drift.is_empty(), "{:#?}", verification.drift);
            assert!(verification.checked > 50_000, "{}", verification.checked);
            let [median, worst] = changes(&mut renderer, &mut state, 1)?;
            println!("one service changed, alone: median {median:?}, worst {worst:?}");
            let stop = AtomicBool::new(false);
            let seen = state.clone();
            thread::scope(|scope| {
                let verifications = scope.spawn(|| {
                    let mut verifier = TableVerifier::new();
                    let mut verifications = 0;
                    while !stop.load(Ordering::Relaxed) {
                        verifier.verify(&seen).map_err(|error| error.to_string())?;
                        verifications += 1;
                    }
                    Ok::<u32, String>(verifications)
                });
                let result = changes(&mut renderer, &mut state, 2);
                stop.store(true, Ordering::Relaxed);
                let verifications = verifications
                    .join()
                    .map_err(|_| unexpected("the verifier panicked"))?
                    .map_err(unexpected)?;
                let [median, worst] = result?;
                println!("while it was read back {verifications} times: median {median:?}, worst {worst:?}");
                assert!(verifications > 0, "it was not read back meanwhile");
                Ok(())
            })
        })
        },
    )
}
