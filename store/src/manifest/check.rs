//! An API server's checks of the fields that contiv uses.

use std::{fmt::Arguments, net::IpAddr};

use contiv_proto::address::without_leading_zeros;
use ipnetwork::IpNetwork;
use jiff::Timestamp;

/// Collects the problems of one object. Fields are spelled as in the manifest.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// Field and reason, in the order in which they were found.
    pub(super) findings: Vec<(String, String)>,
    /// One of them is more than an unknown value or an address that can be left out: the object is not usable.
    is_broken: bool,
    /// There is an address, or a node port.
    has_address: bool,
    is_address_left_out: bool,
}

impl Check {
    /// Notes what is wrong with a field.
    pub(super) fn refuse(&mut self, field: Arguments<'_>, reason: impl Into<String>) {
        self.findings.push((field.to_string(), reason.into()));
        self.is_broken = true;
    }

    /// Whether the object is not usable. It is used without an address that is wrong, unless it has no other.
    pub(super) const fn is_refused(&self) -> bool {
        self.is_broken || self.is_address_left_out && !self.has_address
    }

    /// Notes what is wrong with an address.
    pub(super) fn leave_out(&mut self, field: Arguments<'_>, reason: impl Into<String>) {
        self.findings.push((field.to_string(), reason.into()));
        self.is_address_left_out = true;
    }

    /// The object can be reached whatever its addresses are.
    pub(super) const fn can_be_reached(&mut self) {
        self.has_address = true;
    }

    fn address_if<T>(&mut self, field: Arguments<'_>, text: &str, parse: impl Fn(&str) -> Result<T, String>) {
        match parse(&without_leading_zeros(text)).or_else(|_| parse(text)) {
            Ok(_) => self.has_address = true,
            Err(reason) => self.leave_out(field, reason),
        }
    }

    /// An IPv4 or IPv6 address.
    pub(super) fn address(&mut self, field: Arguments<'_>, text: &str) {
        self.address_if(field, text, parse_address);
    }

    /// An address that other hosts can send to: Kubernetes' rule for the addresses of services and endpoints
    /// (`ValidateNonSpecialIP`). It prevents authors of endpoints from reaching the loopback of a node.
    pub(super) fn routable_address(&mut self, field: Arguments<'_>, text: &str) {
        self.address_if(field, text, routable_address);
    }

    /// An address, with a prefix length or without.
    pub(super) fn address_of_interface(&mut self, field: Arguments<'_>, text: &str) {
        self.address_if(field, text, |text| {
            let problem = |_| format!("{text:?} is not an address of an interface, as in 192.168.16.2/24");
            text.parse::<IpNetwork>().map_err(problem)
        });
    }

    /// The name of an object, an interface or a node.
    pub(super) fn name(&mut self, field: Arguments<'_>, text: &str) {
        if text.is_empty() {
            self.refuse(field, "missing; expected a name");
        } else if text.len() > 253 {
            self.refuse(field, format!("{} characters long; 253 are allowed", text.len()));
        } else {
            self.plain(field, text);
        }
    }

    /// Text that can be printed unchanged. It may be empty.
    pub(super) fn plain(&mut self, field: Arguments<'_>, text: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !text.chars().all(is_plain) {
            self.refuse(
                field,
                format!("{text:?} holds more than letters, digits, hyphens, underscores and dots"),
            );
        }
    }

    /// The range of addresses of an object.
    pub(super) fn network(&mut self, field: Arguments<'_>, text: &str) {
        self.address_if(field, text, parse_network);
    }

    /// The range of addresses of others.
    pub(super) fn foreign_network(&mut self, field: Arguments<'_>, text: &str) {
        if let Err(reason) = parse_network(&without_leading_zeros(text)) {
            self.findings.push((field.to_string(), reason));
        }
    }

    /// A port number.
    pub(super) fn port(&mut self, field: Arguments<'_>, port: i64) -> i32 {
        self.number(field, port, 1, 65535)
    }

    /// A port number, or 0 for none.
    pub(super) fn optional_port(&mut self, field: Arguments<'_>, port: i64) -> i32 {
        self.number(field, port, 0, 65535)
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(&mut self, field: Arguments<'_>, number: i64, least: i32, most: i32) -> i32 {
        match i32::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.refuse(field, format!("{number} is not a number from {least} to {most}"));
                0
            }
        }
    }

    /// One of a few words.
    pub(super) fn one_of(&mut self, field: Arguments<'_>, word: &str, words: &[&str]) {
        if !words.contains(&word) {
            self.refuse(field, format!("{word:?} is none of {}", words.join(", ")));
        }
    }

    /// One of a few words, where newer versions of Kubernetes may have more: the object is used without an unknown one.
    pub(super) fn known(&mut self, field: Arguments<'_>, word: &str, words: &[&str]) {
        if !words.contains(&word) {
            self.findings.push((field.to_string(), format!("{word:?} is none of {}", words.join(", "))));
        }
    }

    /// Like [`Check::known`]; empty means the default.
    pub(super) fn known_or_empty(&mut self, field: Arguments<'_>, word: &str, words: &[&str]) {
        if !word.is_empty() {
            self.known(field, word, words);
        }
    }

    /// A time (RFC 3339) as seconds since 1970; 0 if absent.
    pub(super) fn time(&mut self, field: Arguments<'_>, text: Option<&str>) -> i64 {
        let Some(text) = text else { return 0 };
        if let Ok(time) = text.parse::<Timestamp>() {
            return time.as_second();
        }
        self.refuse(field, format!("{text:?} is not a time, as in 2024-05-01T12:00:00Z"));
        0
    }

    /// A transport protocol; TCP if absent, like the API server's default.
    pub(super) fn protocol(&mut self, field: Arguments<'_>, protocol: String) -> String {
        if protocol.is_empty() {
            return "TCP".to_owned();
        }
        self.known(field, &protocol, &["TCP", "UDP", "SCTP"]);
        protocol
    }
}

/// An address and a prefix length.
fn parse_network(text: &str) -> Result<IpNetwork, String> {
    let network = text.parse().ok().filter(|_| text.contains('/'));
    network.ok_or_else(|| format!("{text:?} is not an address range, as in 10.0.0.0/16 or fd00::/64"))
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address, as in 10.0.0.1 or fd00::1"))
}

/// The address, if other hosts can send to it. An IPv4-mapped IPv6 address becomes IPv4.
///
/// # Errors
/// What is wrong with it.
pub fn routable_address(text: &str) -> Result<IpAddr, String> {
    let address = parse_address(text)?.to_canonical();
    if is_special(address) {
        return Err(format!("{text:?} is not an address that other hosts can send to"));
    }
    Ok(address)
}

fn is_special(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    is_local || address.is_unspecified() || address.is_loopback() || address.is_multicast()
}
