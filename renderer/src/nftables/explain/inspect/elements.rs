//! Looks up elements in the kernel: the cost is the same however many there are.

use std::{collections::BTreeSet, net::IpAddr};

use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

use crate::{
    linux::Linux,
    nftables::{
        desired::element::{Key, Value},
        explain::evaluate::{SetLookup, Tables},
        kernel::{encode, read},
        layout::{BaseChain, Form, Set, TABLE},
        netlink::{
            Attributes, NetlinkError, Socket, Writer,
            constants::{LIST_ELEM, chain as chain_attribute, elem, msg},
        },
    },
};

/// The sets of the kernel's table.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) socket: Socket,
    /// The addresses of this node's interfaces.
    own: BTreeSet<IpAddr>,
}

impl Kernel {
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::open(&Linux::shared())?;
        let failed = |errno| NetlinkError::Socket {
            action: "list the addresses of this node",
            source: errno,
        };
        let addresses = getifaddrs().map_err(|errno| failed(errno.into()))?;
        let own = addresses
            .filter_map(|interface| ip(&interface.address?))
            .collect();
        Ok(Self { socket, own })
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()))
    })
}

impl Tables for Kernel {
    type Error = NetlinkError;

    fn look_up(&mut self, set: Set, key: Key) -> Result<SetLookup, NetlinkError> {
        let read = |answer: Attributes<'_>| {
            let mut list = answer.nested(elem::LIST_ELEMENTS)?.iter();
            let (_, element) = list.find(|(kind, _)| *kind == LIST_ELEM)?;
            Some(match set.kind.form() {
                // The kernel found the range, so it is the right one, however it is split.
                Form::Ranges | Form::Interfaces | Form::Sources => SetLookup::Value(Value::None),
                _ => read::parse_element(set, Attributes(element))
                    .map_or(SetLookup::Foreign, |element| {
                        SetLookup::Value(element.value)
                    }),
            })
        };
        let question = |message: &mut Writer<'_>| encode::write_question(set, &key, message);
        let answer = self.socket.get(msg::GETSETELEM, question, read)?;
        Ok(answer.flatten().unwrap_or(SetLookup::Nothing))
    }

    fn has_chain(&mut self, chain: BaseChain) -> Result<bool, NetlinkError> {
        let question = |message: &mut Writer<'_>| {
            message.text(chain_attribute::TABLE, TABLE);
            message.text(chain_attribute::NAME, &chain.to_string());
        };
        Ok(self.socket.get(msg::GETCHAIN, question, |_| ())?.is_some())
    }

    fn is_local_address(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.own.contains(&address)
    }
}
