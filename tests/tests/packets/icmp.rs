//! Echo requests to a service's addresses. Services are for TCP, UDP and SCTP.

use std::{io::ErrorKind, net::IpAddr, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, LabError, Namespace, RawSocket, Responder, Result, isolated},
};

/// Generous for the lab.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// Returned by a host in its reply.
const IDENTIFIER: u16 = 0x4321;

/// The reply to an echo request.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Echo,
    PortUnreachable,
}

/// The numbers of ICMP in one family.
struct IcmpTypes {
    protocol: u8,
    request: u8,
    reply: u8,
    /// Type and code.
    port_unreachable: [u8; 2],
    /// The offset and the length of the destination in an IP header.
    destination: (usize, usize),
}

/// Sources: RFC 792 and RFC 4443.
const fn numbers(family: Family) -> IcmpTypes {
    match family {
        Family::V4 => IcmpTypes {
            protocol: 1,
            request: 8,
            reply: 0,
            port_unreachable: [3, 3],
            destination: (16, 4),
        },
        Family::V6 => IcmpTypes {
            protocol: 58,
            request: 128,
            reply: 129,
            port_unreachable: [1, 4],
            destination: (24, 16),
        },
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Sends one echo request and waits for the reply.
fn echo(from: &Namespace, to: IpAddr, family: Family) -> Result<Reply> {
    let numbers = numbers(family);
    // The sequence number is 0. For IPv6 the kernel writes the checksum.
    let checksum = !(u16::from_be_bytes([numbers.request, 0]) + IDENTIFIER);
    let words = [
        u16::from_be_bytes([numbers.request, 0]),
        checksum,
        IDENTIFIER,
        0,
    ];
    let request: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    let read = |_, message: &[u8]| {
        let (start, length) = numbers.destination;
        // After eight bytes follows the header of the packet that caused the error.
        let about = message.get(8 + start..8 + start + length);
        match message.get(..2)? {
            [kind, 0]
                if *kind == numbers.reply && message.get(4..6)? == IDENTIFIER.to_be_bytes() =>
            {
                Some(Reply::Echo)
            }
            kind if kind == numbers.port_unreachable && about? == octets(to) => {
                Some(Reply::PortUnreachable)
            }
            _ => None,
        }
    };
    let exchange = || {
        let socket = RawSocket::bind(from.host.address(family), numbers.protocol)?;
        match socket.send_to(&request, to) {
            // A filter of this host stopped the packet. Its error follows.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            result => result?,
        }
        socket.receive(TIME_LIMIT, read)
    };
    let failed = |error| LabError::system(format!("ping {to} from {}", from.host.name), error);
    from.run(|| exchange().map_err(failed))
}

#[test]
fn echo_request_to_cluster_ip_is_refused_as_unknown_port_is() -> Result<()> {
    isolated(
        "icmp::echo_request_to_cluster_ip_is_refused_as_unknown_port_is",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let [served, empty] = [
                Service::new("served", 80, &[lab.pod1.host, lab.pod3.host]),
                Service::new("empty", 81, &[]),
            ];
            state.put(&served)?;
            state.put(&empty)?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for family in Family::BOTH {
                for from in [&lab.pod1, &lab.pod2, &lab.node, &lab.client] {
                    for service in [&served, &empty] {
                        let to = service.address(lab, Frontend::ClusterIp, family).ip();
                        let reply = echo(from, to, family)?;
                        assert_eq!(
                            reply,
                            Reply::PortUnreachable,
                            "from {} to {to}",
                            from.host.name
                        );
                    }
                }
                // Addresses other than cluster IPs are left alone.
                for (from, to) in [
                    (&lab.pod1, &lab.pod3),
                    (&lab.client, &lab.node),
                    (&lab.node, &lab.pod1),
                ] {
                    assert_eq!(echo(from, to.host.address(family), family)?, Reply::Echo);
                }
            }
            Ok(())
        },
    )
}
