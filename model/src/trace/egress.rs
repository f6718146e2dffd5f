//! Connections of pods to destinations outside the cluster.

use std::net::IpAddr;

use super::Client;
use crate::Snapshot;

/// True if this node masquerades a packet of this client to this address: its source becomes an address of the node. `to` is
/// the destination after translation: a backend, or the destination of the flow if that is no service.
pub(super) fn is_masqueraded(snapshot: &Snapshot, client: Client, to: IpAddr) -> bool {
    let Some(excluded) = &snapshot.node.non_masquerade_cidrs else {
        return false;
    };
    // The addresses of a service that is not translated: routes lead from them to its backends.
    let is_routed_service = || {
        let mut services = snapshot.services.values();
        services
            .any(|it| !it.assignment.addresses.translates() && it.addresses().any(|one| one == to))
    };
    client == Client::LocalPod
        && !to.is_unspecified()
        && !snapshot.node.is_local_address(to)
        && !excluded.iter().any(|range| range.contains(to))
        && !is_routed_service()
}
