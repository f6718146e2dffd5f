//! Requests to the kernel, and the meaning of its answers.

use std::{collections::BTreeMap, net::IpAddr, time::Instant};

use nix::libc::{
    EACCES, EADDRNOTAVAIL, EAFNOSUPPORT, EEXIST, EINVAL, ENETDOWN, ENODEV, ENOENT, EOPNOTSUPP,
    ESRCH,
};
use rtnetlink::packet_route::{
    RouteNetlinkMessage, address::AddressMessage, route::RouteMessage, rule::RuleMessage,
};

use super::{
    kernel_route::{self, FoundRoute, KernelRoute, family},
    kernel_rule,
    options::RouteOptions,
    plan::Destination,
    socket::{Change, RouteSocket},
};
use crate::{Report, local_addresses::own_address, netlink::NetlinkError};

/// Both families, as `ipv4`.
pub(super) const FAMILIES: [bool; 2] = [true, false];

/// Changes of routes. Removals come first.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) remove: Vec<RouteMessage>,
    pub(super) add: Vec<(Destination, KernelRoute)>,
}

/// The result of adding a route.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Added,
    /// A foreign route exists, and stays.
    Conflict,
    /// It depends on a link or an address that is not ready. The kernel sends a notification when it is.
    NotReady(i32),
    /// It failed for a reason that may be temporary.
    Failed(String),
}

/// Makes the changes, and counts them.
pub(super) fn execute(
    socket: &mut RouteSocket,
    plan: Plan,
    report: &mut Report,
    problems: &mut Vec<String>,
) -> Result<Vec<(Destination, KernelRoute, Outcome)>, NetlinkError> {
    let Plan { remove, add } = plan;
    let removals = remove.len();
    let mut changes: Vec<_> = remove
        .into_iter()
        .map(RouteNetlinkMessage::DelRoute)
        .collect();
    changes.extend(
        add.iter()
            .map(|(_, route)| RouteNetlinkMessage::NewRoute(route.message())),
    );
    let results = change(
        socket,
        changes
            .into_iter()
            .map(|it| Change::Make(it.into()))
            .collect(),
        report,
    )?;
    let (removed, added) = results.split_at(removals.min(results.len()));
    for result in removed {
        match result {
            None => report.removed += 1,
            // It was removed already, by another process or together with its link.
            Some(ESRCH | ENOENT | ENODEV) => {}
            Some(errno) => problems.push(format!("remove a route: {}", reason(*errno))),
        }
    }
    let outcomes: Vec<_> = add
        .into_iter()
        .zip(added)
        .map(|((destination, route), result)| (destination, route, outcome(&route, *result)))
        .collect();
    report.added += outcomes
        .iter()
        .filter(|(.., outcome)| *outcome == Outcome::Added)
        .count();
    Ok(outcomes)
}

/// Makes changes. Returns the error number of each; none if it succeeded.
pub(super) fn change(
    socket: &mut RouteSocket,
    changes: Vec<Change>,
    report: &mut Report,
) -> Result<Vec<Option<i32>>, NetlinkError> {
    if !changes.is_empty() && report.sent.is_none() {
        report.sent = Some(Instant::now());
    }
    let sent = socket.change(changes)?;
    report.transactions += sent.pieces;
    report.bytes += sent.bytes;
    Ok(sent.results)
}

/// The meaning of the kernel's answer to an addition.
pub(super) fn outcome(route: &KernelRoute, errno: Option<i32>) -> Outcome {
    match errno {
        None => Outcome::Added,
        Some(EEXIST) => Outcome::Conflict,
        Some(errno) if is_not_ready(errno) => Outcome::NotReady(errno),
        Some(errno) => Outcome::Failed(format!("add {route}: {}", reason(errno))),
    }
}

/// True if the object depends on a link or an address that is not ready. The kernel sends a notification when it is.
pub(super) const fn is_not_ready(errno: i32) -> bool {
    matches!(
        errno,
        EACCES | ENODEV | EINVAL | EOPNOTSUPP | EAFNOSUPPORT | EADDRNOTAVAIL | ENETDOWN
    )
}

/// All our routes, in all tables.
pub(super) fn our_routes(socket: &mut RouteSocket) -> Result<Vec<FoundRoute>, NetlinkError> {
    let mut found = Vec::new();
    for ipv4 in FAMILIES {
        for message in socket.dump(kernel_route::dump_request(ipv4))? {
            // A kernel without a family answers for all families.
            if let RouteNetlinkMessage::NewRoute(route) = message
                && route.header.address_family == family(ipv4)
            {
                found.extend(FoundRoute::new(route));
            }
        }
    }
    Ok(found)
}

/// Adds our rules and removes all other rules with our protocol. `has_direct`: services are routed directly.
pub(super) fn set_rules(
    socket: &mut RouteSocket,
    options: &RouteOptions,
    has_direct: bool,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    let mut changes = Vec::new();
    for ipv4 in FAMILIES {
        let mut missing = rules(ipv4, options, has_direct);
        for rule in our_rules(socket, ipv4)? {
            match missing
                .iter()
                .position(|desired| kernel_rule::is_same(&rule, desired))
            {
                Some(position) => drop(missing.swap_remove(position)),
                None => changes.push(RouteNetlinkMessage::DelRule(rule)),
            }
        }
        changes.extend(missing.into_iter().map(RouteNetlinkMessage::NewRule));
    }
    change_rules(socket, changes, report)
}

/// The desired rules of a family.
pub(super) fn rules(ipv4: bool, options: &RouteOptions, has_direct: bool) -> Vec<RuleMessage> {
    let reach = options
        .reach_from_node
        .then(|| kernel_rule::rule(ipv4, options.node_table));
    let direct = has_direct.then(|| kernel_rule::direct_rule(ipv4, options.direct.table));
    reach.into_iter().chain(direct).collect()
}

/// Removes our routes in one table.
pub(super) fn remove_from(socket: &mut RouteSocket, table: u32) -> Result<Report, NetlinkError> {
    let mut report = Report::default();
    let found = our_routes(socket)?;
    remove(
        socket,
        found.iter().filter(|found| found.table() == table),
        &mut report,
    )?;
    Ok(report)
}

pub(super) fn remove<'a>(
    socket: &mut RouteSocket,
    found: impl Iterator<Item = &'a FoundRoute>,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    let plan = Plan {
        remove: found.map(FoundRoute::deletion).collect(),
        add: Vec::new(),
    };
    let mut problems = Vec::new();
    execute(socket, plan, report, &mut problems)?;
    match problems.into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(NetlinkError::Socket {
            action: "change routes",
            source: std::io::Error::other(problem),
        }),
    }
}

/// The addresses of this node's interfaces, each with the index of its interface.
pub(super) fn interfaces(socket: &mut RouteSocket) -> Result<BTreeMap<IpAddr, u32>, NetlinkError> {
    let mut interfaces = BTreeMap::new();
    for ipv4 in FAMILIES {
        let mut request = AddressMessage::default();
        request.header.family = family(ipv4);
        for message in socket.dump(RouteNetlinkMessage::GetAddress(request))? {
            let RouteNetlinkMessage::NewAddress(message) = message else {
                continue;
            };
            if let Some(address) = own_address(&message) {
                interfaces.insert(address, message.header.index);
            }
        }
    }
    Ok(interfaces)
}

pub(super) fn our_rules(
    socket: &mut RouteSocket,
    ipv4: bool,
) -> Result<Vec<RuleMessage>, NetlinkError> {
    let rules = socket
        .dump(kernel_rule::dump_request(ipv4))?
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewRule(rule) => Some(rule),
            _ => None,
        });
    Ok(rules
        .filter(|rule| rule.header.family == family(ipv4) && kernel_rule::is_ours(rule))
        .collect())
}

pub(super) fn change_rules(
    socket: &mut RouteSocket,
    changes: Vec<RouteNetlinkMessage>,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    let is_addition: Vec<bool> = changes
        .iter()
        .map(|change| matches!(change, RouteNetlinkMessage::NewRule(_)))
        .collect();
    let changes = changes
        .into_iter()
        .map(|it| Change::Make(it.into()))
        .collect();
    for (is_addition, result) in is_addition
        .into_iter()
        .zip(change(socket, changes, report)?)
    {
        count_rule(is_addition, result, report)?;
    }
    Ok(())
}

/// Counts a changed rule. It is no failure that the rule is already there or gone, or that the kernel lacks its family.
fn count_rule(
    is_addition: bool,
    errno: Option<i32>,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    match errno {
        None if is_addition => report.added += 1,
        None => report.removed += 1,
        Some(EEXIST | EOPNOTSUPP | EAFNOSUPPORT) if is_addition => {}
        Some(ENOENT) if !is_addition => {}
        Some(errno) => {
            let source = std::io::Error::from_raw_os_error(errno);
            return Err(NetlinkError::Socket {
                action: "change the routing rules",
                source,
            });
        }
    }
    Ok(())
}

/// The reason of a rejected service: the table has a foreign route to the address. `key` is the setting of the table.
pub(super) fn conflict_reason(table: u32, address: IpAddr, key: &str) -> String {
    format!(
        "table {table} has a route to {address} that another program made; remove that one, or choose another table by {key}"
    )
}

/// The reason of a rejected service: the kernel does not accept a route yet.
pub(super) fn not_ready_reason(address: IpAddr, errno: i32) -> String {
    format!(
        "the kernel does not accept the route to {address} yet: {}",
        reason(errno)
    )
}

/// The text of an error number.
pub(super) fn reason(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

#[cfg(test)]
mod tests {
    use nix::libc::EPERM;

    use super::*;
    use crate::route::{kernel_route::NextHop, plan::Purpose};

    #[test]
    fn rule_that_is_there_or_gone_already_is_no_failure() {
        let counted = |is_addition, errno| {
            let mut report = Report::default();
            let result = count_rule(is_addition, errno, &mut report);
            result.ok().map(|()| (report.added, report.removed))
        };
        assert_eq!(
            (counted(true, None), counted(false, None)),
            (Some((1, 0)), Some((0, 1)))
        );
        for errno in [EEXIST, EOPNOTSUPP, EAFNOSUPPORT] {
            assert_eq!(
                (counted(true, Some(errno)), counted(false, Some(errno))),
                (Some((0, 0)), None)
            );
        }
        assert_eq!(
            (counted(true, Some(ENOENT)), counted(false, Some(ENOENT))),
            (None, Some((0, 0)))
        );
        assert_eq!(
            (counted(true, Some(EPERM)), counted(false, Some(EPERM))),
            (None, None)
        );
    }

    #[test]
    fn refusal_is_a_failure_only_without_a_later_notification() {
        let address = [198, 51, 100, 1].into();
        let route = KernelRoute {
            table: 67,
            address,
            next_hop: NextHop::Blackhole,
        };
        assert_eq!(outcome(&route, None), Outcome::Added);
        assert_eq!(outcome(&route, Some(EEXIST)), Outcome::Conflict);
        assert_eq!(outcome(&route, Some(ENETDOWN)), Outcome::NotReady(ENETDOWN));
        let Outcome::Failed(problem) = outcome(&route, Some(EPERM)) else {
            panic!("not a failure")
        };
        assert!(
            problem.starts_with("add blackhole 198.51.100.1 table 67"),
            "{problem}"
        );
        assert!(
            Destination {
                purpose: Purpose::Advertise,
                address
            } < Destination {
                purpose: Purpose::Reach,
                address
            }
        );
    }
}
