//! The text form of addresses in messages.

use std::borrow::Cow;

/// Removes the leading zeros of the numbers in an address or range; in IPv4 they are decimal all the same: `10.0.0.041/025` is
/// `10.0.0.41/25`. API servers accepted such text until Kubernetes 1.36. Source: `ParseIPSloppy` and `ParseCIDRSloppy` of
/// Kubernetes' `k8s.io/utils/net`.
pub fn without_leading_zeros(text: &str) -> Cow<'_, str> {
    let is_end = |c| matches!(c, '.' | ':' | '/');
    let is_padded = |number: &str| number.len() > 1 && number.starts_with('0');
    if !text.split(is_end).any(is_padded) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for part in text.split_inclusive(is_end) {
        let number = part.trim_end_matches(is_end);
        let digits = number.trim_start_matches('0');
        // A number of zeros becomes one zero; an empty number is part of `::`.
        plain.push_str(if digits.is_empty() && !number.is_empty() {
            "0"
        } else {
            digits
        });
        plain.push_str(&part[number.len()..]);
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_dropped_and_nothing_else() {
        for (text, expected) in [
            ("172.30.0.041", "172.30.0.41"),
            ("203.0.113.000/025", "203.0.113.0/25"),
            ("000.010.0.00010", "0.10.0.10"),
            ("fd00:0000:00010::0", "fd00:0:10::0"),
            ("::ffff:010.0.0.08", "::ffff:10.0.0.8"),
            ("::/00", "::/0"),
            ("10.0.0.10", "10.0.0.10"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("", ""),
            ("é0.0/", "é0.0/"),
        ] {
            assert_eq!(without_leading_zeros(text), expected);
        }
    }
}
