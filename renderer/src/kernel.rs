//! The kernel as renderers use it: the real one, or a model.
//!
//! A renderer plans, encodes, compares and heals; how its bytes reach a kernel is all that is behind this.
//! [`Linux`](crate::linux::Linux) is the kernel of this process's network namespace. A simulation provides a model instead, and
//! runs the renderer without threads, waiting or real time.

use std::{
    fmt, io, thread,
    time::{Duration, Instant},
};

/// A protocol of netlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetlinkProtocol {
    /// nf_tables and conntrack: `NETLINK_NETFILTER`.
    Netfilter,
    /// Routes, rules, next hops, links and addresses: `NETLINK_ROUTE`.
    Route,
    /// The sockets of processes: `NETLINK_SOCK_DIAG`.
    Sockets,
}

/// The side of a kernel that renderers see.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// Opens a new netlink socket.
    ///
    /// # Errors
    /// The error of the system call; `EPROTONOSUPPORT` where the kernel has no netfilter.
    fn connect(&self, protocol: NetlinkProtocol) -> io::Result<Box<dyn NetlinkSocket>>;

    /// Joins multicast groups. Changes by the socket with the port `own` are not delivered.
    ///
    /// # Errors
    /// The error of the system call.
    fn listen(
        &self,
        protocol: NetlinkProtocol,
        groups: &[u32],
        own: u32,
    ) -> io::Result<Subscription>;

    /// A setting by its path below `/proc/sys`, without the end of its line.
    ///
    /// # Errors
    /// The error of the system call, such as for a setting that does not exist.
    fn setting(&self, path: &str) -> io::Result<String>;

    /// Changes a setting by its path below `/proc/sys`.
    ///
    /// # Errors
    /// The error of the system call.
    fn set_setting(&self, path: &str, value: &str) -> io::Result<()>;

    /// The names in a folder of settings.
    ///
    /// # Errors
    /// The error of the system call.
    fn settings(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Starts a task on another thread.
    ///
    /// # Errors
    /// When no thread can be started.
    fn spawn(&self, name: &str, task: Box<dyn BackgroundTask>) -> io::Result<()>;

    /// The time.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Lets time pass.
    fn sleep(&self, length: Duration) {
        thread::sleep(length);
    }
}

/// A listener of multicast groups, and the hold on it.
pub type Subscription = (Box<dyn Notifications>, Box<dyn Membership>);

/// A netlink socket. It sends and receives whole netlink messages.
pub trait NetlinkSocket: fmt::Debug + Send {
    /// The port by which the kernel names this socket as the origin of a change.
    fn port(&self) -> u32;

    /// The largest request in bytes that goes through in one piece.
    fn send_limit(&self) -> usize;

    /// Sends a request.
    ///
    /// # Errors
    /// The error of the system call.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;

    /// Waits for a piece of an answer.
    ///
    /// # Errors
    /// The error of the system call; `ENOBUFS` where answers were lost.
    fn receive(&mut self) -> io::Result<Vec<u8>>;

    /// Throws away what has arrived, without waiting.
    fn discard(&mut self);
}

/// Receives the notifications of changes by other sockets.
pub trait Notifications: fmt::Debug + Send {
    /// Waits for a notification, for at most `timeout`; without one indefinitely.
    ///
    /// # Errors
    /// When no notifications can be received any more.
    fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<ListenerEvent>;
}

/// The result of waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerEvent {
    /// Notifications of other processes.
    Notifications(Vec<u8>),
    /// Notifications were lost: anything may have changed.
    Overflow,
    /// Another process changed something while the writer had left the group.
    Missed,
    /// Nothing arrived within the timeout.
    Silence,
    /// The writer is gone.
    End,
}

/// The renderer's hold on its [`Notifications`]; these end with it.
pub trait Membership: fmt::Debug + Send {
    /// Leaves the groups for a while.
    ///
    /// # Errors
    /// The error of the system call.
    fn leave(&self) -> io::Result<()>;

    /// Comes back.
    ///
    /// # Errors
    /// The error of the system call.
    fn rejoin(&self) -> io::Result<()>;

    /// Reports to the listener that notifications were missed.
    fn report_missed(&self);
}

/// Work on another thread than the renderer's, requested through its own channels.
pub trait BackgroundTask: Send {
    /// Works, and waits for requests, until all senders are dropped.
    fn run(self: Box<Self>);

    /// Handles the pending requests without waiting for more. False when all senders are dropped.
    fn step(&mut self) -> bool;
}
