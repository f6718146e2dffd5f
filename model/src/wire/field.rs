//! Validation of single fields, beside [`contiv_proto::check`]. The error of each function says why the value is invalid, and what
//! would be valid.

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
}
