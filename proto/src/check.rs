//! Validation of the texts of single fields: addresses, ranges and names. An error says why the text is invalid, and what would be
//! valid; the caller adds the path of the field.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use thiserror::Error;

/// The maximum length of a name: that of a DNS name.
const MAX_NAME_LENGTH: usize = 253;

/// Why the text of a field is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidText {
    /// No address.
    #[error("{0:?} is not an IP address, as in 10.0.0.1 or fd00::1")]
    Address(String),
    /// An address of one host only, or of a group.
    #[error("{text:?} is not an address that other hosts can send to: it is {special}")]
    SpecialAddress {
        /// The text.
        text: String,
        /// What the address is.
        special: &'static str,
    },
    /// No range of addresses.
    #[error("{0:?} is not an address range, as in 10.0.0.0/16 or fd00::/64")]
    Range(String),
    /// No address of an interface.
    #[error("{0:?} is not an address of an interface, as in 192.168.16.2/24")]
    InterfaceAddress(String),
    /// An empty name.
    #[error("missing; expected a name")]
    NoName,
    /// A name that is too long.
    #[error("{0} characters long; {MAX_NAME_LENGTH} are allowed")]
    LongName(usize),
    /// A name with other characters than names have.
    #[error("{0:?} has characters other than letters, digits, hyphens, underscores and dots")]
    Characters(String),
}

/// An IP address. An IPv4-mapped IPv6 address becomes the IPv4 address.
///
/// # Errors
/// [`InvalidText::Address`].
pub fn address(text: &str) -> Result<IpAddr, InvalidText> {
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_| InvalidText::Address(text.to_owned()))
}

/// An address that other hosts can send to: Kubernetes' rule for the addresses of services and endpoints (`ValidateNonSpecialIP`).
/// It prevents authors of endpoints from reaching the loopback of a node.
///
/// # Errors
/// [`InvalidText::Address`], [`InvalidText::SpecialAddress`].
pub fn routable_address(text: &str) -> Result<IpAddr, InvalidText> {
    let address = address(text)?;
    let special = match address {
        _ if address.is_unspecified() => "the unspecified address",
        _ if address.is_loopback() => "a loopback address",
        _ if address.is_multicast() => "a multicast address",
        IpAddr::V4(v4) if v4.is_broadcast() => "the broadcast address",
        IpAddr::V4(v4) if v4.is_link_local() => "a link-local address",
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        _ => return Ok(address),
    };
    Err(InvalidText::SpecialAddress {
        text: text.to_owned(),
        special,
    })
}

/// A range of addresses, without host bits.
///
/// # Errors
/// [`InvalidText::Range`].
pub fn range(text: &str) -> Result<IpNetwork, InvalidText> {
    // The parser accepts a bare address as a range of one address, which is never intended.
    text.parse::<IpNetwork>()
        .ok()
        .filter(|_| text.contains('/'))
        .and_then(|range| IpNetwork::new(range.network(), range.prefix()).ok())
        .ok_or_else(|| InvalidText::Range(text.to_owned()))
}

/// The address in `10.1.1.2/24`, or a bare address.
///
/// # Errors
/// [`InvalidText::InterfaceAddress`].
pub fn interface_address(text: &str) -> Result<IpAddr, InvalidText> {
    text.parse::<IpNetwork>()
        .map(|network| network.ip().to_canonical())
        .map_err(|_| InvalidText::InterfaceAddress(text.to_owned()))
}

/// The name of an object, an interface or a node, so that it can be printed unchanged.
///
/// # Errors
/// [`InvalidText::NoName`], [`InvalidText::LongName`], [`InvalidText::Characters`].
pub fn name(text: &str) -> Result<(), InvalidText> {
    match text.len() {
        0 => Err(InvalidText::NoName),
        1..=MAX_NAME_LENGTH => name_characters(text),
        length => Err(InvalidText::LongName(length)),
    }
}

/// A text of the characters of names, which may be empty.
///
/// # Errors
/// [`InvalidText::Characters`].
pub fn name_characters(text: &str) -> Result<(), InvalidText> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.bytes().all(is_allowed) {
        Ok(())
    } else {
        Err(InvalidText::Characters(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_address_in_ipv6_form_is_ipv4_address() {
        assert_eq!(address("::ffff:10.1.2.3"), address("10.1.2.3"));
        assert_eq!(routable_address("::ffff:10.0.0.1"), address("10.0.0.1"));
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
            "255.255.255.255",
            "::ffff:127.0.0.1",
            "host.example",
        ] {
            assert!(routable_address(text).is_err(), "{text}");
        }
        for text in ["10.0.0.1", "2001:db8::1"] {
            assert!(routable_address(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn ranges_lose_their_host_bits() {
        assert_eq!(range("10.1.1.7/24"), range("10.1.1.0/24"));
        assert_eq!(range("fd00::7/64"), range("fd00::/64"));
        for wrong in ["", "10.1.1.0", "10.1.1.0/33", "10.1.1/24", "x/8"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_cannot_carry_syntax_of_any_language() {
        assert!(name("kube-dns.v1_2").is_ok() && name(&"x".repeat(253)).is_ok());
        for wrong in [
            "",
            "a b",
            "a\"",
            "a;b",
            "a{",
            "é",
            "a\n",
            "../etc",
            &"x".repeat(254),
        ] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
    }
}
