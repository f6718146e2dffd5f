//! How new connections spread over the backends of a service: the renderer's table in the modelled kernel, which executes its
//! rules for each connection, with random numbers from a seed and the kernel's own hash.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Backend, Balance, ChangeSet, ContivService, Protocol, ServiceId, ServicePort, Snapshot,
};
use contiv_renderer::{
    Renderer,
    nftables::{Nftables, TableVerifier},
};
use contiv_sim::kernel::{Fate, ModelKernel, NewConnection};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

const DESTINATION: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1)), 80);
const MAX_BACKENDS: u8 = 64;
/// All connections of a test: half of them while the service grows from one backend to all, half while it shrinks again.
const CONNECTIONS: u32 = 1_000_000;
const CONNECTIONS_OF_STEP: u32 = CONNECTIONS / (2 * MAX_BACKENDS as u32);

/// Backends by number, with their weights.
type Weights = BTreeMap<u8, u16>;

/// Connections or slots of each backend, by number.
type Counts = BTreeMap<u8, u32>;

fn snapshot(weights: &Weights, balance: Balance) -> Snapshot {
    let backend = |(number, weight): (&u8, &u16)| Backend {
        weight: *weight,
        ..Backend::new((IpAddr::from([10, 244, 0, *number]), 8080).into())
    };
    let port = ServicePort {
        port: DESTINATION.port(),
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends: weights.iter().map(backend).collect(),
    };
    let mut service = ContivService::new(ServiceId::new("default", "web"));
    service.cluster_ips = [DESTINATION.ip()].into();
    service.balance = balance;
    service.ports = vec![port];
    Snapshot {
        services: [(service.id.clone(), Arc::new(service))].into(),
        ..Snapshot::default()
    }
}

/// A service that grows and shrinks, in the modelled kernel.
struct Service {
    kernel: ModelKernel,
    renderer: Nftables,
    balance: Balance,
    weights: Weights,
}

impl Service {
    fn new(balance: Balance) -> Self {
        let kernel = ModelKernel::new();
        let mut renderer = Nftables::on(kernel.shared());
        let weights = Weights::new();
        renderer.resync(&snapshot(&weights, balance)).unwrap();
        Self {
            kernel,
            renderer,
            balance,
            weights,
        }
    }

    fn scale(&mut self, change: impl FnOnce(&mut Weights)) {
        let before = snapshot(&self.weights, self.balance);
        change(&mut self.weights);
        let after = snapshot(&self.weights, self.balance);
        self.renderer
            .update(&ChangeSet::between(&before, &after))
            .unwrap();
    }

    /// The backend that a connection of this client reaches.
    fn backend(&self, client: Ipv4Addr, draw: &mut dyn FnMut(u32) -> u32) -> u8 {
        let connection = NewConnection {
            protocol: Protocol::Tcp.number(),
            client: SocketAddr::new(client.into(), 40_000),
            destination: DESTINATION,
            interface: Some("eth0".to_owned()),
        };
        match self.kernel.evaluate(&connection, draw) {
            Fate::Delivered {
                server: SocketAddr::V4(server),
                ..
            } => server.ip().octets()[3],
            other => panic!("{other:?}"),
        }
    }

    /// The backend of each slot.
    fn slots(&self) -> Vec<u8> {
        let elements = TableVerifier::on(self.kernel.shared())
            .elements()
            .unwrap()
            .unwrap();
        let slot = |text: &String| {
            let (key, backend) = text.split_once(" : ").unwrap();
            let backend: Ipv4Addr = backend.split_once(" . ").unwrap().0.parse().unwrap();
            let slot: u32 = key.rsplit_once(" . ").unwrap().1.parse().unwrap();
            (slot, backend.octets()[3])
        };
        let slots: BTreeMap<u32, u8> = elements["backends4"].iter().map(slot).collect();
        assert!(
            slots.keys().copied().eq((0..).take(slots.len())),
            "{slots:?}"
        );
        slots.into_values().collect()
    }
}

fn count(backends: impl IntoIterator<Item = u8>) -> Counts {
    let mut counts = Counts::new();
    for backend in backends {
        *counts.entry(backend).or_default() += 1;
    }
    counts
}

/// Pearson's chi-square of what was counted, against shares; and its degrees of freedom.
fn chi_square(counts: &Counts, shares: &Counts) -> (f64, f64) {
    assert!(
        counts.keys().all(|backend| shares.contains_key(backend)),
        "{counts:?}"
    );
    let [all, total] = [counts, shares].map(|counts| f64::from(counts.values().sum::<u32>()));
    let of_backend = |(backend, share): (&u8, &u32)| {
        let expected = all * f64::from(*share) / total;
        let counted = counts.get(backend).copied().unwrap_or_default();
        (f64::from(counted) - expected).powi(2) / expected
    };
    #[expect(clippy::cast_precision_loss, reason = "64 backends")]
    let freedom = (shares.len() - 1) as f64;
    (shares.iter().map(of_backend).sum(), freedom)
}

/// The chi-square that is exceeded by chance once in about three million times: five standard deviations, by Wilson and Hilferty.
fn highest_chi_square(freedom: f64) -> f64 {
    if freedom == 0.0 {
        return 0.0;
    }
    let ninth = 2.0 / (9.0 * freedom);
    freedom * (1.0 - ninth + 5.0 * ninth.sqrt()).powi(3)
}

/// A change of a service by one backend.
#[derive(Debug, Clone, Copy)]
enum Step {
    Added(u8),
    Removed(u8),
}

/// Grows a service from one backend to all, and shrinks it again, each time by a backend of a weight from 1 to 4. `check` sees
/// it after each step, and the slots before.
fn grow_and_shrink(balance: Balance, mut check: impl FnMut(&Service, &[u8], Step, &mut StdRng)) {
    let mut random = StdRng::seed_from_u64(64);
    let mut service = Service::new(balance);
    let mut order: Vec<u8> = (1..=MAX_BACKENDS).collect();
    order.shuffle(&mut random);
    let mut before = Vec::new();
    for backend in &order {
        let weight = random.random_range(1..=4);
        service.scale(|weights| {
            weights.insert(*backend, weight);
        });
        check(&service, &before, Step::Added(*backend), &mut random);
        before = service.slots();
    }
    order.shuffle(&mut random);
    for backend in order.iter().skip(1) {
        service.scale(|weights| {
            weights.remove(backend);
        });
        check(&service, &before, Step::Removed(*backend), &mut random);
        before = service.slots();
    }
}

#[test]
fn random_choice_is_by_weight_at_every_size() {
    let mut connections = 0;
    grow_and_shrink(Balance::Random, |service, before, step, random| {
        let slots = service.slots();
        let shares = count(slots.iter().copied());
        let weights: Counts = service
            .weights
            .iter()
            .map(|(one, weight)| (*one, u32::from(*weight)))
            .collect();
        // Weights that have a common divisor need fewer slots.
        let [of_shares, of_weights] =
            [&shares, &weights].map(|counts| counts.values().sum::<u32>());
        let by_weight = |(one, share): (&u8, &u32)| share * of_weights == weights[one] * of_shares;
        assert!(
            shares.keys().eq(weights.keys()) && shares.iter().all(by_weight),
            "{shares:?} {weights:?}"
        );
        if let Step::Removed(gone) = step
            && of_shares < u32::try_from(before.len()).unwrap()
        {
            let own = usize::try_from(count(before.iter().copied())[&gone]).unwrap();
            let moved = slots
                .iter()
                .zip(before)
                .filter(|(new, old)| new != old)
                .count();
            assert!(
                moved <= own,
                "{moved} slots moved for {own} of backend {gone}"
            );
        }
        let client = Ipv4Addr::new(198, 51, 100, 7);
        let drawn = (0..CONNECTIONS_OF_STEP)
            .map(|_| service.backend(client, &mut |modulus| random.random_range(0..modulus)));
        let counts = count(drawn);
        connections += counts.values().sum::<u32>();
        let (found, freedom) = chi_square(&counts, &weights);
        assert!(
            found <= highest_chi_square(freedom),
            "{found} of {freedom}: {counts:?} for {weights:?}"
        );
    });
    assert!(
        connections > CONNECTIONS - 2 * CONNECTIONS_OF_STEP,
        "{connections}"
    );
}

/// The shares of slots are those of rendezvous hashing: right on average only. Within them clients spread evenly.
#[test]
fn removed_backend_moves_only_its_own_clients() {
    let mut connections = 0;
    let mut known: BTreeMap<Ipv4Addr, u8> = BTreeMap::new();
    grow_and_shrink(Balance::ClientAddress, |service, _, step, random| {
        if known.is_empty() {
            let client = |_| {
                (
                    Ipv4Addr::from_bits(random.random_range(0x0b00_0000..0xdf00_0000)),
                    0,
                )
            };
            known = (0..CONNECTIONS_OF_STEP).map(client).collect();
        }
        let mut counts = Counts::new();
        for (client, known) in &mut known {
            let backend = service.backend(*client, &mut |_| unreachable!("nothing is drawn"));
            let may_move = match step {
                Step::Added(new) => backend == new,
                Step::Removed(gone) => *known == gone,
            };
            assert!(
                backend == *known || may_move,
                "{client} moves from {known} to {backend}: {step:?}"
            );
            *known = backend;
            *counts.entry(backend).or_default() += 1;
            connections += 1;
        }
        let (found, freedom) = chi_square(&counts, &count(service.slots()));
        assert!(
            found <= highest_chi_square(freedom),
            "{found} of {freedom}: {counts:?}"
        );
    });
    assert!(
        connections > CONNECTIONS - 2 * CONNECTIONS_OF_STEP,
        "{connections}"
    );
}
