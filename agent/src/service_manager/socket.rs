//! The socket of the service manager. Source: `sd_notify(3)`, "Notes".

use std::{
    ffi::OsStr,
    io::{self, ErrorKind},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::atomic::{AtomicBool, Ordering},
};

use sd_notify::NotifyState;
use tracing::{info, warn};

/// Sends messages without blocking: `sd_notify::notify` blocks while the socket is full.
#[derive(Debug)]
pub(super) struct Socket {
    sender: UnixDatagram,
    address: SocketAddr,
    /// The last message could not be sent; so that this is logged once.
    is_failing: AtomicBool,
}

impl Socket {
    /// Connects to a path, or with a leading `@` to an abstract name.
    pub(super) fn new(address: &OsStr) -> io::Result<Self> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        Ok(Self {
            sender,
            address,
            is_failing: AtomicBool::new(false),
        })
    }

    /// Sends one message with all of these states. False if it could not be sent.
    pub(super) fn send(&self, states: &[NotifyState<'_>]) -> bool {
        let lines: Vec<String> = states.iter().map(ToString::to_string).collect();
        let message = lines.join("\n") + "\n";
        let sent = self.sender.send_to_addr(message.as_bytes(), &self.address);
        let is_sent = sent.is_ok();
        let was_failing = self.is_failing.swap(!is_sent, Ordering::Relaxed);
        match sent {
            Ok(_) if was_failing => info!("messages reach the service manager again"),
            // Continues without it; the service manager ends the process if it depends on the messages.
            Err(error) if !was_failing && error.kind() == ErrorKind::WouldBlock => {
                warn!("the service manager does not read its messages; trying again");
            }
            Err(error) if !was_failing => {
                warn!(%error, "failed to send a message to the service manager; trying again");
            }
            _ => {}
        }
        is_sent
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    /// The received messages.
    fn drain(reader: &UnixDatagram) -> usize {
        let mut buffer = [0; 64];
        std::iter::from_fn(|| reader.recv(&mut buffer).ok()).count()
    }

    #[test]
    fn unread_notification_socket_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        let socket = Socket::new(path.as_os_str()).unwrap();
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut sent = 0;
            while socket.send(&[NotifyState::Watchdog]) {
                sent += 1;
            }
            done.send((socket, sent)).unwrap();
        });
        let (socket, sent) = ended
            .recv_timeout(Duration::from_secs(20))
            .expect("it waits for room");
        assert_eq!(drain(&reader), sent);
        assert!(socket.send(&[NotifyState::Ready]), "there is room again");
        assert_eq!(drain(&reader), 1);
    }

    #[test]
    fn socket_with_abstract_name_is_reached() {
        let name = format!("contiv-test-{}", std::process::id());
        let reader =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let socket = Socket::new(OsStr::new(&format!("@{name}"))).unwrap();
        assert!(socket.send(&[NotifyState::Ready, NotifyState::Status("well")]));
        let mut buffer = [0; 64];
        let length = reader.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\nSTATUS=well\n");
    }
}
