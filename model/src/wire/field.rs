//! Validation of single fields. The error of each function says why the value is invalid, and what would be valid.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::Protocol;

/// A port number: 1 to 65535. Contiv cut it to 16 bits.
pub(super) fn port(number: i32) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!(
            "{number} is not a port number; it must be from 1 to 65535"
        )),
    }
}

/// A transport protocol, in upper or lower case. Empty means TCP, as in Kubernetes; Contiv read UDP.
pub(super) fn protocol(text: &str) -> Result<Protocol, String> {
    [
        ("TCP", Protocol::Tcp),
        ("UDP", Protocol::Udp),
        ("SCTP", Protocol::Sctp),
        ("", Protocol::Tcp),
    ]
    .into_iter()
    .find(|(name, _)| name.eq_ignore_ascii_case(text))
    .map(|(_, protocol)| protocol)
    .ok_or_else(|| format!("{text:?} is not a known protocol; it must be TCP, UDP or SCTP"))
}

/// One of the given words, each with its meaning.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| {
            let known: Vec<&str> = words
                .iter()
                .map(|(word, _)| *word)
                .filter(|word| !word.is_empty())
                .collect();
            format!(
                "{text:?} is not known here; it must be one of {}",
                known.join(", ")
            )
        })
}

/// An IP address. An IPv4-mapped IPv6 address becomes the IPv4 address.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    text.trim()
        .parse::<IpAddr>()
        .map(|ip| ip.to_canonical())
        .map_err(|_| format!("{text:?} is not an IP address; write one as in 10.1.2.3 or fd00::3"))
}

/// An address that other hosts can send to: Kubernetes' rule for endpoints and external addresses (`ValidateNonSpecialIP`). It
/// prevents authors of endpoints from reaching the loopback of a node.
pub(super) fn routable_ip(text: &str) -> Result<IpAddr, String> {
    let ip = ip(text)?;
    let special = match ip {
        _ if ip.is_unspecified() => "the unspecified address",
        _ if ip.is_loopback() => "a loopback address",
        _ if ip.is_multicast() => "a multicast address",
        IpAddr::V4(v4) if v4.is_broadcast() => "the broadcast address",
        IpAddr::V4(v4) if v4.is_link_local() => "a link-local address",
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        _ => return Ok(ip),
    };
    Err(format!(
        "{ip} is {special}; it must be one that other hosts can send to"
    ))
}

/// A range without host bits.
pub(super) fn cidr(text: &str) -> Result<IpNetwork, String> {
    let problem =
        || format!("{text:?} is not an address range; write one as in 10.1.1.0/24 or fd00:1::/64");
    let parsed = text.trim();
    // The parser accepts a bare address as a range of one address, which is never intended.
    if !parsed.contains('/') {
        return Err(problem());
    }
    let network: IpNetwork = parsed.parse().map_err(|_| problem())?;
    IpNetwork::new(network.network(), network.prefix()).map_err(|_| problem())
}

/// The address in `10.1.1.2/24`, or a bare address.
pub(super) fn ip_of_interface(text: &str) -> Result<IpAddr, String> {
    match text.trim().parse::<IpNetwork>() {
        Ok(network) => Ok(network.ip().to_canonical()),
        Err(_) => Err(format!(
            "{text:?} is not an address with its prefix length; write one as in 192.168.16.2/24"
        )),
    }
}

/// The name of an object: letters, digits, `-`, `_` and `.`, so that it can be printed unchanged.
pub(super) fn name(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty; it must be the name of an object".to_owned());
    }
    if text.len() > 253 {
        return Err(format!("it has {} characters; 253 are allowed", text.len()));
    }
    label(text)
}

/// The name of a port, which may be empty.
pub(super) fn label(text: &str) -> Result<(), String> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // Checking bytes is faster for the valid case.
    if text.as_bytes().iter().all(is_allowed) {
        return Ok(());
    }
    match text
        .chars()
        .find(|c| !u8::try_from(*c).is_ok_and(|byte| is_allowed(&byte)))
    {
        None => Ok(()),
        Some(c) => Err(format!(
            "{text:?} holds the character {c:?}; only letters, digits, hyphens, underscores and dots are allowed"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_numbers_are_not_cut_to_sixteen_bits() {
        assert_eq!(port(1), Ok(1));
        assert_eq!(port(65_535), Ok(65_535));
        for wrong in [i32::MIN, -1, 0, 65_536, 65_616, i32::MAX] {
            assert!(
                port(wrong).unwrap_err().contains("from 1 to 65535"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn protocols_are_read_in_any_case_and_tcp_is_default() {
        for (text, expected) in [
            ("TCP", Protocol::Tcp),
            ("udp", Protocol::Udp),
            ("Sctp", Protocol::Sctp),
            ("", Protocol::Tcp),
        ] {
            assert_eq!(protocol(text), Ok(expected));
        }
        assert!(protocol("ICMP").unwrap_err().contains("TCP, UDP or SCTP"));
    }

    #[test]
    fn ipv4_address_in_ipv6_form_is_ipv4_address() {
        assert_eq!(ip("::ffff:10.1.2.3"), ip("10.1.2.3"));
    }

    #[test]
    fn addresses_that_no_other_host_can_send_to_are_refused() {
        for text in [
            "0.0.0.0",
            "::",
            "127.0.0.1",
            "::1",
            "224.0.0.1",
            "ff02::1",
            "169.254.1.1",
            "fe80::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(routable_ip(text).is_err(), "{text}");
        }
        assert!(routable_ip("10.0.0.1").is_ok() && routable_ip("2001:db8::1").is_ok());
    }

    #[test]
    fn ranges_lose_their_host_bits_and_surrounding_space() {
        assert_eq!(cidr(" 10.1.1.7/24\n"), cidr("10.1.1.0/24"));
        assert_eq!(cidr("fd00::7/64"), cidr("fd00::/64"));
        for wrong in ["", "10.1.1.0", "10.1.1.0/33", "10.1.1/24", "x/8"] {
            assert!(cidr(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_cannot_carry_syntax_of_any_language() {
        assert!(name("kube-dns.v1_2").is_ok());
        for wrong in ["", "a b", "a\"", "a;b", "a{", "é", "a\n", "../etc"] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
    }
}
