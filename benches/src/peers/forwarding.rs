//! What a table costs the packets of connections that the node forwards, through a service and beside one: established ones, and the
//! handshake.
//!
//! One thread is both ends, as for first packets: the kernel forwards a packet within the call that sends it.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use contiv_model::Protocol;
use contiv_renderer::{RenderError, nftables::FailoverTable};
use contiv_tests::lab::{Lab, LabError, Result};
use socket2::SockRef;

use super::{
    all_services,
    kube_proxy::{Layout, Port, Service},
    load, load_contiv, load_fixed,
    size::FIRST_PORT,
};
use crate::{
    command::run,
    figures::{Figure, Limit, Quantity},
    statistics::{Samples, timed},
    workload::PORT,
};

/// The section of these figures in the table.
pub const SECTION: &str = "forwarding";
const SERVICES: usize = 100;
/// Rounds, in each of which all tables have a turn, and round trips and packets of a turn.
const ROUNDS: usize = 60;
const ROUND_TRIPS: usize = 2000;
const BATCHES: usize = 150;
const HANDSHAKES: usize = 200;
/// Packets that are sent before they are received: fewer than a socket's buffer holds.
const BATCH: usize = 32;
/// Bytes of a small packet.
const PAYLOAD: [u8; 64] = [0; 64];
/// Of the samples of a turn this percentile counts: those that nothing disturbed.
const PERCENT: usize = 10;

/// What is in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rules {
    Nothing,
    /// A rule that no packet passes, so that connections are tracked.
    Conntrack,
    /// The same, and chains of type nat without a rule: the kernel's own part of translating.
    Nat,
    /// One rule that translates the addresses of all services to one backend.
    FixedDnat,
    KubeProxy,
    Contiv,
    /// The same, and failover for all services.
    Failover,
}

/// Where packets are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// To a pod, past all services.
    Direct,
    Service,
}

impl Rules {
    const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Conntrack,
        Self::Nat,
        Self::FixedDnat,
        Self::KubeProxy,
        Self::Contiv,
        Self::Failover,
    ];

    /// Loads them in place of all others. What is returned ends with the table of failover.
    fn load(
        self,
        client: Ipv4Addr,
        services: &[Service],
        protocol: Protocol,
    ) -> Result<Option<FailoverTable>> {
        run(&["nft", "flush", "ruleset"])?;
        // Connections that were translated before have the ports of those that are not.
        run(&["conntrack", "-F"])?;
        let port = Port {
            protocol: name(protocol),
            port: PORT,
        };
        match self {
            Self::Nothing => {}
            Self::Conntrack => {
                load("table ip track { chain unused { ct state new accept; }; }")?;
            }
            Self::Nat => {
                load(
                    "table inet nat { chain unused { ct state new accept; }; \
                     chain pre { type nat hook prerouting priority -100; }; \
                     chain post { type nat hook postrouting priority 100; }; }",
                )?;
            }
            Self::FixedDnat => load_fixed(services, port)?,
            Self::KubeProxy => {
                for text in Layout::From136.everything(port, services) {
                    load(&text)?;
                }
            }
            Self::Contiv => drop(load_contiv(client, services, protocol, 0)?),
            Self::Failover => {
                load_contiv(client, services, protocol, 0)?;
                let mut table = FailoverTable::new(Duration::from_secs(1));
                let backends = services.iter().flat_map(|service| &service.endpoints);
                let watched = backends.map(|backend| ((*backend).into(), Some(true)));
                let failed = |error: RenderError| LabError::Unexpected(error.to_string());
                table.watch(watched).map_err(failed)?;
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// What its packets are compared with.
    const fn floors(self, target: Target) -> &'static [Self] {
        match (self, target) {
            (Self::Nothing | Self::Conntrack | Self::FixedDnat, _) => &[],
            (Self::Nat, _) => &[Self::Conntrack],
            (Self::Failover, _) => &[Self::Contiv],
            (_, Target::Direct) => &[Self::Conntrack, Self::Nat],
            (_, Target::Service) => &[Self::FixedDnat],
        }
    }

    const fn translates(self) -> bool {
        matches!(
            self,
            Self::FixedDnat | Self::KubeProxy | Self::Contiv | Self::Failover
        )
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "no rules",
            Self::Conntrack => "conntrack alone",
            Self::Nat => "empty nat chains",
            Self::FixedDnat => "one dnat rule",
            Self::KubeProxy => Layout::From136.name(),
            Self::Contiv => "contiv",
            Self::Failover => "contiv with failover",
        })
    }
}

const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// What is sent where, and through which rules.
type Key = (Work, Target, Rules);

/// The time of each turn.
#[derive(Debug, Default)]
struct Times(BTreeMap<Key, Vec<Duration>>);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// One byte to the other side and back, by TCP.
    RoundTrip,
    /// A datagram of 64 bytes.
    Packet,
    /// The handshake of TCP.
    Connect,
}

impl Times {
    fn add(&mut self, key: Key, time: Duration) {
        self.0.entry(key).or_default().push(time);
    }

    fn of(&self, key: Key) -> &[Duration] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The median over the rounds of what a table takes, divided by what `floor` takes in the same round: the speed of a virtual
    /// machine changes from round to round.
    fn ratio(&self, (work, target, rules): Key, floor: Rules) -> f64 {
        let [ours, floors] = [rules, floor].map(|rules| self.of((work, target, rules)));
        let ratio =
            |(ours, floor): (&Duration, &Duration)| ours.as_secs_f64() / floor.as_secs_f64();
        let mut ratios: Vec<f64> = ours.iter().zip(floors).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Measures all tables in times.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab) -> Result<Vec<Figure>> {
    let mut services = all_services(lab, SERVICES);
    for service in &mut services {
        // One server is enough.
        service.endpoints.truncate(1);
    }
    let mut times = Times::default();
    for round in 0..ROUNDS {
        for (work, protocol) in [
            (Work::RoundTrip, Protocol::Tcp),
            (Work::Packet, Protocol::Udp),
            (Work::Connect, Protocol::Tcp),
        ] {
            let mut order = Rules::ALL;
            order.rotate_left(round % Rules::ALL.len());
            for rules in order {
                let table = lab
                    .node
                    .run(|| rules.load(lab.pod1.host.v4, &services, protocol))?;
                for target in [Target::Direct, Target::Service] {
                    if target == Target::Service && !rules.translates() {
                        continue;
                    }
                    let address = match target {
                        Target::Direct => SocketAddrV4::new(lab.pod2.host.v4, FIRST_PORT),
                        Target::Service => SocketAddrV4::new(services[0].address, PORT),
                    };
                    let time = match work {
                        Work::RoundTrip => round_trip(lab, address),
                        Work::Packet => packet(lab, address),
                        Work::Connect => connect(lab, address),
                    };
                    let failed = |error| {
                        LabError::system(format!("send packets to {address} ({rules})"), error)
                    };
                    times.add((work, target, rules), time.map_err(failed)?);
                }
                drop(table);
            }
        }
    }
    lab.node.run(|| run(&["nft", "flush", "ruleset"]))?;
    Ok(figures(&times))
}

fn figures(times: &Times) -> Vec<Figure> {
    let mut figures = Vec::new();
    let size = (SERVICES, 1);
    for work in [Work::RoundTrip, Work::Packet, Work::Connect] {
        for target in [Target::Direct, Target::Service] {
            let what = match (work, target) {
                (Work::RoundTrip, Target::Direct) => "round trip",
                (Work::RoundTrip, Target::Service) => "round trip through a service",
                (Work::Packet, Target::Direct) => "packet of 64 bytes",
                (Work::Packet, Target::Service) => "packet of 64 bytes through a service",
                (Work::Connect, Target::Direct) => "handshake",
                (Work::Connect, Target::Service) => "handshake through a service",
            };
            for rules in Rules::ALL {
                let key = (work, target, rules);
                if times.of(key).is_empty() {
                    continue;
                }
                let measured = times.of(key).iter().copied().collect::<Samples>().median();
                figures.push(Figure::new(
                    SECTION,
                    format!("{what}, {rules}"),
                    size,
                    measured,
                ));
                for floor in rules.floors(target) {
                    let ratio = Quantity::Times(times.ratio(key, *floor));
                    let name = format!("{what}, {rules} / {floor}");
                    let figure = Figure::new(SECTION, name, size, ratio);
                    // A hundredth fewer packets per second, or three thousandths of a round trip. What the kernel's own part of
                    // translating costs is no property of the rules.
                    let most = match work {
                        Work::RoundTrip => 1.003,
                        Work::Packet => 1.0 / 0.99,
                        Work::Connect => 1.03,
                    };
                    let is_bound = match work {
                        Work::Connect => rules == Rules::Failover,
                        _ => rules == Rules::Contiv && *floor != Rules::Conntrack,
                    };
                    figures.push(if is_bound {
                        figure.with_limit(Limit::AtMost(Quantity::Times(most)))
                    } else {
                        figure
                    });
                }
            }
        }
    }
    figures
}

/// The time of a round trip over one connection to the pod.
fn round_trip(lab: &Lab, address: SocketAddrV4) -> io::Result<Duration> {
    let listener = lab
        .pod2
        .run(|| Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, FIRST_PORT))))
        .map_err(io::Error::other)??;
    let mut client = lab
        .pod1
        .run(|| Ok(TcpStream::connect(address)))
        .map_err(io::Error::other)??;
    let (mut server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut byte = [0];
    let mut once = || -> io::Result<Duration> {
        let (time, result) = timed(|| {
            client.write_all(b"?")?;
            server.read_exact(&mut byte)?;
            server.write_all(b"!")?;
            client.read_exact(&mut byte)
        });
        result.map(|()| time)
    };
    let times: Samples = (0..ROUND_TRIPS)
        .map(|_| once())
        .collect::<io::Result<_>>()?;
    Ok(times.percentile(PERCENT))
}

/// The time of a handshake with the pod.
fn connect(lab: &Lab, address: SocketAddrV4) -> io::Result<Duration> {
    let listener = lab
        .pod2
        .run(|| Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, FIRST_PORT))))
        .map_err(io::Error::other)??;
    lab.pod1
        .run(|| {
            let once = || -> io::Result<Duration> {
                let (time, stream) = timed(|| TcpStream::connect(address));
                // With a reset, so that its port can be used again.
                SockRef::from(&stream?).set_linger(Some(Duration::ZERO))?;
                listener.accept()?;
                Ok(time)
            };
            Ok((0..HANDSHAKES)
                .map(|_| once())
                .collect::<io::Result<Samples>>())
        })
        .map_err(io::Error::other)?
        .map(|times| times.percentile(PERCENT))
}

/// The time of a datagram of one flow to the pod, which has been answered.
fn packet(lab: &Lab, address: SocketAddrV4) -> io::Result<Duration> {
    let server = lab
        .pod2
        .run(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, FIRST_PORT))))
        .map_err(io::Error::other)??;
    let client = lab
        .pod1
        .run(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))))
        .map_err(io::Error::other)??;
    client.connect(address)?;
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    }
    let mut buffer = [0; PAYLOAD.len()];
    client.send(&PAYLOAD)?;
    let (_, from) = server.recv_from(&mut buffer)?;
    server.send_to(&PAYLOAD, from)?;
    client.recv(&mut buffer)?;
    let mut batch = || -> io::Result<Duration> {
        let (time, sent) = timed(|| (0..BATCH).try_for_each(|_| client.send(&PAYLOAD).map(drop)));
        sent?;
        for _ in 0..BATCH {
            server.recv(&mut buffer)?;
        }
        Ok(time)
    };
    let times: Samples = (0..BATCHES).map(|_| batch()).collect::<io::Result<_>>()?;
    Ok(times.percentile(PERCENT) / u32::try_from(BATCH).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_the_rounds() {
        let mut times = Times::default();
        let (target, work) = (Target::Direct, Work::Packet);
        for (floor, ours) in [(10, 11), (20, 24), (10, 40)] {
            for (rules, time) in [(Rules::Conntrack, floor), (Rules::Contiv, ours)] {
                times.add((work, target, rules), Duration::from_micros(time));
            }
        }
        let ratio = times.ratio((work, target, Rules::Contiv), Rules::Conntrack);
        assert!((ratio - 1.2).abs() < 1e-9, "{ratio}");
    }
}
