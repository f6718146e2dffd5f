//! Laws of route messages.

use rtnetlink::{packet_core::NetlinkPayload, packet_route::RouteNetlinkMessage};

use super::{apply, kernel_route::FoundRoute, kernel_rule, message::Message, socket};
use crate::local_addresses::own_address;

/// A route of ours round-trips.
pub(crate) fn messages(input: &[u8]) {
    for message in socket::messages(input) {
        let NetlinkPayload::InnerMessage(message) = message.payload else { continue };
        let Message::Route(message) = message else { continue };
        match *message {
            RouteNetlinkMessage::NewRoute(route) => {
                let Some(found) = FoundRoute::new(route) else { continue };
                let _ = found.deletion();
                if let Some(route) = found.route {
                    assert_eq!(FoundRoute::new(route.message()).and_then(|found| found.route), Some(route));
                }
            }
            RouteNetlinkMessage::NewRule(rule) => {
                // A rule that equals the desired one is ours.
                for ipv4 in apply::FAMILIES {
                    let desired = kernel_rule::rule(ipv4, kernel_rule::table(&rule));
                    assert!(kernel_rule::is_ours(&rule) || !kernel_rule::is_same(&rule, &desired));
                }
            }
            RouteNetlinkMessage::NewAddress(address) => drop(own_address(&address)),
            _ => {}
        }
    }
}
