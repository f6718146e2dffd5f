//! Properties of route messages, rules and addresses.

use rtnetlink::{packet_core::NetlinkPayload, packet_route::RouteNetlinkMessage};

use super::{apply, kernel_route::FoundRoute, kernel_rule, message::Message, socket};
use crate::local_addresses::own_address;

/// Reads each message of `input`. A route of this agent must round-trip, and a rule that equals a desired one must be recognized
/// as this agent's.
pub(crate) fn messages(input: &[u8]) {
    for message in socket::messages(input) {
        let NetlinkPayload::InnerMessage(message) = message.payload else {
            continue;
        };
        let Message::Route(message) = message else {
            continue;
        };
        match *message {
            RouteNetlinkMessage::NewRoute(route) => {
                let Some(found) = FoundRoute::new(route) else {
                    continue;
                };
                let _ = found.deletion();
                if let Some(route) = found.route {
                    assert_eq!(
                        FoundRoute::new(route.message()).and_then(|found| found.route),
                        Some(route)
                    );
                }
            }
            RouteNetlinkMessage::NewRule(rule) => {
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
