//! Sends recorded messages and waits for the answers as the renderer does, without reading their content.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use contiv_renderer::route::Exchange;
use contiv_tests::lab::{LabError, Result};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

const BUFFER: usize = 4 << 20;
/// `NLMSG_ERROR`, which is also an acknowledgement, and `NLMSG_DONE`.
const ANSWER: u16 = 2;
const DONE: u16 = 3;

/// A routing netlink socket.
pub(super) struct Kernel(OwnedFd);

impl Kernel {
    pub(super) fn open() -> Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )
        .map_err(failed("open a routing netlink socket"))?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))
            .map_err(failed("bind the netlink socket"))?;
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &BUFFER)
                .map_err(failed("size the receive buffer"))?;
        }
        Ok(Self(socket))
    }

    /// Sends all messages and returns the time until the last answer.
    ///
    /// # Errors
    /// When the kernel refuses a message.
    pub(super) fn replay(&self, exchanges: &[Exchange]) -> Result<Duration> {
        let mut buffer = vec![0; 64 << 10];
        let start = Instant::now();
        for Exchange { bytes, answers } in exchanges {
            send(self.0.as_raw_fd(), bytes, MsgFlags::empty()).map_err(failed("send messages"))?;
            let mut left = answers.unwrap_or(1);
            while left > 0 {
                let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())
                    .map_err(failed("receive the kernel's answer"))?;
                left -= completed_answers(&buffer[..length])?.min(left);
            }
        }
        Ok(start.elapsed())
    }
}

/// The number of completed answers in the received data.
fn completed_answers(mut received: &[u8]) -> Result<usize> {
    let mut completed = 0;
    while let Some(header) = received.first_chunk::<16>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if kind == ANSWER
            && let Some(code) = received.get(16..20)
            && code.iter().any(|byte| *byte != 0)
        {
            return Err(LabError::Unexpected(
                "the kernel refused a message that it accepted when it was recorded".to_owned(),
            ));
        }
        completed += usize::from(kind == ANSWER || kind == DONE);
        received = received
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Ok(completed)
}

fn failed(action: &'static str) -> impl Fn(nix::Error) -> LabError {
    move |error| LabError::system(action, error)
}
