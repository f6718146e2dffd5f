//! Reads from the kernel of this machine what concerns one connection.

mod attempts;
mod sizes;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use contiv_model::{Flow, InterfaceName, Protocol};
use contiv_node::{
    Explanation,
    diagnosis::{
        Attempt, Cause, KernelEvidence, NextHopEvidence, PathEvidence, TableEvidence, WrongSetting,
    },
};
use contiv_renderer::{
    nftables::{self, Evaluation, FlowOutcome, InspectError, Inspector},
    packet_path::{
        AddressKind, ClientOrigin, KernelNetwork, Link, Listening, Network, NodeInspector,
        OwnVerdict, Packet, PathError, PathInspector, Route, RouteQuery, Walk, WalkEnd, WalkStep,
        probe, probe_datagram,
    },
    shared_tables::{self, SharedTable},
};
use thiserror::Error;

/// How many backends are followed. More tell nothing that these do not, and each takes the kernel some lookups.
const MAX_PATHS: usize = 32;
/// How many backends are tried, at the same time.
const MAX_PROBES: usize = 16;
/// A change may be on its way between the agent and the kernel.
const MAX_COMPARISONS: usize = 3;
const COMPARISON_INTERVAL: Duration = Duration::from_millis(100);
/// A process that runs accepts all connections that wait for it within this time, at one of so many moments.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(100);
const ACCEPT_LOOKS: usize = 3;
/// No further backend is followed after this time: the kernel may have very many rules, or change them all the time.
const FOLLOW_LIMIT: Duration = Duration::from_secs(2);
/// The source port of a packet that is followed. Rules seldom look at it.
const CLIENT_PORT: u16 = 40_000;

/// Reads what concerns a connection. `has_table`: the agent has a table, or there is no agent; `probes`: backends are tried.
///
/// # Errors
/// When the kernel cannot be queried, as without CAP_NET_ADMIN.
pub(crate) fn read(
    flow: &Flow,
    explanation: Option<&Explanation>,
    has_table: bool,
    probes: bool,
) -> Result<KernelEvidence, String> {
    let (table, evaluation) = if has_table {
        table(flow, explanation)?
    } else {
        (TableEvidence::NotUsed, None)
    };
    Reader::open(flow)
        .and_then(|reader| reader.read(table, evaluation, probes))
        .map_err(|error| error.to_string())
}

/// The table as it is compared with what the agent explains, and what it does with the connection.
fn table(
    flow: &Flow,
    explanation: Option<&Explanation>,
) -> Result<(TableEvidence, Option<Evaluation>), String> {
    let mut comparisons = 1;
    loop {
        let (table, evaluation) = match compare(flow, explanation) {
            Ok(compared) => compared,
            Err(InspectError::NoTable) => return Ok((TableEvidence::Missing, None)),
            Err(error @ InspectError::OtherShape) => {
                return Ok((TableEvidence::Differs(vec![error.to_string()]), None));
            }
            Err(InspectError::Kernel(error)) => return Err(error),
        };
        if !matches!(table, TableEvidence::Differs(_)) || comparisons == MAX_COMPARISONS {
            return Ok((table, Some(evaluation)));
        }
        comparisons += 1;
        thread::sleep(COMPARISON_INTERVAL);
    }
}

fn compare(
    flow: &Flow,
    explanation: Option<&Explanation>,
) -> Result<(TableEvidence, Evaluation), InspectError> {
    let mut inspector = Inspector::open()?;
    let evaluation = inspector.evaluate(flow)?;
    let mut differences = inspector.rules().to_vec();
    let Some(explanation) = explanation else {
        let table = if differences.is_empty() {
            TableEvidence::Unknown
        } else {
            TableEvidence::Differs(differences)
        };
        return Ok((table, evaluation));
    };
    differences.extend(nftables::differences(&explanation.trace, &evaluation));
    let table = if differences.is_empty() {
        TableEvidence::Equal
    } else {
        TableEvidence::Differs(differences)
    };
    Ok((table, evaluation))
}

/// What the agent's table does, in its possible ways, each once.
fn own_verdicts(evaluation: Option<Evaluation>) -> Vec<OwnVerdict> {
    let Some(evaluation) = evaluation else {
        return vec![OwnVerdict::Untouched];
    };
    let mut verdicts: Vec<OwnVerdict> = Vec::new();
    for share in evaluation.shares {
        let verdict = match share.ending {
            FlowOutcome::Served {
                backend,
                masqueraded,
            } => OwnVerdict::Translated {
                backend,
                is_masqueraded: masqueraded,
            },
            FlowOutcome::Rejected { .. } => OwnVerdict::Rejected,
            FlowOutcome::Dropped { .. } => OwnVerdict::Dropped,
            FlowOutcome::Egress => OwnVerdict::Masqueraded,
            FlowOutcome::Untouched | FlowOutcome::Foreign { .. } => OwnVerdict::Untouched,
        };
        if !verdicts.contains(&verdict) {
            verdicts.push(verdict);
        }
    }
    verdicts
}

/// Reads the state of the kernel for one connection.
struct Reader<'a> {
    flow: &'a Flow,
    node: NodeInspector,
    rules: PathInspector,
    origin: ClientOrigin,
}

impl<'a> Reader<'a> {
    fn open(flow: &'a Flow) -> Result<Self, PathError> {
        let mut node = NodeInspector::open()?;
        let found = node.network().client_origin(flow.from())?;
        let origin = match flow.interface() {
            // It was found out before, in the same way.
            Some(interface) if found == ClientOrigin::Network(interface.clone()) => found,
            Some(interface) => ClientOrigin::Interface(interface.clone()),
            None => found,
        };
        Ok(Self {
            flow,
            node,
            rules: PathInspector::open()?,
            origin,
        })
    }

    fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.flow.to(), self.flow.port())
    }

    /// The interface by which the client's packets come in.
    const fn input(&self) -> Option<&InterfaceName> {
        match &self.origin {
            ClientOrigin::Interface(name) | ClientOrigin::Network(name) => Some(name),
            ClientOrigin::ThisNode | ClientOrigin::Unknown(_) => None,
        }
    }

    fn read(
        mut self,
        table: TableEvidence,
        evaluation: Option<Evaluation>,
        probes: bool,
    ) -> Result<KernelEvidence, PathError> {
        let verdicts = own_verdicts(evaluation);
        let ways = verdicts.len();
        let mut paths = Vec::new();
        let (attempts, open) = attempts::read(&mut self.node, self.flow)?;
        let is_stalled = attempts.iter().any(Attempt::is_stalled);
        let client_route = match &self.origin {
            ClientOrigin::Unknown(route) => Some(route.clone()),
            ClientOrigin::ThisNode | ClientOrigin::Interface(_) | ClientOrigin::Network(_) => None,
        };
        if client_route.is_none() {
            let begun = Instant::now();
            for own in verdicts.into_iter().take(MAX_PATHS) {
                if begun.elapsed() > FOLLOW_LIMIT && !paths.is_empty() {
                    break;
                }
                paths.push(self.path(own, is_stalled)?);
            }
        }
        let paths_left_out = if client_route.is_none() {
            ways.saturating_sub(paths.len())
        } else {
            0
        };
        self.look_at_listeners(&mut paths);
        self.count_source_ports(&mut paths)?;
        if probes {
            try_backends(&mut paths, self.flow.protocol());
        }
        let (protocol, from) = (self.flow.protocol(), self.flow.from());
        let own_ports = self.own_ports(open);
        let is_unanswered = attempts.iter().any(|attempt| !attempt.flow.is_answered);
        let flows_to_client = if is_unanswered {
            self.node.flows_to(protocol, from)?.flows
        } else {
            Vec::new()
        };
        let client_link = self.input().and_then(|name| self.node.link(name)).cloned();
        let mut links: Vec<&Link> = paths.iter().filter_map(|path| path.link.as_ref()).collect();
        links.extend(&client_link);
        let mut names: Vec<InterfaceName> = links.iter().map(|link| link.name.clone()).collect();
        names.sort();
        names.dedup();
        let mut filters = Vec::new();
        for name in names {
            let found = self.node.traffic_filters(&name)?;
            if !found.is_empty() {
                filters.push((name, found));
            }
        }
        let is_ipv4 = from.is_ipv4();
        let network = self.node.network();
        let has_vrf = links.iter().any(|link| network.is_in_vrf(link));
        Ok(KernelEvidence {
            table,
            has_vrf,
            is_client_guessed: matches!(self.origin, ClientOrigin::Network(_)),
            without_ipv6: self.without_ipv6(),
            settings: self.wrong_settings(&paths)?,
            conntrack: self.node.settings().conntrack(),
            neighbours: neighbour_table(&paths, is_ipv4),
            chooses_by_ports: self.node.settings().chooses_by_ports(is_ipv4),
            bridges_call_rules: self.node.settings().filters_bridges(is_ipv4) == Some(true),
            paths,
            paths_left_out,
            attempts,
            flows_to_client,
            client_link,
            client_route,
            links_down: self.node.network().interfaces_down()?,
            own_ports,
            filters,
        })
    }

    /// Follows the connection for one verdict of the agent's table.
    fn path(&mut self, own: OwnVerdict, is_stalled: bool) -> Result<PathEvidence, PathError> {
        let packet = Packet {
            protocol: self.flow.protocol(),
            source: SocketAddr::new(self.flow.from(), CLIENT_PORT),
            destination: self.destination(),
            input: self.input().cloned(),
        };
        let network = self.node.network();
        let first = self.rules.walk_first(&packet, own, network)?;
        let answer = self.rules.walk_answer(&packet, &first, network)?;
        let is_source_own = self.is_source_own(&first)?;
        let sizes = match &answer {
            Some(answer) => {
                let (node, rules) = (&mut self.node, &mut self.rules);
                sizes::read(node, rules, &packet, [&first, answer], is_stalled)?
            }
            None => None,
        };
        let next_hops = self.next_hops(&packet, &first)?;
        let (mut link, mut neighbour) = (None, None);
        if let WalkEnd::Sent {
            interface,
            gateway,
            destination,
            ..
        } = &first.end
        {
            link = self.node.link(interface).cloned();
            let address = gateway.unwrap_or_else(|| destination.ip());
            neighbour = self
                .node
                .neighbour(interface, address)?
                .map(|neighbour| (address, neighbour));
        }
        Ok(PathEvidence {
            own,
            first,
            answer,
            link,
            neighbour,
            next_hops,
            sizes,
            listening: None,
            is_source_own,
            source_ports_used: None,
            probe: None,
        })
    }

    /// The next hops among which the kernel chooses for a packet that leaves, with what is known of their neighbours.
    fn next_hops(
        &mut self,
        packet: &Packet,
        walk: &Walk,
    ) -> Result<Vec<NextHopEvidence>, PathError> {
        let WalkEnd::Sent { destination, .. } = walk.end else {
            return Ok(Vec::new());
        };
        let mark = walk.steps.iter().rev().find_map(|step| match step {
            WalkStep::Marked { mark, .. } => Some(*mark),
            _ => None,
        });
        let hops = self.node.network().next_hops(&RouteQuery {
            source: Some(packet.source.ip()),
            destination: destination.ip(),
            input: packet.input.clone(),
            mark: mark.unwrap_or_default(),
            ports: Some((packet.protocol, packet.source.port(), destination.port())),
        })?;
        // Then the kernel does not choose one whose neighbour has failed.
        let setting = "net/ipv4/fib_multipath_use_neigh";
        let avoids_failed =
            destination.is_ipv4() && self.node.settings().number(setting) == Some(1);
        let evidence = hops.into_iter().map(|hop| {
            let address = hop.gateway.unwrap_or_else(|| destination.ip());
            let neighbour = self.node.neighbour(&hop.interface, address)?;
            Ok(NextHopEvidence {
                hop,
                neighbour: neighbour.filter(|_| !avoids_failed),
            })
        });
        evidence.collect()
    }

    /// Whether processes listen where the ways end at one. Connections that wait for a process are looked at several times: it may be
    /// about to accept them. A kernel may lack the module for it: then it is not known.
    fn look_at_listeners(&mut self, paths: &mut [PathEvidence]) {
        let protocol = self.flow.protocol();
        for look in 0..ACCEPT_LOOKS {
            let mut is_any_waiting = false;
            for path in &mut *paths {
                let WalkEnd::Local { destination, .. } = path.first.end else {
                    continue;
                };
                if look == 0 || is_waited_for(path) {
                    path.listening = self.node.listening(protocol, destination).ok();
                    is_any_waiting |= is_waited_for(path);
                }
            }
            if !is_any_waiting || look + 1 == ACCEPT_LOOKS {
                return;
            }
            thread::sleep(ACCEPT_INTERVAL);
        }
    }

    /// Whether the source that another program's rule gives the packet is an address of this node.
    fn is_source_own(&mut self, walk: &Walk) -> Result<bool, PathError> {
        for step in &walk.steps {
            if let WalkStep::SourceChanged { to: Some(to), .. } = step
                && self.node.network().address_kind(to.ip())? != AddressKind::Local
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the masqueraded connections to the backends. The table of connections may be large: it is read once for each source.
    fn count_source_ports(&mut self, paths: &mut [PathEvidence]) -> Result<(), PathError> {
        let protocol = self.flow.protocol();
        let mut used: BTreeMap<IpAddr, BTreeMap<SocketAddr, usize>> = BTreeMap::new();
        for path in paths {
            let OwnVerdict::Translated {
                backend,
                is_masqueraded: true,
            } = path.own
            else {
                continue;
            };
            let query = RouteQuery {
                source: None,
                destination: backend.ip(),
                input: None,
                mark: 0,
                ports: None,
            };
            let Route::Unicast {
                source: Some(source),
                ..
            } = self.node.network().route(&query)?
            else {
                continue;
            };
            let counted = match used.entry(source) {
                Entry::Occupied(counted) => counted.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(self.node.source_ports_used(protocol, source)?)
                }
            };
            path.source_ports_used = Some(counted.get(&backend).copied().unwrap_or_default());
        }
        Ok(())
    }

    /// How many sockets of this node are connected to the destination, and how many it can have.
    fn own_ports(&self, used: usize) -> Option<(usize, usize)> {
        let (first, last) = self.node.settings().local_ports()?;
        let ports = usize::from(last.checked_sub(first)?) + 1;
        (self.origin == ClientOrigin::ThisNode).then_some((used, ports))
    }

    /// Settings of the machine that stop the packets.
    fn wrong_settings(&mut self, paths: &[PathEvidence]) -> Result<Vec<WrongSetting>, PathError> {
        let mut wrong = Vec::new();
        let is_ipv4 = self.flow.from().is_ipv4();
        let is_forwarded = paths.iter().any(|path| {
            matches!(
                path.first.end,
                WalkEnd::Sent { .. } | WalkEnd::NotRouted(Route::Unreachable)
            )
        });
        if let Some(input) = self.input().filter(|_| is_forwarded) {
            if !is_ipv4 && self.node.settings().is_ipv6_disabled(input) == Some(true) {
                wrong.push(ipv6_off(input));
            } else if self.node.settings().is_forwarding(input, is_ipv4) == Some(false) {
                let setting = if is_ipv4 {
                    format!(
                        "net.ipv4.ip_forward, or net.ipv4.conf.{}.forwarding",
                        input.0
                    )
                } else {
                    "net.ipv6.conf.all.forwarding".to_owned()
                };
                wrong.push(WrongSetting {
                    code: Cause::ForwardingOff,
                    text: format!(
                        "this machine does not forward packets that come in at {}",
                        input.0
                    ),
                    advice: format!("set {setting} to 1 with `sysctl -w`"),
                });
            }
        }
        for address in [self.flow.to(), self.flow.from()] {
            wrong.extend(self.unusable(address)?);
        }
        Ok(wrong)
    }

    /// Interfaces that are up and have no IPv6, where no route of IPv6 leads to the client.
    fn without_ipv6(&self) -> Vec<InterfaceName> {
        if self.flow.from().is_ipv4() || !matches!(self.origin, ClientOrigin::Unknown(_)) {
            return Vec::new();
        }
        let up = self
            .node
            .links()
            .filter(|link| link.is_up && link.has_carrier && !link.is_loopback);
        let off = up.filter(|link| self.node.settings().is_ipv6_disabled(&link.name) == Some(true));
        off.map(|link| link.name.clone()).collect()
    }

    /// Whether an address of this node is not in use, since another machine has it, or may have it.
    fn unusable(&mut self, address: IpAddr) -> Result<Option<WrongSetting>, PathError> {
        let found = self.node.interfaces_with(address)?;
        let bad = found.iter().find(|it| it.is_duplicate || it.is_tentative);
        Ok(bad.map(|bad| WrongSetting {
            code: Cause::AddressNotUsable,
            text: format!(
                "the address {address} of {} is not in use: {}",
                bad.interface.0,
                if bad.is_duplicate {
                    "another machine has it too (dadfailed)"
                } else {
                    "whether another machine has it is still being found out (tentative)"
                }
            ),
            advice: format!(
                "`ip -6 address show dev {}`; remove the duplicate",
                bad.interface.0
            ),
        }))
    }
}

/// Connections of this node from a loopback address to elsewhere: the kernel gives them the source of their route.
fn with_own_source(flow: Flow, network: &mut KernelNetwork) -> Flow {
    if !flow.from().is_loopback() || flow.to().is_loopback() {
        return flow;
    }
    let query = RouteQuery {
        source: None,
        destination: flow.to(),
        input: None,
        mark: 0,
        ports: None,
    };
    let source = match network.route(&query) {
        Ok(Route::Unicast { source, .. }) => source,
        Ok(Route::Local) => Some(flow.to()),
        _ => None,
    };
    let to = SocketAddr::new(flow.to(), flow.port());
    source
        .and_then(|source| Flow::new(source, to, flow.protocol()).ok())
        .unwrap_or(flow)
}

/// The flow with the interface by which its packets come in, as far as that is known. Rules and classes of clients may depend on it. Where
/// the kernel cannot be queried the flow stays as it is: that is found out again with the rest, and said there.
///
/// # Errors
/// When this node has no interface with the name that the flow has.
pub(crate) fn with_interface(flow: Flow) -> Result<Flow, NoSuchInterface> {
    let Ok(mut network) = KernelNetwork::open() else {
        return Ok(flow);
    };
    let flow = with_own_source(flow, &mut network);
    let interface = match flow.interface() {
        Some(name) if network.link(name).is_none() => return Err(NoSuchInterface(name.clone())),
        Some(name) => Some(network.input_of(name.clone())),
        None => match network.client_origin(flow.from()) {
            Ok(ClientOrigin::Interface(name) | ClientOrigin::Network(name)) => Some(name),
            Ok(ClientOrigin::ThisNode | ClientOrigin::Unknown(_)) | Err(_) => None,
        },
    };
    Ok(match interface {
        Some(interface) => flow.by_interface(interface),
        None => flow,
    })
}

/// An interface that this node does not have.
#[derive(Debug, Error)]
#[error("this node has no interface {0}: `ip link show` lists them")]
pub(crate) struct NoSuchInterface(InterfaceName);

/// How full the table of neighbours of a family is, if it lacks one that packets are passed to.
fn neighbour_table(paths: &[PathEvidence], is_ipv4: bool) -> Option<shared_tables::TableUse> {
    let lacks_one = |path: &PathEvidence| {
        matches!(path.first.end, WalkEnd::Sent { .. }) && path.neighbour.is_none()
    };
    if !paths.iter().any(lacks_one) {
        return None;
    }
    let wanted = if is_ipv4 {
        SharedTable::Arp
    } else {
        SharedTable::Ndisc
    };
    let mut tables = shared_tables::read().into_iter();
    tables.find(|table| table.table == wanted)
}

fn is_waited_for(path: &PathEvidence) -> bool {
    matches!(&path.listening, Some(Listening::Here(listener)) if listener.waiting > 0)
}

fn ipv6_off(interface: &InterfaceName) -> WrongSetting {
    WrongSetting {
        code: Cause::Ipv6Off,
        text: format!("IPv6 is turned off at {}", interface.0),
        advice: format!("`sysctl -w net.ipv6.conf.{}.disable_ipv6=0`", interface.0),
    }
}

/// Tries the backends of these ways from this node, all at the same time.
fn try_backends(paths: &mut [PathEvidence], protocol: Protocol) {
    thread::scope(|scope| {
        let mut tried = 0;
        for path in paths {
            let OwnVerdict::Translated { backend, .. } = path.own else {
                continue;
            };
            tried += 1;
            if tried > MAX_PROBES {
                break;
            }
            // Without a thread it is not tried.
            let _ = thread::Builder::new().spawn_scoped(scope, move || {
                path.probe = match protocol {
                    Protocol::Udp => probe_datagram(backend),
                    _ => Some(probe(backend)),
                };
            });
        }
    });
}

/// Associations of SCTP cannot be tried.
pub(crate) const fn can_probe(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Tcp | Protocol::Udp)
}
