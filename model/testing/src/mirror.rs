//! Mirror images: each address in the other family. A rule that was forgotten for one family breaks the mirror image of a case.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use contiv_model::Snapshot;
use ipnetwork::IpNetwork;
use serde_json::Value;

/// The first part of the images of IPv4 addresses. Originals must not have it.
const IMAGES: u16 = 0xfd64;
const LINK_LOCAL: u16 = 0xfe80;
const LINK_LOCAL_RANGES: [&str; 2] = ["169.254.0.0/16", "fe80::/10"];

/// The image of an address. The order within a family stays, and "any address" and loopback have each other as images.
///
/// An IPv6 address is told from others by its first three parts and the last byte.
pub fn address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
        IpAddr::V4(v4) if v4.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets().map(u16::from);
            let first = if v4.is_link_local() {
                LINK_LOCAL
            } else {
                IMAGES
            };
            Ipv6Addr::new(first, 0, 0, 0, 0, 0, a << 8 | b, c << 8 | d).into()
        }
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(v6) if v6.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) => {
            let [first, second, third, .., last] = v6.segments();
            let low = |part: u16| part.to_be_bytes()[1];
            match first {
                LINK_LOCAL => [169, 254, 0, low(last)],
                _ => [
                    100,
                    64 | low(first) & 63,
                    low(second).wrapping_add(low(third)),
                    low(last),
                ],
            }
            .into()
        }
    }
}

/// The image of a range. It has the images of the addresses in it, and of no others.
///
/// # Panics
/// Never: the lengths are those of the other family.
pub fn range(range: IpNetwork) -> IpNetwork {
    if let Some(place) = LINK_LOCAL_RANGES
        .iter()
        .position(|text| text.parse() == Ok(range))
    {
        return LINK_LOCAL_RANGES[1 - place].parse().unwrap_or(range);
    }
    let length = match (range.prefix(), range.ip()) {
        (0, _) => 0,
        (_, ip) if ip.is_loopback() => {
            if ip.is_ipv4() {
                128
            } else {
                8
            }
        }
        (length, IpAddr::V4(_)) => length + 96,
        (..=8, _) => 10,
        (..=16, _) => 16,
        (..=112, _) => 24,
        (length, _) => length - 96,
    };
    IpNetwork::new(address(range.ip()), length).unwrap_or_else(|error| panic!("{range}: {error}"))
}

/// The image of a text with addresses, ranges, and names of families, sets and chains.
pub fn text(text: &str) -> String {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_-.:/[]".contains(c);
    let mut words = text.split_inclusive(|c| !is_of_word(c)).map(|word| {
        let end = word.trim_end_matches(|c| !is_of_word(c)).len();
        let (word, after) = word.split_at(end);
        self::word(word) + after
    });
    words.by_ref().collect()
}

fn word(word: &str) -> String {
    if let Ok(of) = word.parse::<IpAddr>() {
        return address(of).to_string();
    }
    if let Ok(of) = word.parse::<SocketAddr>() {
        return SocketAddr::new(address(of.ip()), of.port()).to_string();
    }
    if let Some((before, after)) = word.split_once('/') {
        return match word.parse::<IpNetwork>() {
            Ok(of) => range(of).to_string(),
            Err(_) => format!("{}/{after}", self::word(before)),
        };
    }
    match word {
        "ip" => "ip6".to_owned(),
        "ip6" => "ip".to_owned(),
        _ => named(word).unwrap_or_else(|| word.to_owned()),
    }
}

/// The image of a name that has the digit of a family: `ipv4_addr`, `services4`, `pick-v4-3`.
fn named(word: &str) -> Option<String> {
    let place = word
        .find("v4")
        .or_else(|| word.find("v6"))
        .map(|place| place + 1);
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let is_last =
        || word.len() > 1 && word.ends_with(['4', '6']) && is_name(&word[..word.len() - 1]);
    let place = place.or_else(|| is_last().then(|| word.len() - 1))?;
    let digit = if word[place..].starts_with('4') {
        "6"
    } else {
        "4"
    };
    Some(format!("{}{digit}{}", &word[..place], &word[place + 1..]))
}

/// The image of a snapshot.
///
/// # Panics
/// When it is not one after all.
pub fn snapshot(snapshot: &Snapshot) -> Snapshot {
    let image = serde_json::to_value(snapshot).map(image_of_value);
    let image = image.and_then(serde_json::from_value::<Snapshot>);
    let mut image = image.unwrap_or_else(|error| panic!("{error}"));
    for service in image.services.values_mut() {
        for port in &mut std::sync::Arc::make_mut(service).ports {
            port.backends.sort();
        }
    }
    image
}

fn image_of_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(self::text(&text)),
        Value::Array(values) => values.into_iter().map(image_of_value).collect(),
        Value::Object(values) => values
            .into_iter()
            .map(|(key, value)| (self::text(&key), image_of_value(value)))
            .collect(),
        other => other,
    }
}
