//! Complete and consistent dumps of nf_tables objects.

use std::io;

use super::constants::{NFNL_SUBSYS_NFTABLES, NFPROTO_INET, NFPROTO_UNSPEC};
use crate::netlink::{
    Attributes, NetlinkError, Socket, Writer,
    message::{dump_request, kind_of, messages},
};

/// How often an inconsistent dump is repeated.
const DUMP_TRIES: usize = 5;

impl Socket {
    /// Dumps all objects of one kind; `fill` restricts the request.
    pub(crate) fn dump(
        &mut self,
        kind: u8,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Dump, NetlinkError> {
        let request = request(kind, NFPROTO_INET, fill);
        for _ in 0..DUMP_TRIES {
            let mut dump = Dump {
                received: Vec::new(),
            };
            if self.stream(&request, |piece| dump.received.push(piece))? {
                return Ok(dump);
            }
        }
        let source = io::Error::other("something else keeps changing it");
        Err(NetlinkError::Socket {
            action: "dump the table",
            source,
        })
    }

    /// Streams all objects of one kind. An object that is changed meanwhile may be missed, or occur twice.
    pub(crate) fn pass(
        &mut self,
        kind: u8,
        fill: impl FnOnce(&mut Writer<'_>),
        take: impl FnMut(Attributes<'_>),
    ) -> Result<(), NetlinkError> {
        self.pass_family(kind, NFPROTO_INET, fill, take)
    }

    /// Streams all objects of one kind of a family.
    pub(crate) fn pass_family(
        &mut self,
        kind: u8,
        family: u8,
        fill: impl FnOnce(&mut Writer<'_>),
        mut take: impl FnMut(Attributes<'_>),
    ) -> Result<(), NetlinkError> {
        let take = |piece: Vec<u8>| {
            messages(&piece)
                .filter_map(|message| message.object(NFNL_SUBSYS_NFTABLES))
                .for_each(&mut take);
        };
        self.stream(&request(kind, family, fill), take).map(drop)
    }

    /// Dumps the tables of all families, with the family of each object.
    pub(crate) fn pass_families(
        &mut self,
        kind: u8,
        mut take: impl FnMut(u8, Attributes<'_>),
    ) -> Result<(), NetlinkError> {
        let take = |piece: Vec<u8>| {
            for message in messages(&piece) {
                let family = message.family();
                if let (Some(family), Some(object)) = (family, message.object(NFNL_SUBSYS_NFTABLES))
                {
                    take(family, object);
                }
            }
        };
        self.stream(&request(kind, NFPROTO_UNSPEC, |_| ()), take)
            .map(drop)
    }
}

fn request(kind: u8, family: u8, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    dump_request(kind_of(NFNL_SUBSYS_NFTABLES, kind), family, fill)
}

/// The result of a dump.
#[derive(Debug)]
pub(crate) struct Dump {
    received: Vec<Vec<u8>>,
}

impl Dump {
    /// The attributes of each object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Attributes<'_>> {
        let messages = self.received.iter().flat_map(|bytes| messages(bytes));
        messages.filter_map(|message| message.object(NFNL_SUBSYS_NFTABLES))
    }
}
