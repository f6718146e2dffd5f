//! Raw netlink to the kernel's nf_tables: sends encoded batches and receives a notification of every commit.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use contiv_tests::lab::{LabError, Result};
use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockopt,
        recv, send, setsockopt, socket, sockopt,
    },
    time::{TimeVal, TimeValLike},
};

/// `NFNLGRP_NFTABLES` as a bit of the address. Source: the kernel's `include/uapi/linux/netfilter/nfnetlink.h`.
const NFTABLES_GROUP: u32 = 1 << (7 - 1);
const SEND_BUFFER: usize = 256 << 20;
const RECEIVE_BUFFER: usize = 64 << 20;
/// `NLMSG_ERROR`: the result of a batch; zero after the header means that it is committed.
const VERDICT: u16 = 2;
/// `NFT_MSG_NEWGEN` of the nf_tables subsystem: the last message about a commit.
const NEW_GENERATION: u16 = 10 << 8 | 15;

/// A socket for batches.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    /// The largest batch in bytes that can be sent in one piece.
    pub batch_limit: usize,
}

impl Kernel {
    /// Opens a socket in the network namespace of the caller.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> Result<Self> {
        let socket = open(0)?;
        if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
            setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER)
                .map_err(failed("size the send buffer"))?;
        }
        let size = getsockopt(&socket, sockopt::SndBuf)
            .map_err(failed("read the size of the send buffer"))?;
        // The kernel refuses messages that leave fewer than 32 bytes (netlink_sendmsg).
        Ok(Self {
            socket,
            batch_limit: size - 32,
        })
    }

    /// Sends batches one after the other, each when the previous one is committed. Returns how long all took.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn commit(&self, batches: &[Vec<u8>]) -> Result<Duration> {
        let mut answer = [0; 4096];
        let start = Instant::now();
        for batch in batches {
            send(self.socket.as_raw_fd(), batch, MsgFlags::empty())
                .map_err(failed("send a batch"))?;
            let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())
                .map_err(failed("receive the kernel's verdict"))?;
            let kind = answer[..length]
                .get(4..6)
                .map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
            let code = answer[..length]
                .get(16..20)
                .map(|code| [code[0], code[1], code[2], code[3]]);
            match (kind, code.map(i32::from_ne_bytes)) {
                (Some(VERDICT), Some(0)) => {}
                (_, code) => {
                    let error = io::Error::from_raw_os_error(-code.unwrap_or_default());
                    return Err(LabError::system("commit a batch", error));
                }
            }
        }
        Ok(start.elapsed())
    }
}

/// A commit of any process, from the kernel's notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// When the notification was received.
    pub at: Instant,
    /// The values of its elements that are IPv4 addresses with a port.
    pub backends: Vec<Ipv4Addr>,
}

/// A socket that receives a notification of every commit in its network namespace.
#[derive(Debug)]
pub struct Commits {
    socket: OwnedFd,
    buffer: Vec<u8>,
    backends: Vec<Ipv4Addr>,
}

impl Commits {
    /// Opens a socket in the network namespace of the caller.
    ///
    /// # Errors
    /// The system's.
    pub fn listen() -> Result<Self> {
        let socket = open(NFTABLES_GROUP)?;
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)
                .map_err(failed("size the receive buffer"))?;
        }
        Ok(Self {
            socket,
            buffer: vec![0; 1 << 20],
            backends: Vec::new(),
        })
    }

    /// The next commit; none if there is none within this time.
    ///
    /// # Errors
    /// When messages were lost.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Commit>> {
        let timeout = TimeVal::milliseconds(i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
        setsockopt(&self.socket, sockopt::ReceiveTimeout, &timeout)
            .map_err(failed("set a time limit"))?;
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(length) => length,
                Err(nix::Error::EAGAIN) => return Ok(None),
                Err(error) => return Err(failed("receive notifications of commits")(error)),
            };
            let at = Instant::now();
            let mut rest = &self.buffer[..length];
            let mut committed = false;
            while let Some(message) = split(&mut rest, 16, |header| {
                u32::from_ne_bytes([header[0], header[1], header[2], header[3]])
            }) {
                let kind = u16::from_ne_bytes([message[4], message[5]]);
                committed |= kind == NEW_GENERATION;
                find_backends(
                    message.get(20..).unwrap_or_default(),
                    &VALUE_PATH,
                    &mut self.backends,
                );
            }
            if committed {
                return Ok(Some(Commit {
                    at,
                    backends: std::mem::take(&mut self.backends),
                }));
            }
        }
    }
}

/// `NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_LIST_ELEM`, `NFTA_SET_ELEM_DATA`, `NFTA_DATA_VALUE`: where the value of an element
/// is. Source: the kernel's `include/uapi/linux/netfilter/nf_tables.h`.
const VALUE_PATH: [u16; 4] = [3, 1, 2, 1];

/// Values of eight bytes: an IPv4 address, and a port with its padding.
fn find_backends(mut attributes: &[u8], path: &[u16], found: &mut Vec<Ipv4Addr>) {
    let Some((wanted, below)) = path.split_first() else {
        if let Ok([a, b, c, d, _, _, 0, 0]) = <[u8; 8]>::try_from(attributes) {
            found.push(Ipv4Addr::new(a, b, c, d));
        }
        return;
    };
    let length = |header: &[u8]| u32::from(u16::from_ne_bytes([header[0], header[1]]));
    while let Some(attribute) = split(&mut attributes, 4, length) {
        let kind = u16::from_ne_bytes([attribute[2], attribute[3]]) & 0x3fff;
        if kind == *wanted {
            find_backends(&attribute[4..], below, found);
        }
    }
}

/// Splits off the first message or attribute, whose header contains its length.
fn split<'a>(
    rest: &mut &'a [u8],
    header: usize,
    length: impl Fn(&[u8]) -> u32,
) -> Option<&'a [u8]> {
    let length = length(rest.get(..header)?) as usize;
    let first = rest.get(..length).filter(|first| first.len() >= header)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(first)
}

fn open(groups: u32) -> Result<OwnedFd> {
    let protocol = SockProtocol::NetlinkNetFilter;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )
    .map_err(failed("open a netfilter netlink socket"))?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))
        .map_err(failed("bind the netlink socket"))?;
    Ok(socket)
}

fn failed(action: &'static str) -> impl Fn(nix::Error) -> LabError {
    move |error| LabError::system(action, error)
}
