//! How large the packets of a connection may be that this node forwards.

use contiv_model::InterfaceName;
use contiv_node::diagnosis::PacketSizes;
use contiv_renderer::packet_path::{
    Link, LinkedInterface, NodeInspector, Packet, PathError, PathInspector, Route, SizeError, Walk,
    WalkEnd, WalkStep,
};

/// Reads the sizes of a way, and follows the errors about packets that are too large, if there may be such packets; none if this node does
/// not forward the connection.
pub(super) fn read(
    node: &mut NodeInspector,
    rules: &mut PathInspector,
    packet: &Packet,
    [first, answer]: [&Walk; 2],
    is_stalled: bool,
) -> Result<Option<PacketSizes>, PathError> {
    let (Some(_), Some(out), Some(back)) = (&packet.input, leaving(first), leaving(answer)) else {
        return Ok(None);
    };
    let (to_server, to_client) = (out.mtu, back.mtu);
    let server = own_mtu(node, &out)?.unwrap_or(to_server);
    let client = own_mtu(node, &back)?.unwrap_or(to_client);
    let mut sizes = PacketSizes {
        client,
        server,
        to_server,
        to_client,
        outer: outer(node, out.interface),
        error_to_client: None,
        error_to_server: None,
        error_from_beyond: None,
    };
    if is_stalled || client.min(server) > to_server.min(to_client) {
        let mut follow = |error| rules.walk_size_error(packet, first, error, node.network());
        sizes.error_to_client = follow(SizeError::ToClient)?;
        sizes.error_to_server = follow(SizeError::ToServer)?;
        sizes.error_from_beyond = follow(SizeError::ToClientFromBeyond)?;
    }
    Ok(Some(sizes))
}

/// How packets leave this node.
struct Leaving<'a> {
    interface: &'a InterfaceName,
    has_gateway: bool,
    /// Those that fit, in bytes.
    mtu: u32,
}

fn leaving(walk: &Walk) -> Option<Leaving<'_>> {
    let WalkEnd::Sent {
        interface, gateway, ..
    } = &walk.end
    else {
        return None;
    };
    let mtu = walk.steps.iter().rev().find_map(|step| match step {
        WalkStep::Routed(Route::Unicast { mtu, .. }) => Some(*mtu),
        _ => None,
    });
    Some(Leaving {
        interface,
        has_gateway: gateway.is_some(),
        mtu: mtu??,
    })
}

/// The MTU of the own interface of the machine at the other end; none if that is not known.
fn own_mtu(node: &mut NodeInspector, leaving: &Leaving<'_>) -> Result<Option<u32>, PathError> {
    let link = node.link(leaving.interface).cloned();
    match link.filter(|_| !leaving.has_gateway) {
        Some(link) => node.network().peer_mtu(&link),
        None => Ok(None),
    }
}

/// The interface below a tunnel, with its MTU, if the largest packets of the tunnel do not fit there with their headers.
fn outer(node: &NodeInspector, interface: &InterfaceName) -> Option<(InterfaceName, u32)> {
    let tunnel = node.link(interface)?;
    let LinkedInterface {
        index,
        namespace: None,
    } = tunnel.linked?
    else {
        return None;
    };
    let lower = node.links().find(|link| link.index == index)?;
    let whole = tunnel.mtu + overhead(tunnel)?;
    (whole > lower.mtu).then(|| (lower.name.clone(), lower.mtu))
}

/// The headers that a tunnel adds, at least: those over IPv4.
fn overhead(tunnel: &Link) -> Option<u32> {
    Some(match tunnel.kind.as_deref()? {
        "vxlan" | "geneve" => 50,
        "ipip" | "sit" => 20,
        "gre" => 24,
        "gretap" => 38,
        "ip6tnl" => 40,
        "wireguard" => 60,
        _ => return None,
    })
}
