//! Streams the kernel's flow table, and deletes the stale flows of it.

use std::{io, net::IpAddr, sync::Arc};

use contiv_model::Protocol;
use nix::libc::ENOENT;

use super::{
    constants::{
        ASSURED, DELETE, FILTER, FILTER_ORIG_FLAGS, FILTER_PROTO_NUM, GET, ID, IP_V4_DST,
        IP_V4_SRC, IP_V6_DST, IP_V6_SRC, PROTO_DST_PORT, PROTO_NUM, PROTO_SRC_PORT, STATUS,
        STATUS_MASK, TUPLE_IP, TUPLE_ORIG, TUPLE_PROTO,
    },
    flow::Flow,
    stale::Scope,
};
use crate::{
    kernel::Kernel,
    netlink::{
        NetlinkError, Socket, Writer,
        message::{
            NFNL_SUBSYS_CTNETLINK, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, begin_message,
            dump_request, end_message, kind_of, messages,
        },
    },
    nftables::{Family, layout::Attempt},
};

/// How often an inconsistent dump is repeated.
const DUMP_TRIES: usize = 5;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Two sockets to the same table: one dumps while the other deletes.
#[derive(Debug)]
pub(super) struct FlowTable {
    dump: Socket,
    delete: Socket,
}

impl FlowTable {
    pub(super) fn open(kernel: &Arc<dyn Kernel>) -> Result<Self, NetlinkError> {
        Ok(Self {
            dump: Socket::open(kernel)?,
            delete: Socket::open(kernel)?,
        })
    }

    /// Examines the flows of one family and protocol, and deletes the stale ones. Returns their number.
    ///
    /// The table is never held in memory: it is streamed in pieces of 32 KiB, and stale flows are deleted piece by piece.
    pub(super) fn delete_stale(
        &mut self,
        family: Family,
        protocol: Protocol,
        scope: Scope,
        mut is_stale: impl FnMut(&Flow<'_>) -> bool,
    ) -> Result<usize, NetlinkError> {
        let Self { dump, delete } = self;
        let mut deleted = Ok(0);
        let mut each = |piece: Vec<u8>| {
            // After a failure the remaining messages of the dump must still be read.
            let Ok(count) = &mut deleted else { return };
            let objects =
                messages(&piece).filter_map(|message| message.object(NFNL_SUBSYS_CTNETLINK));
            let stale: Vec<Flow<'_>> = objects
                .filter_map(Flow::read)
                .filter(|flow| flow.protocol == protocol && is_stale(flow))
                .collect();
            match delete_flows(delete, &stale) {
                Ok(gone) => *count += gone,
                Err(error) => deleted = Err(error),
            }
        };
        let narrow = flows_request(family, |request| filter(request, protocol, scope));
        for _ in 0..DUMP_TRIES {
            let consistent = match dump.stream(&narrow, &mut each) {
                // This kernel does not support the filter.
                Err(NetlinkError::Refused { .. }) => {
                    dump.stream(&flows_request(family, |_| ()), &mut each)?
                }
                result => result?,
            };
            if consistent {
                break;
            }
        }
        deleted
    }

    /// Deletes the flow on which a client begins anew, if it is `wrong`. Returns the number of deleted flows.
    pub(super) fn delete_flow_of(
        &mut self,
        attempt: &Attempt,
        is_wrong: impl FnOnce(&Flow<'_>) -> bool,
    ) -> Result<usize, NetlinkError> {
        let request = request_for(attempt);
        self.dump.send(&request, "ask for a flow")?;
        // There is one message: the flow, or an error.
        let received = self.dump.receive("read a flow");
        let received = self.dump.drained(received)?;
        let Some(message) = messages(&received).next() else {
            return Ok(0);
        };
        if message.kind == NLMSG_ERROR {
            return match -message.error_code() {
                ENOENT => Ok(0),
                code => Err(refused("ask for a flow", code)),
            };
        }
        let flow = message.object(NFNL_SUBSYS_CTNETLINK).and_then(Flow::read);
        // The other direction of a flow could have the same ends.
        let is_its = |flow: &Flow<'_>| {
            (flow.protocol, flow.destination) == (attempt.protocol, attempt.destination)
                && is_wrong(flow)
        };
        match flow.filter(is_its) {
            Some(flow) => delete_flows(&mut self.delete, &[flow]),
            None => Ok(0),
        }
    }
}

/// Asks for the flow with this first packet.
fn request_for(attempt: &Attempt) -> Vec<u8> {
    let mut request = Vec::new();
    let kind = kind_of(NFNL_SUBSYS_CTNETLINK, GET);
    let family = number(Family::of(&attempt.destination.ip()));
    begin_message(&mut request, kind, NLM_F_REQUEST, 1, family, 0);
    Writer::new(&mut request).nested(TUPLE_ORIG, |tuple| {
        tuple.nested(TUPLE_IP, |addresses| {
            let mut write = |address: IpAddr, v4, v6| match address {
                IpAddr::V4(address) => addresses.bytes(v4, &address.octets()),
                IpAddr::V6(address) => addresses.bytes(v6, &address.octets()),
            };
            write(attempt.client.ip(), IP_V4_SRC, IP_V6_SRC);
            write(attempt.destination.ip(), IP_V4_DST, IP_V6_DST);
        });
        tuple.nested(TUPLE_PROTO, |ports| {
            ports.u8(PROTO_NUM, attempt.protocol.number());
            ports.bytes(PROTO_SRC_PORT, &attempt.client.port().to_be_bytes());
            ports.bytes(PROTO_DST_PORT, &attempt.destination.port().to_be_bytes());
        });
    });
    end_message(&mut request, 0);
    request
}

fn refused(subject: &str, code: i32) -> NetlinkError {
    let source = io::Error::from_raw_os_error(code);
    NetlinkError::Refused {
        subject: subject.to_owned(),
        source,
        refusals: Vec::new(),
    }
}

const fn number(family: Family) -> u8 {
    match family {
        Family::V4 => AF_INET,
        Family::V6 => AF_INET6,
    }
}

fn flows_request(family: Family, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    dump_request(kind_of(NFNL_SUBSYS_CTNETLINK, GET), number(family), fill)
}

/// Asks the kernel to leave out flows of no interest. Kernels before 5.8 ignore the protocol, those before 5.13 the status; so
/// the reader checks everything again.
fn filter(request: &mut Writer<'_>, protocol: Protocol, scope: Scope) {
    request.nested(TUPLE_ORIG, |tuple| {
        tuple.nested(TUPLE_PROTO, |ports| ports.u8(PROTO_NUM, protocol.number()));
    });
    request.nested(FILTER, |filter| {
        filter.bytes(FILTER_ORIG_FLAGS, &FILTER_PROTO_NUM.to_ne_bytes());
    });
    if scope == Scope::Unanswered {
        request.u32(STATUS, 0);
        request.u32(STATUS_MASK, ASSURED);
    }
}

/// Deletes exactly these flows, and no newer flow with the same tuple. Returns how many still existed.
fn delete_flows(socket: &mut Socket, flows: &[Flow<'_>]) -> Result<usize, NetlinkError> {
    if flows.is_empty() {
        return Ok(0);
    }
    let mut request = Vec::new();
    let kind = kind_of(NFNL_SUBSYS_CTNETLINK, DELETE);
    for (sequence, flow) in (1..).zip(flows) {
        let start = request.len();
        let family = number(Family::of(&flow.destination.ip()));
        begin_message(
            &mut request,
            kind,
            NLM_F_REQUEST | NLM_F_ACK,
            sequence,
            family,
            0,
        );
        let mut writer = Writer::new(&mut request);
        writer.bytes(TUPLE_ORIG, flow.identity.tuple);
        writer.bytes(ID, flow.identity.id);
        end_message(&mut request, start);
    }
    socket.send(&request, "delete stale flows")?;
    let (mut acknowledged, mut deleted, mut refusal) = (0, 0, None);
    while acknowledged < flows.len() {
        let received = socket.receive("receive whether stale flows were deleted");
        let received = socket.drained(received)?;
        for message in messages(&received).filter(|message| message.kind == NLMSG_ERROR) {
            acknowledged += 1;
            match -message.error_code() {
                0 => deleted += 1,
                // It has ended already.
                ENOENT => {}
                code => refusal = Some(code),
            }
        }
    }
    match refusal {
        None => Ok(deleted),
        Some(code) => Err(refused("delete a stale flow", code)),
    }
}
