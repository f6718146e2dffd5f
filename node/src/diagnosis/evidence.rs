//! What drivers found out about a connection.

use std::net::IpAddr;

use contiv_model::{Flow, InterfaceName};
use contiv_renderer::{
    packet_path::{
        DownLink, KnownFlow, Link, Listening, Neighbour, NextHop, OwnVerdict, ProbeResult, Route,
        TrafficFilters, Walk,
    },
    shared_tables::TableUse,
};

use super::Cause;
use crate::Explanation;

/// All that is known of a connection.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Its ends.
    pub target: Target,
    /// The agent.
    pub agent: AgentState,
    /// Its outcome by the state of the agent, or of manifests.
    pub explanation: Option<Explanation>,
    /// The kernel of this node, or why it cannot be read.
    pub kernel: Result<KernelEvidence, String>,
}

/// The ends of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Known.
    Flow(Flow),
    /// There is no such service, or it has no address to connect to: the cause, and a sentence about it.
    NoService(Cause, String),
    /// There is no such pod, or it has no address: a sentence about it.
    NoPod(String),
}

/// The agent of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentState {
    /// It answers.
    Runs {
        /// The revision of its state.
        revision: i64,
    },
    /// It answers, and has not read its store yet.
    NotRead {
        /// Why.
        reason: String,
    },
    /// Nothing listens at its address; what to do.
    Stopped {
        /// What is left in the kernel, and how to start it.
        advice: String,
    },
    /// Something listens, and does not answer.
    Hangs {
        /// The error of the query.
        error: String,
    },
    /// Manifests are asked in its place.
    Manifests,
}

/// What the kernel of the node has.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the kernel"
)]
#[derive(Debug, Clone, Default)]
pub struct KernelEvidence {
    /// The agent's table.
    pub table: TableEvidence,
    /// The ways of the connection: one for each backend, or one if no backend is chosen.
    pub paths: Vec<PathEvidence>,
    /// How many ways were not followed.
    pub paths_left_out: usize,
    /// Attempts of this client at this destination.
    pub attempts: Vec<Attempt>,
    /// What others began with the client's address: answers from unexpected addresses are among it.
    pub flows_to_client: Vec<KnownFlow>,
    /// The interface by which the client's packets come in; none for a client on this node.
    pub client_link: Option<Link>,
    /// Where the client is, is only a guess by its address: the route to it leads elsewhere.
    pub is_client_guessed: bool,
    /// The route back to the client, if there is none that leads anywhere: then nobody knows where its packets come in.
    pub client_route: Option<Route>,
    /// Interfaces in use through which nothing passes.
    pub links_down: Vec<DownLink>,
    /// An interface of the way is in a VRF, which has routes of its own.
    pub has_vrf: bool,
    /// Interfaces that are up and have no IPv6, where no route of IPv6 leads to the client.
    pub without_ipv6: Vec<InterfaceName>,
    /// The sockets of this node that are connected to this destination, and how many it can have; for a client on this node.
    pub own_ports: Option<(usize, usize)>,
    /// Filters beside nftables, at the interfaces of the ways.
    pub filters: Vec<(InterfaceName, TrafficFilters)>,
    /// How full the table of tracked connections is.
    pub conntrack: Option<TableUse>,
    /// How full the table of neighbours of the family is.
    pub neighbours: Option<TableUse>,
    /// The ports of a connection count for the choice among several next hops of a route.
    pub chooses_by_ports: bool,
    /// Settings that stop these packets.
    pub settings: Vec<WrongSetting>,
    /// Bridges show their packets to the rules (`bridge-nf-call-iptables`).
    pub bridges_call_rules: bool,
}

/// An attempt of the client, as conntrack remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What conntrack has.
    pub flow: KnownFlow,
    /// Seconds since its last packet, at least; 0 if that is not known.
    pub age: u32,
    /// It is established, and what was sent last is not acknowledged.
    pub is_unacknowledged: bool,
}

impl Attempt {
    /// True if what was sent is not acknowledged for longer than it takes. Much later it is sent again too seldom to tell this from a
    /// connection that is idle, and about to be forgotten.
    pub const fn is_stalled(&self) -> bool {
        const SECONDS_WITHOUT_PACKET: std::ops::RangeInclusive<u32> = 2..=60;
        self.is_unacknowledged
            && self.age >= *SECONDS_WITHOUT_PACKET.start()
            && self.age <= *SECONDS_WITHOUT_PACKET.end()
    }
}

/// A setting of the machine that stops packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongSetting {
    /// What it causes.
    pub code: Cause,
    /// What is wrong.
    pub text: String,
    /// What to do.
    pub advice: String,
}

/// The agent's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TableEvidence {
    /// It is as it should be, as far as the connection is concerned.
    #[default]
    Equal,
    /// It is as another version would have it, or nobody knows how it should be.
    Unknown,
    /// The agent does not have the renderer of the table.
    NotUsed,
    /// It is not there.
    Missing,
    /// It differs.
    Differs(Vec<String>),
}

/// One way of the connection.
#[derive(Debug, Clone)]
pub struct PathEvidence {
    /// What the agent's table does.
    pub own: OwnVerdict,
    /// The first packet.
    pub first: Walk,
    /// The answer; none if the first packet does not arrive.
    pub answer: Option<Walk>,
    /// The interface by which the first packet leaves.
    pub link: Option<Link>,
    /// The machine that it is passed to, with its address.
    pub neighbour: Option<(IpAddr, Neighbour)>,
    /// The next hops of its route, if there are several.
    pub next_hops: Vec<NextHopEvidence>,
    /// How large its packets may be; none if this node does not forward them.
    pub sizes: Option<PacketSizes>,
    /// Whether a process of this node listens, where the packet is for one.
    pub listening: Option<Listening>,
    /// False if another program's rule gives it a source that is not of this node.
    pub is_source_own: bool,
    /// Connections from this node's address to the backend, if they are masqueraded.
    pub source_ports_used: Option<usize>,
    /// What an attempt of this node met.
    pub probe: Option<ProbeResult>,
}

/// One of several next hops of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHopEvidence {
    /// The next hop.
    pub hop: NextHop,
    /// What is known of its neighbour.
    pub neighbour: Option<Neighbour>,
}

/// How large the packets of a way may be, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketSizes {
    /// Those that the client sends at most: by the MTU of its own interface, or else those that fit on the way to it.
    pub client: u32,
    /// The same of the server.
    pub server: u32,
    /// Those that fit on the way to the server.
    pub to_server: u32,
    /// Those that fit on the way to the client.
    pub to_client: u32,
    /// The interface below the tunnel that leads to the server, with its MTU, if packets with the headers of the tunnel do not fit there.
    pub outer: Option<(InterfaceName, u32)>,
    /// The way of an error of this node about packets of the client; none if it was not followed.
    pub error_to_client: Option<Walk>,
    /// The same about answers.
    pub error_to_server: Option<Walk>,
    /// The way of an error of a machine beyond this node about packets of the client.
    pub error_from_beyond: Option<Walk>,
}
