//! Follows packets with the rules of the real kernel.

use std::{fmt, net::IpAddr};

use contiv_model::InterfaceName;
use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};

use super::{
    Network, OwnVerdict, Packet, PathError, SizeError, Walk, follow, ip_sets,
    kernel_socket::KernelSocket,
    lookups::{MAX_LISTED_ELEMENTS, RuleLookups, SetElement},
    ruleset::{Data, IpSetMatch, Ruleset, SetRef, decode_data, limits_of_element},
    state::PacketState,
};
use crate::{
    kernel::NetlinkProtocol,
    linux::Linux,
    netlink::{Attributes, NetlinkError, Socket},
    nftables::netlink::{
        constants::{LIST_ELEM, data, elem, msg},
        set_elements, write_set_request,
    },
};

/// How often the rules are read again if they change while packets are followed.
const MAX_READS: usize = 3;

/// Follows packets through the rules of the network namespace in which it was opened. Changes nothing.
pub struct PathInspector {
    kernel: KernelLookups,
    ruleset: Ruleset,
    /// How often the rules were read again.
    reads: usize,
}

impl fmt::Debug for PathInspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathInspector").finish_non_exhaustive()
    }
}

impl PathInspector {
    /// Reads the rules of all tables. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn open() -> Result<Self, PathError> {
        let socket = Socket::open(&Linux::shared()).map_err(|error| failed(&error))?;
        let mut kernel = KernelLookups {
            socket,
            ip_sets: None,
        };
        let ruleset = Ruleset::read(&mut kernel.socket)?;
        Ok(Self {
            kernel,
            ruleset,
            reads: 0,
        })
    }

    /// The rules that were read last.
    pub fn ruleset(&self) -> &Ruleset {
        &self.ruleset
    }

    /// Follows the first packet of a connection, with what the agent's table does with it. If rules change meanwhile they are read again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn walk_first(
        &mut self,
        packet: &Packet,
        own: OwnVerdict,
        network: &mut dyn Network,
    ) -> Result<Walk, PathError> {
        self.walk(|ruleset, kernel| follow::walk_first(ruleset, packet, own, network, kernel))
    }

    /// Follows the server's answer to a first packet that went this way; none if it reached no server.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn walk_answer(
        &mut self,
        packet: &Packet,
        first: &Walk,
        network: &mut dyn Network,
    ) -> Result<Option<Walk>, PathError> {
        self.walk(|ruleset, kernel| follow::walk_answer(ruleset, packet, first, network, kernel))
    }

    /// Follows the ICMP error about a packet of a connection that is too large; none if the first packet reached no server, or if the
    /// error is for this node itself.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn walk_size_error(
        &mut self,
        packet: &Packet,
        first: &Walk,
        error: SizeError,
        network: &mut dyn Network,
    ) -> Result<Option<Walk>, PathError> {
        self.walk(|ruleset, kernel| {
            follow::walk_size_error(ruleset, packet, first, error, network, kernel)
        })
    }

    /// Walks until no rule changes meanwhile, or a few times: another program may change elements all the time.
    fn walk<T>(
        &mut self,
        mut walk: impl FnMut(&Ruleset, &mut KernelLookups) -> Result<T, PathError>,
    ) -> Result<T, PathError> {
        loop {
            let walked = walk(&self.ruleset, &mut self.kernel)?;
            let generation = self.kernel.socket.generation();
            let generation = generation.map_err(|error| failed(&error))?;
            if generation == self.ruleset.generation || self.reads == MAX_READS {
                return Ok(walked);
            }
            self.ruleset = Ruleset::read(&mut self.kernel.socket)?;
            self.reads += 1;
        }
    }
}

fn failed(error: &NetlinkError) -> PathError {
    PathError(error.with_advice("read the tables").to_string())
}

/// What rules look up, answered by the kernel.
struct KernelLookups {
    socket: Socket,
    /// Opened when a rule needs it first.
    ip_sets: Option<KernelSocket>,
}

impl KernelLookups {
    /// Asks for one element of a set: the one that `fill` describes.
    fn get_element(
        &mut self,
        set: SetRef<'_>,
        fill: impl FnOnce(&mut crate::netlink::Writer<'_>),
    ) -> Result<Option<SetElement>, PathError> {
        let answer = self.socket.get_of_family(
            msg::GETSETELEM,
            set.family,
            |message| {
                write_set_request(message, set.table, set.set);
                message.nested(elem::LIST_ELEMENTS, |list| list.nested(LIST_ELEM, fill));
            },
            |answer| set_elements(answer).next().map(decode_element),
        );
        match answer {
            Ok(Some(Some(element))) => element,
            Ok(_) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// An element; none if it has expired, or is the end of an interval.
pub(super) fn decode_element(element: Attributes<'_>) -> Result<Option<SetElement>, PathError> {
    let is_expired = element
        .get(elem::EXPIRATION)
        .is_some_and(|left| left.iter().all(|byte| *byte == 0) && !left.is_empty());
    let flags = element.u32(elem::FLAGS).unwrap_or_default();
    if is_expired || flags & elem::FLAG_INTERVAL_END != 0 {
        return Ok(None);
    }
    let data = match element.nested(elem::DATA) {
        None => Data::None,
        Some(data) => decode_data(data)
            .ok_or_else(|| PathError("an element has data of an unknown kind".to_owned()))?,
    };
    Ok(Some(SetElement {
        data,
        limits: limits_of_element(element),
    }))
}

impl RuleLookups for KernelLookups {
    fn find_element(
        &mut self,
        set: SetRef<'_>,
        key: &[u8],
    ) -> Result<Option<SetElement>, PathError> {
        let by_key = self.get_element(set, |element| {
            element.nested(elem::KEY, |message| message.bytes(data::VALUE, key));
        })?;
        if by_key.is_some() {
            return Ok(by_key);
        }
        self.get_element(set, |element| {
            element.u32(elem::FLAGS, elem::FLAG_CATCHALL);
        })
    }

    fn list_elements(&mut self, set: SetRef<'_>) -> Result<Option<Vec<Data>>, PathError> {
        let mut listed = Vec::new();
        let mut count = 0_usize;
        let take = |message: Attributes<'_>| {
            for element in set_elements(message) {
                count += 1;
                if count <= MAX_LISTED_ELEMENTS {
                    listed.push(decode_element(element));
                }
            }
        };
        let fill = |message: &mut crate::netlink::Writer<'_>| {
            write_set_request(message, set.table, set.set);
        };
        self.socket
            .pass_family(msg::GETSETELEM, set.family, fill, take)
            .map_err(|error| failed(&error))?;
        if count > MAX_LISTED_ELEMENTS {
            return Ok(None);
        }
        let listed: Vec<Option<SetElement>> = listed.into_iter().collect::<Result<_, _>>()?;
        Ok(Some(
            listed
                .into_iter()
                .flatten()
                .map(|element| element.data)
                .collect(),
        ))
    }

    fn is_in_ip_set(&mut self, set: &IpSetMatch, packet: &PacketState) -> Option<bool> {
        if self.ip_sets.is_none() {
            self.ip_sets = KernelSocket::open(NetlinkProtocol::Netfilter).ok();
        }
        let socket = self.ip_sets.as_mut()?;
        ip_sets::contains(socket, set, packet).ok().flatten()
    }

    fn interface_index(&mut self, name: &InterfaceName) -> Option<u32> {
        if_nametoindex(&*name.0).ok()
    }

    fn interface_address(&mut self, name: &InterfaceName, is_v4: bool) -> Option<IpAddr> {
        let mut all = getifaddrs().ok()?;
        all.find_map(|interface| {
            if interface.interface_name != *name.0 {
                return None;
            }
            let address = interface.address?;
            if is_v4 {
                address
                    .as_sockaddr_in()
                    .map(|address| IpAddr::V4(address.ip()))
            } else {
                // Packets are not redirected to the address of the link.
                let address = address.as_sockaddr_in6()?.ip();
                (!address.is_unicast_link_local()).then_some(IpAddr::V6(address))
            }
        })
    }
}
