//! The log of refusals: which backends answer attempts with a reset or an ICMP error.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use nix::errno::Errno;

use crate::{
    RenderError,
    kernel::Kernel,
    linux::Linux,
    netlink::message::{
        NFNL_SUBSYS_ULOG, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, begin_message, end_message,
        kind_of, messages,
    },
    nftables::{
        layout::{LOGGED_BYTES, REFUSALS_GROUP},
        netlink::{Attributes, NetlinkError, Socket, Writer, constants::NFPROTO_UNSPEC},
    },
};

/// The backends that refuse attempts, as the kernel logs them.
#[derive(Debug)]
pub struct Refusals {
    socket: Socket,
}

/// `NFULNL_MSG_PACKET`, `NFULNL_MSG_CONFIG`
const LOG_PACKET: u8 = 0;
const LOG_CONFIG: u8 = 1;
/// `NFULA_CFG_CMD`, `NFULA_CFG_MODE`, `NFULA_CFG_QTHRESH`
const CONFIG_COMMAND: u16 = 1;
const CONFIG_MODE: u16 = 2;
const CONFIG_THRESHOLD: u16 = 5;
/// `NFULNL_CFG_CMD_BIND`, `NFULNL_COPY_PACKET`
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
/// `NFULA_PAYLOAD`
const PAYLOAD: u16 = 9;

impl Refusals {
    /// Binds the group of the log.
    ///
    /// # Errors
    /// When another process has the group, or the kernel lacks `nfnetlink_log`.
    pub fn listen() -> Result<Self, RenderError> {
        Self::listen_on(&Linux::shared())
            .map_err(|error| error.with_advice("log refusals (module nfnetlink_log)"))
    }

    fn listen_on(kernel: &Arc<dyn Kernel>) -> Result<Self, NetlinkError> {
        let mut socket = Socket::open(kernel)?;
        let mut mode = LOGGED_BYTES.to_be_bytes().to_vec();
        mode.extend_from_slice(&[COPY_PACKET, 0]);
        let settings: [(u16, &[u8]); 3] = [
            (CONFIG_COMMAND, &[BIND]),
            (CONFIG_MODE, &mode),
            // Each packet is sent at once.
            (CONFIG_THRESHOLD, &1_u32.to_be_bytes()),
        ];
        for (kind, value) in settings {
            let mut request = Vec::new();
            let message = kind_of(NFNL_SUBSYS_ULOG, LOG_CONFIG);
            let flags = NLM_F_REQUEST | NLM_F_ACK;
            begin_message(
                &mut request,
                message,
                flags,
                1,
                NFPROTO_UNSPEC,
                REFUSALS_GROUP,
            );
            Writer::new(&mut request).bytes(kind, value);
            end_message(&mut request, 0);
            socket.send(&request, "bind a group of nfnetlink_log")?;
            acknowledged(&socket.receive("bind a group of nfnetlink_log")?)?;
        }
        Ok(Self { socket })
    }

    /// Waits for the next ones. They are few: a backend that refuses all the time comes once a second.
    ///
    /// # Errors
    /// When nothing can be received any more. Lost messages are no error.
    pub fn wait(&mut self) -> Result<Vec<SocketAddr>, RenderError> {
        loop {
            match self.socket.receive("read refusals") {
                Ok(received) => return Ok(refusals(&received)),
                Err(error) if error.errno() == Some(Errno::ENOBUFS as i32) => (),
                Err(error) => return Err(error.with_advice("log refusals")),
            }
        }
    }
}

fn acknowledged(answer: &[u8]) -> Result<(), NetlinkError> {
    let errors = messages(answer).filter(|message| message.kind == NLMSG_ERROR);
    match errors
        .map(|error| error.error_code())
        .find(|code| *code != 0)
    {
        Some(code) => Err(NetlinkError::Socket {
            action: "bind a group of nfnetlink_log",
            source: io::Error::from_raw_os_error(-code),
        }),
        None => Ok(()),
    }
}

/// The backends of logged packets.
fn refusals(received: &[u8]) -> Vec<SocketAddr> {
    let packets = messages(received)
        .filter(|message| message.kind == kind_of(NFNL_SUBSYS_ULOG, LOG_PACKET))
        .filter_map(|message| message.object(NFNL_SUBSYS_ULOG));
    packets
        .filter_map(|object: Attributes<'_>| refusing_backend(object.get(PAYLOAD)?))
        .collect()
}

/// The backend that a packet is about: the source of a reset, or the destination of the packet that an ICMP error is about.
fn refusing_backend(packet: &[u8]) -> Option<SocketAddr> {
    const TCP: u8 = 6;
    const ICMP: u8 = 1;
    const ICMPV6: u8 = 58;
    const ICMP_HEADER: usize = 8;
    let header = IpHeader::parse(packet)?;
    let rest = packet.get(header.len..)?;
    match header.protocol {
        TCP => Some(SocketAddr::new(header.source, port(rest, 0)?)),
        ICMP | ICMPV6 => {
            let cause = rest.get(ICMP_HEADER..)?;
            let header = IpHeader::parse(cause).filter(|header| header.protocol == TCP)?;
            let destination_port = port(cause.get(header.len..)?, 2)?;
            Some(SocketAddr::new(header.destination, destination_port))
        }
        _ => None,
    }
}

fn port(transport: &[u8], at: usize) -> Option<u16> {
    let bytes = transport.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// The header of a packet of either family, without extensions.
struct IpHeader {
    len: usize,
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
}

impl IpHeader {
    fn parse(packet: &[u8]) -> Option<Self> {
        let v4 = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let v6 = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
        let first = *packet.first()?;
        match first >> 4 {
            4 => Some(Self {
                len: usize::from(first & 0xf) * 4,
                protocol: *packet.get(9)?,
                source: v4(12)?,
                destination: v4(16)?,
            }),
            6 => Some(Self {
                len: 40,
                protocol: *packet.get(6)?,
                source: v6(8)?,
                destination: v6(24)?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of IPv4 or IPv6 without options.
    fn packet(source: IpAddr, destination: IpAddr, protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
                header.extend(source.octets());
                header.extend(destination.octets());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
                header.extend(source.octets());
                header.extend(destination.octets());
                header
            }
            _ => panic!("two families"),
        };
        packet.extend_from_slice(rest);
        packet
    }

    #[test]
    fn backend_is_source_of_reset_and_destination_of_unreachable_packet() {
        for (client, backend, router, icmp) in [
            ("10.0.0.9", "10.1.0.2", "10.0.0.1", 1),
            ("fd00::9", "fd01::2", "fd00::1", 58),
        ] {
            let [client, backend, router]: [IpAddr; 3] =
                [client, backend, router].map(|address| address.parse().unwrap());
            let expected = Some(SocketAddr::new(backend, 8080));
            let ports = |source: u16, destination: u16| {
                [source.to_be_bytes(), destination.to_be_bytes()].concat()
            };
            let reset = packet(backend, client, 6, &ports(8080, 4000));
            let attempt = packet(client, backend, 6, &ports(4000, 8080));
            let unreachable = packet(
                router,
                client,
                icmp,
                &[vec![3; 8], attempt.clone()].concat(),
            );
            assert_eq!(refusing_backend(&reset), expected);
            assert_eq!(refusing_backend(&unreachable), expected);
            let about_udp = packet(client, backend, 17, &ports(4000, 8080));
            let about_udp = packet(router, client, icmp, &[vec![3; 8], about_udp].concat());
            assert_eq!(refusing_backend(&about_udp), None);
            for (whole, ports_at) in [(&reset, reset.len() - 2), (&unreachable, unreachable.len())]
            {
                for length in 0..ports_at {
                    assert_eq!(refusing_backend(&whole[..length]), None, "{length} bytes");
                }
            }
        }
        assert_eq!(refusing_backend(&[0x10; 60]), None, "no IP");
    }
}
