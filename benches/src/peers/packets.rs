//! The first packet of a flow: from the call that sends it until it arrives.
//!
//! One thread is both ends. Between two veth pairs the kernel forwards a packet within the call that sends it, so no scheduler
//! and no second processor is part of the measurement.

use std::{
    hint::black_box,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::lab::{Lab, LabError, Result};

use super::{
    kube_proxy::Service,
    size::{ALL_COMPLETE, BACKENDS, FIRST_PORT},
    table::Table,
};
use crate::{
    command::run,
    statistics::{Samples, timed},
    workload::PORT,
};

/// The number of rounds for a loaded table, and of flows in a turn. Large tables are loaded only once, and have longer turns, since
/// activating and deactivating them takes seconds.
const fn turns(services: usize) -> (usize, usize) {
    if services < ALL_COMPLETE {
        (6, 1030)
    } else {
        (12, 2030)
    }
}
/// At most this many turns of a load are repeated because something disturbed them.
const SPARE_TURNS: usize = 60;
/// The first flows of a turn, which are not measured: they resolve addresses and fill the caches.
const WARM_UP: usize = 30;
/// How long the kernel gets for deferred work when a table is activated or deactivated, such as freeing memory.
const SETTLE_TIME: Duration = Duration::from_millis(20);
/// More than the caches of a processor.
const BEYOND_CACHES: usize = 64 << 20;
/// Much longer than any packet takes.
const PACKET_TIMEOUT: Duration = Duration::from_secs(1);

/// The latencies of first packets: without any table, through one rule, and through each table.
pub(super) struct FirstPackets {
    pub(super) straight: Latencies,
    pub(super) fixed: Latencies,
    pub(super) through: [(Table, Latencies); 3],
    pub(super) disturbed: DisturbedTurns,
}

/// The numbers of turns that something disturbed.
#[derive(Debug, Default)]
pub(super) struct DisturbedTurns {
    pub(super) repeated: usize,
    /// Those that count although they were disturbed.
    pub(super) counting: usize,
    /// Those that may still be repeated in this load.
    spare: usize,
}

impl Default for FirstPackets {
    fn default() -> Self {
        Self {
            straight: Latencies::default(),
            fixed: Latencies::default(),
            through: Table::ALL.map(|table| (table, Latencies::default())),
            disturbed: DisturbedTurns::default(),
        }
    }
}

/// The latencies of each flow, of all loads.
#[derive(Debug)]
pub(super) struct Latencies {
    flows: Vec<Duration>,
    /// The lowest median time to open a socket, of all turns so far; see [`Turn::is_disturbed`].
    quickest_open: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            quickest_open: Duration::MAX,
        }
    }
}

impl Latencies {
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        self.flows
            .iter()
            .copied()
            .collect::<Samples>()
            .percentile(percent)
    }

    /// Adds those of a load, whose turns have the flows in the same order. The median of the turns counts for each flow: one or
    /// two flows in a hundred are interrupted by chance, and one that is slow for a reason is slow in each turn.
    fn add(&mut self, turns: &[Vec<Duration>]) {
        let flows = turns.iter().map(Vec::len).min().unwrap_or_default();
        let of_turns = |flow| {
            turns
                .iter()
                .map(|turn: &Vec<Duration>| turn[flow])
                .collect::<Samples>()
        };
        self.flows
            .extend((0..flows).map(|flow| of_turns(flow).median()));
    }
}

/// The flows that are sent through a table without a break.
struct Turn {
    latencies: Vec<Duration>,
    /// The median time to open the socket of a flow.
    open: Duration,
}

impl Turn {
    /// True if something else slowed the machine down. Then everything takes longer, also opening a socket, which does not pass the
    /// table. On a virtual machine everything takes a quarter longer for seconds, while its host works for others.
    fn is_disturbed(&self, quickest_open: Duration) -> bool {
        self.open.as_nanos() * 100 > quickest_open.as_nanos() * 105
    }
}

/// A client on one pod of the node, and the backends on the other.
pub(super) struct Packets<'lab> {
    lab: &'lab Lab,
    servers: Vec<UdpSocket>,
    /// Services that have all their backends.
    services: Vec<Ipv4Addr>,
    turns: (usize, usize),
}

impl<'lab> Packets<'lab> {
    pub(super) fn new(lab: &'lab Lab, services: &[Service]) -> Result<Self> {
        let bind = |number| {
            let socket = UdpSocket::bind((lab.pod2.host.v4, FIRST_PORT + number))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let servers = lab.pod2.run(|| {
            let servers = (0..BACKENDS).map(bind).collect::<io::Result<_>>();
            servers.map_err(|error| LabError::system("start the servers", error))
        })?;
        let turns = turns(services.len());
        let is_complete = |service: &&Service| service.endpoints.len() == usize::from(BACKENDS);
        let services = services
            .iter()
            .filter(is_complete)
            .map(|service| service.address)
            .collect();
        Ok(Self {
            lab,
            servers,
            services,
            turns,
        })
    }

    /// Sends new flows directly to a backend, and to services all over each table, the same in each turn. The tables take turns,
    /// so that a change of the machine's speed affects all of them.
    pub(super) fn send_first_packets(&self, first_packets: &mut FirstPackets) -> Result<()> {
        let FirstPackets {
            straight,
            fixed,
            through,
            disturbed,
        } = first_packets;
        let server = SocketAddrV4::new(self.lab.pod2.host.v4, FIRST_PORT);
        let service =
            |flow: usize| SocketAddrV4::new(self.services[flow * 7919 % self.services.len()], PORT);
        let mut ballast = vec![0_u8; BEYOND_CACHES];
        disturbed.spare = SPARE_TURNS;
        let (mut straight_turns, mut fixed_turns) = (Vec::new(), Vec::new());
        let mut through_turns = Table::ALL.map(|_| Vec::new());
        for round in 0..self.turns.0 {
            straight_turns.push(self.turn(&|_| server, &mut ballast, straight, disturbed)?);
            self.lab.node.run(|| Table::Fixed.activate())?;
            fixed_turns.push(self.turn(&service, &mut ballast, fixed, disturbed)?);
            self.lab.node.run(|| Table::Fixed.deactivate())?;
            for number in order(round) {
                let (table, latencies) = &mut through[number];
                self.lab.node.run(|| table.activate())?;
                let turn = self.turn(&service, &mut ballast, latencies, disturbed)?;
                through_turns[number].push(turn);
                self.lab.node.run(|| table.deactivate())?;
            }
        }
        straight.add(&straight_turns);
        fixed.add(&fixed_turns);
        for ((_, latencies), turns) in through.iter_mut().zip(&through_turns) {
            latencies.add(turns);
        }
        Ok(())
    }

    /// The latencies of a turn. One that was disturbed is repeated, as long as there are spare turns.
    fn turn(
        &self,
        target: &(impl Fn(usize) -> SocketAddrV4 + Send + Sync),
        ballast: &mut [u8],
        latencies: &mut Latencies,
        disturbed: &mut DisturbedTurns,
    ) -> Result<Vec<Duration>> {
        loop {
            thread::sleep(SETTLE_TIME);
            empty_caches(ballast);
            let turn = self.flows(target)?;
            latencies.quickest_open = turn.open.min(latencies.quickest_open);
            if !turn.is_disturbed(latencies.quickest_open) {
                return Ok(turn.latencies);
            }
            if disturbed.spare == 0 {
                disturbed.counting += 1;
                return Ok(turn.latencies);
            }
            disturbed.spare -= 1;
            disturbed.repeated += 1;
        }
    }

    fn flows(&self, target: &(impl Fn(usize) -> SocketAddrV4 + Send + Sync)) -> Result<Turn> {
        self.lab
            .node
            .run(|| run(&["conntrack", "--flush"]).map(drop))?;
        let failed = |error| LabError::system("send a packet", error);
        // Sockets made here belong to the pod; those of the servers to theirs.
        let flows = self.lab.pod1.run(|| {
            let latency = |flow| self.flow(target(flow)).map_err(failed);
            (0..self.turns.1).map(latency).collect::<Result<Vec<_>>>()
        })?;
        let (opens, latencies): (Vec<_>, _) = flows.into_iter().skip(WARM_UP).unzip();
        Ok(Turn {
            latencies,
            open: opens.into_iter().collect::<Samples>().median(),
        })
    }

    /// Opens a socket and sends the packet of a new flow; returns the time for the one and for the other.
    fn flow(&self, target: SocketAddrV4) -> io::Result<(Duration, Duration)> {
        let mut buffer = [0; 16];
        let (open, client) = timed(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let client = client?;
        let start = Instant::now();
        client.send_to(b"who?", target)?;
        while start.elapsed() < PACKET_TIMEOUT {
            for server in &self.servers {
                match server.recv(&mut buffer) {
                    Ok(_) => return Ok((open, start.elapsed())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

/// The order of the tables in a round. Six rounds have all orders, since a table leaves deferred work to the one after it.
fn order(round: usize) -> [usize; 3] {
    [0, 1, 2].map(|place| (round + place * (1 + round % 2)) % Table::ALL.len())
}

/// To activate a table the kernel goes through the chains of all tables, which would fill the caches with those of the peers,
/// who have many, and evict those of the other layout. First packets of a real node find neither.
fn empty_caches(ballast: &mut [u8]) {
    const LINE: usize = 64;
    for byte in ballast.iter_mut().step_by(LINE) {
        *byte = byte.wrapping_add(1);
    }
    black_box(ballast);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn interrupted_flow_is_excused_and_a_slow_one_counts() {
        let turn = |micros: [u64; 3]| micros.map(Duration::from_micros).to_vec();
        let mut latencies = Latencies::default();
        latencies.add(&[turn([10, 900, 50]), turn([11, 12, 52]), turn([900, 10, 51])]);
        assert_eq!(
            [1, 50, 99].map(|percent| latencies.percentile(percent).as_micros()),
            [11, 12, 51]
        );
    }

    #[test]
    fn six_rounds_have_all_orders_of_the_tables() {
        let orders: BTreeSet<_> = (0..6).map(order).collect();
        assert_eq!(orders.len(), 6);
        assert!(
            orders
                .iter()
                .all(|order| BTreeSet::from(*order) == BTreeSet::from([0, 1, 2]))
        );
    }

    #[test]
    fn turn_is_disturbed_if_sockets_open_more_slowly() {
        let quickest = Duration::from_nanos(3200);
        let is_disturbed = |open| {
            Turn {
                latencies: vec![],
                open: Duration::from_nanos(open),
            }
            .is_disturbed(quickest)
        };
        assert_eq!(
            [3200, 3360, 3361, 4000].map(is_disturbed),
            [false, false, true, true]
        );
    }
}
