//! Formats keys and values of sets as text, by the data type that the kernel stores with each set. Source: nftables'
//! `include/datatype.h`.

use std::{fmt::Write, net::IpAddr};

use ipnetwork::IpNetwork;

use crate::nftables::netlink::constants::{NFPROTO_IPV4, NFPROTO_IPV6};

/// A data type of nftables. The number of a concatenation packs those of its types, six bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataType {
    Family,
    Integer,
    Address(usize),
    Protocol,
    Port,
    /// The handle of a traffic class: the type of `meta priority`.
    Class,
    Interface,
}

const TYPE_BITS: u32 = 6;
const TYPE_MASK: u32 = (1 << TYPE_BITS) - 1;

impl DataType {
    const fn by_number(number: u32) -> Option<Self> {
        Some(match number {
            2 => Self::Family,
            4 => Self::Integer,
            7 => Self::Address(4),
            8 => Self::Address(16),
            12 => Self::Protocol,
            13 => Self::Port,
            23 => Self::Class,
            41 => Self::Interface,
            _ => return None,
        })
    }

    const fn width(self) -> usize {
        match self {
            Self::Integer | Self::Class => 4,
            Self::Address(width) => width,
            Self::Family | Self::Protocol => 1,
            Self::Port => 2,
            Self::Interface => 16,
        }
    }

    /// Formats a value like `nft`. Integers are in host order: here they are slots, which the kernel's `numgen` and `jhash` write.
    fn text(self, bytes: &[u8]) -> Option<String> {
        Some(match self {
            Self::Integer => u32::from_ne_bytes(bytes.try_into().ok()?).to_string(),
            Self::Address(_) => address(bytes)?.to_string(),
            Self::Family => match bytes {
                [NFPROTO_IPV4] => "ipv4".to_owned(),
                [NFPROTO_IPV6] => "ipv6".to_owned(),
                [other] => other.to_string(),
                _ => return None,
            },
            Self::Protocol => match bytes {
                [6] => "tcp".to_owned(),
                [17] => "udp".to_owned(),
                [132] => "sctp".to_owned(),
                [other] => other.to_string(),
                _ => return None,
            },
            Self::Port => u16::from_be_bytes(bytes.try_into().ok()?).to_string(),
            Self::Class => match u32::from_ne_bytes(bytes.try_into().ok()?) {
                0 => "none".to_owned(),
                u32::MAX => "root".to_owned(),
                handle => format!("{:x}:{:x}", handle >> 16, handle & 0xffff),
            },
            Self::Interface => {
                let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                format!("\"{}\"", str::from_utf8(name).ok()?.escape_debug())
            }
        })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

/// The types of a concatenation, or the single type. None if one is unknown.
fn types(number: u32) -> Option<Vec<DataType>> {
    let mut types = Vec::new();
    let mut rest = number;
    while rest > 0 {
        types.insert(0, DataType::by_number(rest & TYPE_MASK)?);
        rest >>= TYPE_BITS;
    }
    (!types.is_empty()).then_some(types)
}

/// One part of a key: its type, its first and its last value.
type Part<'a> = (DataType, &'a [u8], &'a [u8]);

/// Formats a key from `first` to `last`, or a value; in hexadecimal if its type is unknown. If the last part of a concatenation is
/// an integer, it is the number of a slot, and returned separately.
pub(super) fn text(number: u32, first: &[u8], last: &[u8]) -> (String, Option<u32>) {
    let unknown = || {
        let mut text = "0x".to_owned();
        for byte in first {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        (text, None)
    };
    let Some(mut parts) = parts(number, first, last) else {
        return unknown();
    };
    let slot = match parts.last() {
        Some((DataType::Integer, first, last)) if first == last && parts.len() > 1 => {
            let slot = (*first).try_into().ok().map(u32::from_ne_bytes);
            parts.pop();
            slot
        }
        _ => None,
    };
    let texts: Option<Vec<String>> = parts.into_iter().map(part_text).collect();
    texts.map_or_else(unknown, |texts| (texts.join(" . "), slot))
}

fn parts<'a>(number: u32, first: &'a [u8], last: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let types = types(number)?;
    if let [only] = types[..] {
        let has_width = first.len() == only.width() && last.len() == only.width();
        return has_width.then(|| vec![(only, first, last)]);
    }
    let mut at = 0;
    let mut parts = Vec::new();
    for one in types {
        let end = at + one.width();
        parts.push((one, first.get(at..end)?, last.get(at..end)?));
        // Each part of a concatenation is padded to four bytes.
        at = end.next_multiple_of(4);
    }
    (first.len() == at && last.len() == at).then_some(parts)
}

fn part_text((one, first, last): Part<'_>) -> Option<String> {
    if first == last {
        return one.text(first);
    }
    if let DataType::Interface = one {
        // A prefix of names: the remaining bytes of the last value are filled with ones.
        let stem = last.iter().take_while(|byte| **byte != u8::MAX).count();
        let name = str::from_utf8(first.get(..stem)?).ok()?;
        return Some(format!("\"{}*\"", name.escape_debug()));
    }
    if let (DataType::Address(width), Some(begin), Some(end)) = (one, address(first), address(last))
    {
        let prefixes = 0..=u8::try_from(width * 8).ok()?;
        let mut networks = prefixes.filter_map(|prefix| IpNetwork::new(begin, prefix).ok());
        let network =
            networks.find(|network| network.network() == begin && network.broadcast() == end);
        return Some(
            network.map_or_else(|| format!("{begin}-{end}"), |network| network.to_string()),
        );
    }
    Some(format!("{}-{}", one.text(first)?, one.text(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: u32 = 7;
    const FRONTEND: u32 = (7 << 12) + (12 << 6) + 13;

    #[test]
    fn concatenation_is_split_by_its_types_and_slot() {
        let key = [10, 96, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0];
        assert_eq!(
            text(FRONTEND, &key, &key),
            ("10.96.0.1 . tcp . 80".to_owned(), None)
        );
        let with_slot = [&key[..], &5_u32.to_ne_bytes()].concat();
        let found = text(FRONTEND << 6 | 4, &with_slot, &with_slot);
        assert_eq!(found, ("10.96.0.1 . tcp . 80".to_owned(), Some(5)));
    }

    #[test]
    fn range_is_shown_as_prefix_where_possible() {
        let range = |first: [u8; 4], last: [u8; 4]| text(IPV4, &first, &last).0;
        assert_eq!(range([10, 0, 0, 0], [10, 0, 255, 255]), "10.0.0.0/16");
        assert_eq!(range([0; 4], [255; 4]), "0.0.0.0/0");
        assert_eq!(range([10, 0, 0, 1], [10, 0, 0, 3]), "10.0.0.1-10.0.0.3");
        assert_eq!(range([10, 0, 0, 1], [10, 0, 0, 1]), "10.0.0.1");
        let (mut first, mut last) = ([0; 16], [255; 16]);
        first[..4].copy_from_slice(b"veth");
        last[..4].copy_from_slice(b"veth");
        assert_eq!(text(41, &first, &last).0, "\"veth*\"");
        assert_eq!(text(41, &first, &first).0, "\"veth\"");
    }

    #[test]
    fn unknown_type_or_wrong_length_is_shown_as_bytes() {
        assert_eq!(text(63, &[1, 255], &[1, 255]).0, "0x01ff");
        assert_eq!(text(IPV4, &[1, 2], &[1, 2]).0, "0x0102");
        assert_eq!(text(0, &[], &[]).0, "0x");
    }
}
