//! Listens to netlink multicast groups for changes by other processes, and ignores our own.
//!
//! The kernel names the origin of a notification by the port of the socket that requested the change. Our port is unique while
//! our socket is open, so it identifies our own changes; a filter in the kernel drops them before they cost anything.
//!
//! While the group has a member, the kernel builds a message for each element of a transaction, with a page of memory for each:
//! a large transaction takes twice as long. So the writer leaves the group during a large transaction, and notifies the
//! listener if a notification was missed.

use std::{
    io::{self, ErrorKind, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    time::Duration,
};

use netlink_sys::SocketAddr;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{setsockopt, sockopt},
};
use socket2::{SockFilter, SockRef};

use super::linux::protocol_number;
use crate::kernel::{self, ListenerEvent, NetlinkProtocol, Notifications};

/// Space for notifications while the listener is not scheduled. If it is too small, the overflow is noticed.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The kernel packs notifications into pieces of at most a page, or of one message.
const READ_BUFFER: usize = 64 << 10;

/// Receives the changes of other processes.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Arc<netlink_sys::Socket>,
    /// Readable when the writer reports missed notifications; closed when the writer is gone.
    writer: UnixStream,
}

/// The writer's handle of the group membership.
#[derive(Debug)]
pub(crate) struct Membership {
    socket: Arc<netlink_sys::Socket>,
    groups: Vec<u32>,
    listener: UnixStream,
}

impl Listener {
    /// Joins groups. Changes made through the socket with the port `own` are ignored.
    pub(crate) fn join(
        protocol: NetlinkProtocol,
        groups: &[u32],
        own: u32,
    ) -> io::Result<(Self, Membership)> {
        let mut socket = netlink_sys::Socket::new(protocol_number(protocol))?;
        // Without CAP_NET_ADMIN in the first user namespace the buffer is smaller.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        SockRef::from(&socket).attach_filter(&exclude_origin(own))?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        let (listener, writer) = UnixStream::pair()?;
        writer.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        let socket = Arc::new(socket);
        let membership = Membership {
            socket: Arc::clone(&socket),
            groups: groups.to_vec(),
            listener,
        };
        Ok((Self { socket, writer }, membership))
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut received = Vec::with_capacity(READ_BUFFER);
        self.socket.recv(&mut received, 0)?;
        Ok(received)
    }

    fn read_writer(&mut self) -> io::Result<ListenerEvent> {
        let mut received = [0; 64];
        match io::Read::read(&mut self.writer, &mut received) {
            Ok(0) => Ok(ListenerEvent::End),
            Ok(_) => Ok(ListenerEvent::Missed),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(ListenerEvent::Silence),
            Err(error) => Err(error),
        }
    }
}

impl Notifications for Listener {
    fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<ListenerEvent> {
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)
        });
        let mut ready = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.writer.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut ready, timeout) {
                Err(Errno::EINTR) => (),
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        let [notifications, writer] = ready.map(|fd| fd.any().unwrap_or(true));
        // Notifications from before the end still count, so the end comes last.
        if notifications {
            return match self.receive() {
                Ok(received) => Ok(ListenerEvent::Notifications(received)),
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    Ok(ListenerEvent::Overflow)
                }
                Err(error) => Err(error),
            };
        }
        if writer {
            return self.read_writer();
        }
        Ok(ListenerEvent::Silence)
    }
}

impl kernel::Membership for Membership {
    fn leave(&self) -> io::Result<()> {
        self.groups
            .iter()
            .try_for_each(|group| self.socket.drop_membership(*group))
    }

    fn rejoin(&self) -> io::Result<()> {
        self.groups
            .iter()
            .try_for_each(|group| self.socket.add_membership(*group))
    }

    fn report_missed(&self) {
        // If it is full a notification is pending already; if it is closed there is no listener.
        let _ = (&self.listener).write(&[0]);
    }
}

/// A classic BPF filter that passes messages whose origin is another port than `own`. Source: the kernel's
/// `include/uapi/linux/filter.h` and `bpf_common.h`.
fn exclude_origin(own: u32) -> [SockFilter; 4] {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    /// The offset of `nlmsg_pid` in the header of the first message; all messages of one piece have the same.
    const ORIGIN_OFFSET: u32 = 12;
    // The filter loads the host-order field as if it were in network order.
    let own = u32::from_be_bytes(own.to_ne_bytes());
    [
        SockFilter::new(LOAD_WORD, 0, 0, ORIGIN_OFFSET),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, own),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
