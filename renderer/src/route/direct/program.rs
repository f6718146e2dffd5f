//! Requests of direct mode to the kernel, and the meaning of its answers.

use nix::libc::{ENODEV, ENOENT, ESRCH};
use rtnetlink::packet_route::RouteNetlinkMessage;

use crate::{
    Report,
    netlink::NetlinkError,
    route::{
        apply::{self, Outcome},
        kernel_route::KernelRoute,
        message::Message,
        nexthop::{Hop, Nexthop, NexthopMessage},
        socket::{Change, RouteSocket},
    },
};

/// Changes, in the order in which the kernel must make them: groups before the routes that use them, and removals after the
/// routes that no longer do.
#[derive(Debug, Default)]
pub(super) struct Batch {
    groups: Vec<(Change, String)>,
    routes: Vec<(Change, KernelRoute)>,
    removals: Vec<Message>,
}

/// A change that the kernel refused.
#[derive(Debug)]
pub(super) struct FailedChange {
    /// The route, if it was to be added.
    pub(super) route: Option<KernelRoute>,
    /// The condition it waits for; a notification follows when it is met.
    pub(super) wait: Option<String>,
    /// The error.
    pub(super) problem: String,
}

impl Batch {
    pub(super) fn add_group(&mut self, id: u32, group: Nexthop) {
        let text = format!("add the group {id}");
        self.groups
            .push((Change::Make(NexthopMessage::new(id, group).into()), text));
    }

    pub(super) fn replace_group(&mut self, id: u32, group: Nexthop) {
        let text = format!("change the group {id}");
        self.groups
            .push((Change::Replace(NexthopMessage::new(id, group).into()), text));
    }

    pub(super) fn remove_group(&mut self, id: u32) {
        self.removals.push(NexthopMessage::deletion(id).into());
    }

    pub(super) fn add_route(&mut self, route: KernelRoute) {
        self.routes.push((
            Change::Make(RouteNetlinkMessage::NewRoute(route.message()).into()),
            route,
        ));
    }

    pub(super) fn replace_route(&mut self, route: KernelRoute) {
        self.routes.push((
            Change::Replace(RouteNetlinkMessage::NewRoute(route.message()).into()),
            route,
        ));
    }

    pub(super) fn remove_route(&mut self, route: KernelRoute) {
        // The group is removed after its route.
        self.removals
            .push(RouteNetlinkMessage::DelRoute(route.message()).into());
    }

    /// Makes the changes, and returns those that the kernel refused.
    pub(super) fn send(
        self,
        socket: &mut RouteSocket,
        report: &mut Report,
    ) -> Result<Vec<FailedChange>, NetlinkError> {
        let Self {
            groups,
            routes,
            removals,
        } = self;
        let mut changes = Vec::with_capacity(groups.len() + routes.len() + removals.len());
        let (group_changes, group_texts): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let (route_changes, routes): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        changes.extend(group_changes);
        changes.extend(route_changes);
        changes.extend(removals.into_iter().map(Change::Make));
        let results = apply::change(socket, changes, report)?;
        let (of_groups, rest) = results.split_at(group_texts.len());
        let (of_routes, of_removals) = rest.split_at(routes.len());
        let mut failed = Vec::new();
        for (text, errno) in group_texts.into_iter().zip(of_groups) {
            count(&mut report.added, *errno);
            if let Some(errno) = errno {
                let problem = format!("{text}: {}", apply::reason(*errno));
                failed.push(FailedChange {
                    route: None,
                    wait: None,
                    problem,
                });
            }
        }
        for (route, errno) in routes.into_iter().zip(of_routes) {
            count(&mut report.added, *errno);
            failed.extend(refusal(route, *errno));
        }
        for errno in of_removals {
            count(&mut report.removed, *errno);
            // The kernel removes a route together with its next hops.
            if let Some(errno) = errno.filter(|errno| ![ENOENT, ESRCH, ENODEV].contains(errno)) {
                let problem = format!("remove a route or a group: {}", apply::reason(errno));
                failed.push(FailedChange {
                    route: None,
                    wait: None,
                    problem,
                });
            }
        }
        Ok(failed)
    }
}

fn refusal(route: KernelRoute, errno: Option<i32>) -> Option<FailedChange> {
    let wait = match apply::outcome(&route, errno) {
        Outcome::Added => return None,
        Outcome::Conflict => Some(apply::conflict_reason(
            route.table,
            route.address,
            "route-direct-table",
        )),
        Outcome::NotReady(errno) => Some(apply::not_ready_reason(route.address, errno)),
        Outcome::Failed(_) => None,
    };
    let problem = format!("add {route}: {}", apply::reason(errno.unwrap_or_default()));
    Some(FailedChange {
        route: Some(route),
        wait,
        problem,
    })
}

fn count(counter: &mut usize, errno: Option<i32>) {
    *counter += usize::from(errno.is_none());
}

/// Adds next hops, and returns the kernel's answer for each.
#[expect(clippy::type_complexity, reason = "a list of pairs")]
pub(super) fn add_hops(
    socket: &mut RouteSocket,
    hops: Vec<(u32, Hop)>,
    report: &mut Report,
) -> Result<Vec<((u32, Hop), Option<i32>)>, NetlinkError> {
    let message = |(id, hop): &(u32, Hop)| NexthopMessage::new(*id, Nexthop::Hop(*hop)).into();
    let changes = hops.iter().map(message).map(Change::Make).collect();
    let results = apply::change(socket, changes, report)?;
    for errno in &results {
        count(&mut report.added, *errno);
    }
    Ok(hops.into_iter().zip(results).collect())
}

/// Deletes next hops and groups; missing ones are no error.
pub(in crate::route) fn delete_nexthops(
    socket: &mut RouteSocket,
    ids: Vec<u32>,
    report: &mut Report,
) -> Result<(), NetlinkError> {
    let deletions = ids
        .into_iter()
        .map(|id| Change::Make(NexthopMessage::deletion(id).into()))
        .collect();
    for errno in apply::change(socket, deletions, report)? {
        count(&mut report.removed, errno);
        if let Some(errno) = errno.filter(|errno| *errno != ENOENT) {
            let source = std::io::Error::from_raw_os_error(errno);
            return Err(NetlinkError::Socket {
                action: "delete a next hop",
                source,
            });
        }
    }
    Ok(())
}
