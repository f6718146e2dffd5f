//! Connections of pods to destinations outside the cluster.

use std::net::IpAddr;

use super::Client;
use crate::Snapshot;

/// True if a packet of this client that is routed to this address gets the address of this node. It is a destination after
/// translation: a backend, or the destination of the flow if that is no service.
pub(super) fn is_masqueraded(snapshot: &Snapshot, client: Client, to: IpAddr) -> bool {
    let Some(kept) = &snapshot.node.non_masquerade_cidrs else { return false };
    // Routes lead from these addresses to backends.
    let is_routed = || {
        let mut services = snapshot.services.values();
        services.any(|it| !it.assignment.addresses.translates() && it.addresses().any(|one| one == to))
    };
    client == Client::LocalPod
        && !to.is_unspecified()
        && !snapshot.node.is_own(to)
        && !kept.iter().any(|range| range.contains(to))
        && !is_routed()
}
