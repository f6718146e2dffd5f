//! The first two messages of an SCTP association over raw sockets: many kernels have no SCTP sockets, but they translate SCTP
//! addresses and ports and update the checksum.
//!
//! Source: RFC 9260, sections 3.1 (common header), 3.3.2 (INIT), 3.3.3 (INIT ACK) and 6.8 (checksum).

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use super::raw::RawSocket;

/// Its IP protocol number.
const SCTP: u8 = 132;
/// Types of chunks.
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
/// The type of the parameter that a client must return unchanged.
const STATE_COOKIE: u16 = 7;
/// The checksum within the common header.
const CHECKSUM: std::ops::Range<usize> = 8..12;
/// Lengths in bytes.
const COMMON_HEADER: usize = 12;
const CHUNK: usize = 20;
const PARAMETER_HEADER: usize = 4;
/// The receive window that both sides announce, the smallest allowed.
const WINDOW: u32 = 1500;
/// The first port of the kernel's ephemeral range.
const FIRST_PORT: u16 = 32_768;
const LAST_PORT: u16 = 60_999;

/// A packet with an INIT or an INIT ACK.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Packet {
    source_port: u16,
    destination_port: u16,
    /// Chosen by the sender for the packets of its peer.
    tag: u32,
    message: Message,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Message {
    Init,
    InitAck {
        /// The tag of the INIT.
        tag_of_peer: u32,
        cookie: Vec<u8>,
    },
}

impl Packet {
    fn encode(&self) -> Vec<u8> {
        let (kind, tag_of_peer, cookie) = match &self.message {
            Message::Init => (INIT, 0, None),
            Message::InitAck {
                tag_of_peer,
                cookie,
            } => (INIT_ACK, *tag_of_peer, Some(cookie)),
        };
        let parameter = cookie.map_or(0, |cookie| PARAMETER_HEADER + cookie.len());
        let mut bytes = Vec::new();
        bytes.extend(self.source_port.to_be_bytes());
        bytes.extend(self.destination_port.to_be_bytes());
        bytes.extend(tag_of_peer.to_be_bytes());
        bytes.extend([0; CHECKSUM.end - CHECKSUM.start]);
        bytes.extend([kind, 0]);
        bytes.extend(length(CHUNK + parameter));
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend(WINDOW.to_be_bytes());
        // One stream each way, and the first sequence number of data.
        bytes.extend([0, 1, 0, 1, 0, 0, 0, 1]);
        if let Some(cookie) = cookie {
            bytes.extend(STATE_COOKIE.to_be_bytes());
            bytes.extend(length(parameter));
            bytes.extend(cookie);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// None for another message or a wrong checksum.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let two = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let four = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let mut unsigned = bytes.to_vec();
        unsigned.get_mut(CHECKSUM)?.fill(0);
        if bytes.get(CHECKSUM)? != crc32c::crc32c(&unsigned).to_le_bytes() {
            return None;
        }
        let message = match *bytes.get(COMMON_HEADER)? {
            INIT => Message::Init,
            INIT_ACK => {
                let parameter = COMMON_HEADER + CHUNK;
                let end = parameter + usize::from(two(parameter + 2)?);
                let cookie = bytes.get(parameter + PARAMETER_HEADER..end)?.to_vec();
                Message::InitAck {
                    tag_of_peer: four(4)?,
                    cookie,
                }
            }
            _ => return None,
        };
        Some(Self {
            source_port: two(0)?,
            destination_port: two(2)?,
            tag: four(COMMON_HEADER + 4)?,
            message,
        })
    }
}

/// The length of a chunk or parameter with its header. None of the lab's is longer than a packet.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// The client's side of a half-open association.
#[derive(Debug)]
pub struct Association {
    socket: RawSocket,
    own: SocketAddr,
    server: SocketAddr,
    limit: Duration,
}

impl Association {
    /// Chooses a port without sending anything.
    pub(super) fn open(server: SocketAddr, limit: Duration) -> io::Result<Self> {
        /// Ports are used in turn, so that none is reused while the kernel remembers it.
        static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
        let port =
            FIRST_PORT + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % (LAST_PORT - FIRST_PORT);
        let socket = RawSocket::connect(server.ip(), SCTP)?;
        let own = SocketAddr::new(socket.local_address()?, port);
        Ok(Self {
            socket,
            own,
            server,
            limit,
        })
    }

    pub(super) const fn local_address(&self) -> SocketAddr {
        self.own
    }

    /// Sends an INIT and waits for the INIT ACK from the same address and port. Returns its cookie.
    pub(super) fn exchange(&self) -> io::Result<Vec<u8>> {
        let (source_port, destination_port) = (self.own.port(), self.server.port());
        // Any number but 0 is valid.
        let tag = u32::from(source_port);
        let init = Packet {
            source_port,
            destination_port,
            tag,
            message: Message::Init,
        };
        match self.socket.send(&init.encode()) {
            // A filter of this host stopped the packet. The next packet shows whether it was rejected or dropped.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            result => result?,
        }
        self.socket
            .receive(self.limit, |_, bytes| match Packet::decode(bytes)? {
                Packet {
                    source_port,
                    destination_port,
                    message:
                        Message::InitAck {
                            tag_of_peer,
                            cookie,
                        },
                    ..
                } if (source_port, destination_port, tag_of_peer)
                    == (self.server.port(), self.own.port(), tag) =>
                {
                    Some(cookie)
                }
                _ => None,
            })
    }
}

/// A server that answers each INIT with an INIT ACK.
#[derive(Debug)]
pub(super) struct Listener {
    socket: RawSocket,
    port: u16,
}

impl Listener {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            socket: RawSocket::bind(address.ip(), SCTP)?,
            port: address.port(),
        })
    }

    pub(super) const fn socket(&self) -> &RawSocket {
        &self.socket
    }

    /// Waits for one INIT and answers it; `answer` returns the cookie for the client's address as seen here.
    pub(super) fn answer_one(
        &self,
        limit: Duration,
        answer: impl FnOnce(SocketAddr) -> String,
    ) -> io::Result<()> {
        let (peer, tag) =
            self.socket
                .receive(limit, |from, bytes| match Packet::decode(bytes)? {
                    Packet {
                        source_port,
                        destination_port,
                        tag,
                        message: Message::Init,
                    } if destination_port == self.port => {
                        Some((SocketAddr::new(from, source_port), tag))
                    }
                    _ => None,
                })?;
        let message = Message::InitAck {
            tag_of_peer: tag,
            cookie: answer(peer).into_bytes(),
        };
        let (source_port, destination_port) = (self.port, peer.port());
        // Any number but 0 is valid.
        let reply = Packet {
            source_port,
            destination_port,
            tag: u32::from(self.port),
            message,
        };
        self.socket.send_to(&reply.encode(), peer.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(message: Message) -> Packet {
        Packet {
            source_port: 40_000,
            destination_port: 80,
            tag: 7,
            message,
        }
    }

    #[test]
    fn sctp_packet_round_trips_and_a_flipped_bit_is_detected() {
        let ack = Message::InitAck {
            tag_of_peer: 9,
            cookie: b"pod1 10.0.0.1:1".to_vec(),
        };
        for packet in [packet(Message::Init), packet(ack)] {
            let bytes = packet.encode();
            assert_eq!(Packet::decode(&bytes), Some(packet));
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(Packet::decode(&changed), None, "byte {at}");
                assert_eq!(Packet::decode(&bytes[..at]), None, "cut at {at}");
            }
        }
    }

    #[test]
    fn init_is_as_rfc_draws_it() {
        let bytes = packet(Message::Init).encode();
        assert_eq!(
            bytes[..8],
            [0x9c, 0x40, 0, 80, 0, 0, 0, 0],
            "ports, and no tag yet"
        );
        assert_eq!(
            bytes[12..20],
            [1, 0, 0, 20, 0, 0, 0, 7],
            "type, flags, length, tag"
        );
        assert_eq!(bytes.len(), 32);
    }
}
