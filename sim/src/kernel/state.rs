//! The state of the modelled kernel, and its answers to requests.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
    net::IpAddr,
    time::Instant,
};

use contiv_renderer::kernel::{BackgroundTask, ListenerEvent, NetlinkProtocol};

use super::{
    batch,
    caller::Caller,
    conntrack::{self, Connection},
    dump,
    errno::Errno,
    fault::{self, Fault, Faults, Request},
    message::{self, Message},
    notify::{self, Notice},
    process::Process,
    routing::Routing,
    ruleset::Ruleset,
    uapi::{
        BATCH_BEGIN, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_MIN_TYPE,
        SUBSYS_CTNETLINK, SUBSYS_NFTABLES, table,
    },
};

/// The state of the modelled kernel.
pub(super) struct State {
    pub(super) ruleset: Ruleset,
    pub(super) routing: Routing,
    pub(super) connections: Vec<Connection>,
    pub(super) last_connection: u32,
    /// The addresses of the node's interfaces.
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) listeners: BTreeMap<u32, Listener>,
    pub(super) faults: Vec<Fault>,
    pub(super) missing: Vec<String>,
    pub(super) is_denied: bool,
    pub(super) send_limit: usize,
    /// The process that opens sockets now.
    pub(super) process: Process,
    pub(super) last_port: u32,
    /// Milliseconds since the start of the model.
    pub(super) now: u64,
    pub(super) began: Instant,
    pub(super) tasks: Vec<Box<dyn BackgroundTask>>,
    /// How often a socket waited for an answer that was not sent.
    pub(super) stalls: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// A listener for notifications.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) protocol: NetlinkProtocol,
    pub(super) own: u32,
    pub(super) is_member: bool,
    pub(super) is_closed: bool,
    pub(super) events: VecDeque<ListenerEvent>,
}

impl Listener {
    pub(super) const fn new(protocol: NetlinkProtocol, own: u32) -> Self {
        Self {
            protocol,
            own,
            is_member: true,
            is_closed: false,
            events: VecDeque::new(),
        }
    }

    /// Whether it gets the notifications of changes by the socket with this port.
    fn hears(&self, protocol: NetlinkProtocol, port: u32) -> bool {
        self.protocol == protocol && self.is_member && self.own != port
    }
}

/// Netlink ports are process ids, or negative.
const FIRST_PORT: u32 = 0xf000_0000;
/// The batch limit of Linux for processes with `CAP_NET_ADMIN`.
const SEND_LIMIT: usize = 512 << 20;
/// The approximate size of a datagram of notifications.
const DATAGRAM_BYTES: usize = 8 << 10;

impl State {
    pub(super) fn new(settings: BTreeMap<String, String>) -> Self {
        Self {
            ruleset: Ruleset {
                generation: 1,
                ..Ruleset::default()
            },
            routing: Routing::default(),
            connections: Vec::new(),
            last_connection: 0,
            addresses: BTreeSet::new(),
            settings,
            listeners: BTreeMap::new(),
            faults: Vec::new(),
            missing: Vec::new(),
            is_denied: false,
            send_limit: SEND_LIMIT,
            process: Process {
                name: "contiv".to_owned(),
                pid: 1000,
            },
            last_port: FIRST_PORT,
            now: 0,
            began: Instant::now(),
            tasks: Vec::new(),
            stalls: 0,
        }
    }

    pub(super) fn next_port(&mut self) -> u32 {
        self.last_port += 1;
        self.last_port
    }

    pub(super) fn add_connection(&mut self, connection: &Connection) -> u32 {
        self.last_connection += 1;
        self.connections.push(Connection {
            id: self.last_connection,
            ..connection.clone()
        });
        self.last_connection
    }

    /// Handles a request of a socket. Returns the answers, one datagram each.
    pub(super) fn send(
        &mut self,
        port: u32,
        process: &Process,
        request: &[u8],
    ) -> Result<Vec<io::Result<Vec<u8>>>, Errno> {
        let faults = fault::take(&mut self.faults, kind(request));
        if let Some(errno) = faults.sending {
            return Err(errno);
        }
        let answers = self.handle(port, process, request, faults);
        if faults.loses_answer {
            return Ok(vec![Err(io::Error::from_raw_os_error(Errno::ENOBUFS.0))]);
        }
        Ok(answers.into_iter().map(Ok).collect())
    }

    /// `nfnetlink_rcv`
    pub(super) fn handle(
        &mut self,
        port: u32,
        process: &Process,
        request: &[u8],
        faults: Faults,
    ) -> Vec<Vec<u8>> {
        let Some((first, rest)) = Message::first(request) else {
            return Vec::new();
        };
        if self.is_denied {
            return vec![message::acknowledgement(
                &first,
                port,
                Some(Errno::EPERM.into()),
            )];
        }
        if first.kind == BATCH_BEGIN {
            let mut listeners = self.listeners.values();
            let caller = Caller {
                port,
                now: self.now,
                missing: &self.missing,
                is_heard: listeners
                    .any(|listener| listener.hears(NetlinkProtocol::Netfilter, port)),
            };
            let outcome = batch::apply(&mut self.ruleset, &first, rest, caller, faults.injected);
            if let Some(notices) = outcome.committed {
                self.notify(port, process, &notices, first.sequence);
            }
            return outcome.answers;
        }
        let mut answers = Vec::new();
        for message in message::messages(request) {
            let answer = self.handle_message(port, process, &message, faults.is_interrupted);
            let refused = answer.as_ref().err().copied();
            answers.extend(answer.unwrap_or_default());
            if message.has(NLM_F_ACK) || refused.is_some() {
                answers.push(message::acknowledgement(&message, port, refused));
            }
        }
        answers
    }

    /// Handles a message outside of a batch.
    fn handle_message(
        &mut self,
        port: u32,
        process: &Process,
        message: &Message<'_>,
        is_interrupted: bool,
    ) -> super::errno::Result<Vec<Vec<u8>>> {
        if !message.has(NLM_F_REQUEST) || message.kind < NLMSG_MIN_TYPE {
            return Ok(Vec::new());
        }
        let mut pieces = match message.subsystem() {
            SUBSYS_NFTABLES => {
                let asker = dump::Requester {
                    port,
                    now: self.now,
                    process,
                };
                dump::answer(&self.ruleset, message, asker)?
            }
            SUBSYS_CTNETLINK => conntrack::answer(&mut self.connections, message, port)?,
            _ => return Err(Errno::EINVAL.into()),
        };
        if is_interrupted && message.flags & NLM_F_DUMP == NLM_F_DUMP {
            for piece in &mut pieces {
                mark_interrupted(piece);
            }
        }
        Ok(pieces)
    }

    /// Handles a request of a routing socket. Returns the answers, one datagram each.
    pub(super) fn send_routing(&mut self, port: u32, request: &[u8]) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for message in message::messages(request) {
            let (new, notices) = self.routing.handle(&message, port);
            answers.extend(new);
            self.tell_routing(port, notices);
        }
        answers
    }

    /// Notifies listeners to changes of the routing.
    pub(super) fn tell_routing(&mut self, port: u32, notices: Vec<Vec<u8>>) {
        for notice in notices {
            self.tell(
                NetlinkProtocol::Route,
                port,
                &ListenerEvent::Notifications(notice),
            );
        }
    }

    /// Tells all listeners except those of the sender.
    pub(super) fn tell(&mut self, protocol: NetlinkProtocol, port: u32, event: &ListenerEvent) {
        for listener in self
            .listeners
            .values_mut()
            .filter(|listener| listener.hears(protocol, port))
        {
            listener.events.push_back(event.clone());
        }
    }

    /// Notifies all listeners except those of the sender.
    fn notify(&mut self, port: u32, process: &Process, notices: &[Notice], sequence: u32) {
        let generation = self.ruleset.generation;
        let is_subscribed =
            |listener: &&mut Listener| listener.hears(NetlinkProtocol::Netfilter, port);
        let mut receivers = self.listeners.values_mut().filter(is_subscribed).peekable();
        if receivers.peek().is_none() {
            return;
        }
        let mut pieces = vec![Vec::new()];
        for notice in notices {
            let bytes = notice.write(generation, port, sequence);
            match pieces.last_mut() {
                Some(last) if last.len() + bytes.len() <= DATAGRAM_BYTES => {
                    last.extend_from_slice(&bytes);
                }
                _ => pieces.push(bytes),
            }
        }
        if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(&notify::write_generation(
                generation, process, port, sequence,
            ));
        }
        for listener in receivers {
            listener
                .events
                .extend(pieces.iter().cloned().map(ListenerEvent::Notifications));
        }
    }

    /// Closes a socket: tables that it owned lose their owner, or are deleted.
    pub(super) fn release(&mut self, port: u32) {
        let owned = |found: &super::ruleset::Table| {
            found.owner == Some(port) && found.flags & table::F_OWNER != 0
        };
        self.ruleset
            .tables
            .retain(|found| !owned(found) || found.flags & table::F_PERSIST != 0);
        for found in self.ruleset.tables.iter_mut().filter(|found| owned(found)) {
            found.flags &= !table::F_OWNER;
            found.owner = None;
        }
    }
}

/// The faults that can affect a request.
fn kind(request: &[u8]) -> Request {
    match Message::first(request) {
        Some((first, rest)) if first.kind == BATCH_BEGIN => {
            // The last message of the batch commits it.
            Request::Batch {
                messages: message::messages(rest).count().saturating_sub(1),
            }
        }
        Some((first, _)) if first.flags & NLM_F_DUMP == NLM_F_DUMP => Request::Dump,
        _ => Request::Other,
    }
}

fn mark_interrupted(piece: &mut [u8]) {
    let mut at = 0;
    while let Some((message, _)) = Message::first(&piece[at..]) {
        let length = message.bytes.len().next_multiple_of(4);
        let flags = message.flags | NLM_F_DUMP_INTR;
        piece[at + 6..at + 8].copy_from_slice(&flags.to_ne_bytes());
        at = (at + length).min(piece.len());
    }
}
