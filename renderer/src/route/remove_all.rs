//! Removes everything of ours.

use rtnetlink::packet_route::RouteNetlinkMessage;

use super::{
    apply::{FAMILIES, change_rules, our_routes, our_rules, remove},
    direct,
    nexthop::{Nexthop, NexthopMessage},
    socket::RouteSocket,
};
use crate::{Report, netlink::NetlinkError};

/// Removes everything of ours, in all tables.
pub(super) fn remove_all(socket: &mut RouteSocket) -> Result<Report, NetlinkError> {
    let mut report = Report::default();
    // Rules first, so that no connection sees half of the routes.
    let mut rules = Vec::new();
    for ipv4 in FAMILIES {
        rules.extend(
            our_rules(socket, ipv4)?
                .into_iter()
                .map(RouteNetlinkMessage::DelRule),
        );
    }
    change_rules(socket, rules, &mut report)?;
    let found = our_routes(socket)?;
    remove(socket, found.iter(), &mut report)?;
    let ours = socket
        .dump_nexthops()?
        .into_iter()
        .filter(|found| found.is_ours);
    // Groups first: the kernel removes a group with its last member.
    let is_group = |found: &NexthopMessage| matches!(found.nexthop, Some(Nexthop::Group { .. }));
    let (groups, hops): (Vec<_>, Vec<_>) = ours.partition(is_group);
    let ids = groups
        .into_iter()
        .chain(hops)
        .map(|found| found.id)
        .collect();
    direct::delete_nexthops(socket, ids, &mut report)?;
    Ok(report)
}
