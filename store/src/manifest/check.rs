//! Validates the fields that contiv uses, as an API server does.

use std::fmt::Arguments;

use contiv_proto::{
    address::without_leading_zeros,
    check::{self, InvalidText},
};
use jiff::Timestamp;

/// Collects the problems of one object. Fields are spelled as in the manifest.
#[derive(Debug, Default)]
pub(super) struct Check {
    /// Field and reason, in the order in which they were found.
    pub(super) findings: Vec<(String, String)>,
    /// Whether a finding makes the whole object unusable. Unknown values and wrong addresses do not: the object is used without
    /// them.
    is_broken: bool,
    /// Whether the object has a valid address or a node port.
    has_address: bool,
    is_address_left_out: bool,
}

impl Check {
    /// Records a problem of a field that makes the whole object unusable.
    pub(super) fn refuse(&mut self, field: Arguments<'_>, reason: impl Into<String>) {
        self.findings.push((field.to_string(), reason.into()));
        self.is_broken = true;
    }

    /// Whether the object is not usable. It is used without an address that is wrong, unless it has no other.
    pub(super) const fn is_refused(&self) -> bool {
        self.is_broken || self.is_address_left_out && !self.has_address
    }

    /// Records a problem of an address. The object is used without that address.
    pub(super) fn leave_out(&mut self, field: Arguments<'_>, reason: impl Into<String>) {
        self.findings.push((field.to_string(), reason.into()));
        self.is_address_left_out = true;
    }

    /// Records that clients can reach the object without its own address, as with a node port.
    pub(super) const fn mark_reachable(&mut self) {
        self.has_address = true;
    }

    fn check_address<T>(
        &mut self,
        field: Arguments<'_>,
        text: &str,
        parse: impl Fn(&str) -> Result<T, InvalidText>,
    ) {
        match parse(&without_leading_zeros(text)).or_else(|_| parse(text)) {
            Ok(_) => self.has_address = true,
            Err(reason) => self.leave_out(field, reason.to_string()),
        }
    }

    /// Checks an IPv4 or IPv6 address.
    pub(super) fn address(&mut self, field: Arguments<'_>, text: &str) {
        self.check_address(field, text, check::address);
    }

    /// Checks an address that other hosts can send to.
    pub(super) fn routable_address(&mut self, field: Arguments<'_>, text: &str) {
        self.check_address(field, text, check::routable_address);
    }

    /// Checks an address of an interface, with or without a prefix length.
    pub(super) fn address_of_interface(&mut self, field: Arguments<'_>, text: &str) {
        self.check_address(field, text, check::interface_address);
    }

    /// Checks the name of an object, an interface or a node.
    pub(super) fn name(&mut self, field: Arguments<'_>, text: &str) {
        if let Err(reason) = check::name(text) {
            self.refuse(field, reason.to_string());
        }
    }

    /// Checks that a text consists of the characters of names only. It may be empty.
    pub(super) fn name_characters(&mut self, field: Arguments<'_>, text: &str) {
        if let Err(reason) = check::name_characters(text) {
            self.refuse(field, reason.to_string());
        }
    }

    /// Checks an address range that belongs to the object, such as the pod CIDR of a node.
    pub(super) fn network(&mut self, field: Arguments<'_>, text: &str) {
        self.check_address(field, text, check::range);
    }

    /// Checks an address range of clients. It does not count as an address of the object.
    pub(super) fn client_network(&mut self, field: Arguments<'_>, text: &str) {
        if let Err(reason) = check::range(&without_leading_zeros(text)) {
            self.findings.push((field.to_string(), reason.to_string()));
        }
    }

    /// Checks a port number.
    pub(super) fn port(&mut self, field: Arguments<'_>, port: i64) -> i32 {
        self.number(field, port, 1, 65535)
    }

    /// Checks a port number; 0 means none.
    pub(super) fn optional_port(&mut self, field: Arguments<'_>, port: i64) -> i32 {
        self.number(field, port, 0, 65535)
    }

    /// Checks a whole number from `least` to `most`. Returns 0 if it is outside.
    pub(super) fn number(
        &mut self,
        field: Arguments<'_>,
        number: i64,
        least: i32,
        most: i32,
    ) -> i32 {
        match i32::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.refuse(
                    field,
                    format!("{number} is not a number from {least} to {most}"),
                );
                0
            }
        }
    }

    /// Checks that a value is one of those allowed.
    pub(super) fn check_word(&mut self, field: Arguments<'_>, word: &str, words: &[&str]) {
        if !words.contains(&word) {
            self.refuse(
                field,
                format!("{word:?} is not one of {}", words.join(", ")),
            );
        }
    }

    /// Checks that a value is known. Newer versions of Kubernetes may have more: the object is used without an unknown value.
    pub(super) fn known_value(&mut self, field: Arguments<'_>, word: &str, words: &[&str]) {
        if !words.contains(&word) {
            self.findings.push((
                field.to_string(),
                format!("{word:?} is not one of {}", words.join(", ")),
            ));
        }
    }

    /// Like [`Check::known_value`]; empty means the default.
    pub(super) fn known_value_or_empty(
        &mut self,
        field: Arguments<'_>,
        word: &str,
        words: &[&str],
    ) {
        if !word.is_empty() {
            self.known_value(field, word, words);
        }
    }

    /// Converts a time (RFC 3339) to seconds since 1970; 0 if absent.
    pub(super) fn time(&mut self, field: Arguments<'_>, text: Option<&str>) -> i64 {
        let Some(text) = text else { return 0 };
        if let Ok(time) = text.parse::<Timestamp>() {
            return time.as_second();
        }
        self.refuse(
            field,
            format!("{text:?} is not a time, as in 2024-05-01T12:00:00Z"),
        );
        0
    }

    /// Checks a transport protocol. TCP if empty, like the default of the API server.
    pub(super) fn protocol(&mut self, field: Arguments<'_>, protocol: String) -> String {
        if protocol.is_empty() {
            return "TCP".to_owned();
        }
        self.known_value(field, &protocol, &["TCP", "UDP", "SCTP"]);
        protocol
    }
}
