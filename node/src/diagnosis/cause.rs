//! The causes for which a connection fails.

use serde::{Deserialize, Serialize};

/// Why a connection fails. Its code, as in JSON, stays the same from version to version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    // The agent and its store.
    /// No agent runs, and its table is not in the kernel.
    AgentStopped,
    /// The agent runs and does not answer.
    AgentHangs,
    /// The agent has not read its store yet.
    StoreNotRead,
    /// The store cannot be watched, so the agent's state is old.
    StoreDown,
    /// Deletions are held, so the agent's state is not the store's.
    DeletionsHeld,
    /// An object that decides cannot be used as it is stored.
    Quarantined,
    /// The renderer of the connection fails, or is busy for long.
    RendererFails,
    /// The agent's table is not in the kernel.
    TableMissing,
    /// The agent's table differs from what it should be.
    TableDiffers,

    // The service.
    /// There is no service with that name.
    NoSuchService,
    /// There is no pod with that name, or it has no address.
    NoSuchPod,
    /// The destination is no address of a service, and no route leads there by itself.
    NotAService,
    /// The destination was a service's until lately.
    FormerAddress,
    /// The address is one for services, and belongs to none.
    UnallocatedAddress,
    /// The service is headless.
    Headless,
    /// The service is an alias in DNS.
    ExternalName,
    /// The service is left to another proxy.
    OtherProxy,
    /// The service has no address.
    NoAddress,
    /// The service has no such port.
    UnknownPort,
    /// The service has the port for another protocol only.
    OtherProtocol,
    /// The node port answers at other addresses of this node only.
    NodePortElsewhere,
    /// The node port is asked for at another node.
    NodePortOfOtherNode,
    /// Services do not answer at the interface by which the client comes in.
    InterfaceClosed,
    /// The client is in none of the ranges that may connect.
    SourceRanges,
    /// The policy allows only backends of this node, and there is none.
    PolicyLocal,

    // Its endpoints.
    /// No endpoint slice belongs to the service.
    NoSlice,
    /// The slices of the service have host names.
    HostNames,
    /// The slices of the service are empty.
    NoEndpoints,
    /// No slice has the port of the service.
    NoEndpointPort,
    /// All endpoints are of the other address family.
    OtherFamily,
    /// No endpoint is ready.
    NotReady,

    // The rules of other programs.
    /// A rule drops the packet.
    RuleDrops,
    /// A rule refuses the packet.
    RuleRejects,
    /// A rule leaves the packet to a program that does not run.
    RuleQueues,
    /// A rule changes the destination before the agent's table sees it, or another way than it does.
    RuleTranslates,
    /// A rule changes the source, so that the answer goes elsewhere.
    RuleChangesSource,
    /// A rule keeps the packet from being tracked, so nothing translates it.
    RuleUntracks,
    /// A rule stops the answer.
    RuleStopsAnswer,
    /// A rule may be the cause; it cannot be evaluated.
    RuleUnclear,
    /// A filter of traffic control, or a program of XDP, may be the cause; it cannot be evaluated.
    FilterUnclear,

    // The network of this node.
    /// This machine does not forward packets.
    ForwardingOff,
    /// The kernel does not accept the source from this interface (`rp_filter`).
    ReversePath,
    /// No route leads to the backend.
    NoRoute,
    /// A route or a rule discards the packet.
    RouteDiscards,
    /// The interface to the backend is down.
    LinkDown,
    /// The backend, or its gateway, does not answer at the link layer.
    NeighbourFailed,
    /// No route leads back to the client.
    NoRouteBack,
    /// The answer is not accepted from the interface by which it comes in (`rp_filter`).
    AnswerReversePath,
    /// An interface of this node has the backend's address.
    BackendAddressTaken,
    /// The backend is on the client's bridge, and its answers pass this node unseen.
    BridgedAnswer,
    /// Large packets do not fit on the way, and the sender does not learn it.
    MtuTooSmall,
    /// The table of tracked connections is full.
    ConntrackFull,
    /// The table of neighbours is full.
    NeighboursFull,
    /// An entry of conntrack leads this client to a backend that is gone.
    StaleFlow,
    /// All source ports to this backend are in use.
    SourcePortsUsedUp,
    /// An address that is needed is not usable: tentative, or a duplicate.
    AddressNotUsable,
    /// IPv6 is turned off where it is needed.
    Ipv6Off,
    /// Packets from loopback addresses are not routed (`route_localnet`).
    LoopbackNotRouted,

    // The backend.
    /// The backend refuses connections.
    BackendRefuses,
    /// The backend does not answer.
    BackendSilent,
    /// The backend, or a machine on the way, answers that it cannot be reached.
    BackendUnreachable,
    /// The backend answers from another address.
    AnswersFromElsewhere,
    /// The backend's process listens at another address.
    ListensElsewhere,
    /// The backend's process does not accept connections any more.
    AcceptQueueFull,
}
