//! Reads our routes and rules back, and compares them with what services require.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contiv_model::Snapshot;

use super::{
    Links, RouteOptions, apply,
    desired::Desired,
    direct::{self, DesiredServices},
    kernel_route::{FoundRoute, KernelRoute},
    kernel_rule,
    plan::Destination,
    socket::RouteSocket,
};
use crate::{
    RenderError,
    kernel::Kernel,
    linux::Linux,
    netlink::NetlinkError,
    verify::{Deviation, Drift, Verification, Verifier},
};

/// Compares the kernel's routes with our protocol number with those that services require. Has its own socket.
#[derive(Debug)]
pub struct RouteVerifier {
    kernel: Arc<dyn Kernel>,
    options: RouteOptions,
    socket: Option<RouteSocket>,
}

impl RouteVerifier {
    /// A verifier for the kernel of this network namespace. It opens its socket at the first call.
    pub fn new(options: RouteOptions) -> Self {
        Self::on(Linux::shared(), options)
    }

    /// A verifier for this kernel.
    pub fn on(kernel: Arc<dyn Kernel>, options: RouteOptions) -> Self {
        Self {
            kernel,
            options,
            socket: None,
        }
    }

    /// All our routes in the kernel, in the format of `ip route`; in brackets those of another form.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn routes(&mut self) -> Result<Vec<String>, RenderError> {
        let found = self.socket().and_then(apply::our_routes);
        let found = found.map_err(|error| error.with_advice("read the routes"))?;
        let text = |route: &FoundRoute| match route.route {
            Some(route) => route.to_string(),
            None => format!("[a route of another form in table {}]", route.table()),
        };
        Ok(found.iter().map(text).collect())
    }

    /// True if this node's own connections to an address get far enough to be translated: the kernel looks up a route first.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn has_route(&mut self, address: IpAddr) -> Result<bool, RenderError> {
        let found = self
            .socket()
            .and_then(|socket| socket.look_up(vec![direct::request(address)]));
        let found = found.map_err(|error| error.with_advice("look a route up"))?;
        Ok(found.iter().any(Option::is_some))
    }

    fn socket(&mut self) -> Result<&mut RouteSocket, NetlinkError> {
        match self.socket.take() {
            Some(socket) => Ok(self.socket.insert(socket)),
            None => Ok(self.socket.insert(RouteSocket::open(&self.kernel)?)),
        }
    }

    fn try_verify(&mut self, snapshot: &Snapshot) -> Result<Verification, NetlinkError> {
        let options = self.options;
        let desired = Desired::new(snapshot, options);
        let socket = self.socket()?;
        let links = Links::find(socket, &options, &desired)?;
        let routes = desired
            .destinations()
            .filter_map(|to| Some((links.route(&options, to)?, to)));
        let mut routes: BTreeMap<KernelRoute, Destination> = routes.collect();
        let found = apply::our_routes(socket)?;
        let of_direct = found.iter().filter_map(|found| found.route);
        let is_direct = |route: &KernelRoute| direct::is_direct(options.direct, *route);
        let of_direct = direct::routed_addresses(of_direct.filter(is_direct));
        // Routes of a service that returned to another renderer may stay.
        let direct = DesiredServices::new(snapshot, |address| of_direct.contains(&address));
        let mut unrouted: BTreeSet<IpAddr> = direct.possible_addresses().collect();
        let checked = routes.len() + unrouted.len();
        let mut verification = Verification {
            checked,
            ..Verification::default()
        };
        let mut report = |table, element, destination: Option<Destination>, deviation| {
            let service =
                destination.and_then(|destination| desired.owners(destination).next().cloned());
            let place = format!("table {table}");
            verification.drift.insert(Drift {
                service,
                place,
                element,
                deviation,
            });
        };
        for found in found {
            match found.route {
                Some(route) if routes.remove(&route).is_some() => {}
                // Its target is known only after looking up each backend.
                Some(route) if is_direct(&route) && direct.target(route.address).is_some() => {
                    unrouted.remove(&route.address);
                }
                Some(route) => report(route.table, route.to_string(), None, Deviation::Foreign),
                None => report(
                    found.table(),
                    "a route that contiv does not write".to_owned(),
                    None,
                    Deviation::Foreign,
                ),
            }
        }
        for (route, destination) in routes {
            report(
                route.table,
                route.to_string(),
                Some(destination),
                Deviation::Missing,
            );
        }
        for address in unrouted {
            let (service, place) = (
                direct.owner(address).cloned(),
                format!("table {}", options.direct.table),
            );
            let element = format!("a route to {address}");
            verification.drift.insert(Drift {
                service,
                place,
                element,
                deviation: Deviation::Missing,
            });
        }
        for ipv4 in apply::FAMILIES {
            let desired = apply::rules(ipv4, &options, !direct.is_empty());
            let found = apply::our_rules(socket, ipv4)?;
            let is_desired = |rule| {
                desired
                    .iter()
                    .any(|desired| kernel_rule::is_same(rule, desired))
            };
            let family = if ipv4 { "IPv4" } else { "IPv6" };
            let mut report = |table: u32, deviation| {
                let (place, element) = (
                    format!("rules of {family}"),
                    format!("the rule to table {table}"),
                );
                verification.drift.insert(Drift {
                    service: None,
                    place,
                    element,
                    deviation,
                });
            };
            for rule in desired
                .iter()
                .filter(|desired| !found.iter().any(|rule| kernel_rule::is_same(rule, desired)))
            {
                report(kernel_rule::table(rule), Deviation::Missing);
            }
            for rule in found.iter().filter(|rule| !is_desired(rule)) {
                report(kernel_rule::table(rule), Deviation::Foreign);
            }
            verification.checked += found.len();
        }
        Ok(verification)
    }
}

impl Verifier for RouteVerifier {
    fn verify(&mut self, snapshot: &Snapshot) -> Result<Verification, RenderError> {
        let result = self.try_verify(snapshot);
        if result.is_err() {
            self.socket = None;
        }
        result.map_err(|error| error.with_advice("verify the routes"))
    }
}
