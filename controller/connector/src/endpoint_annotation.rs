//! The annotations by which flomesh's services carry the addresses of their endpoints.
//!
//! flomesh writes `flomesh.io/cloud-endpoint-addr-<N>`, where `N` is the IPv4 address as a decimal number of 32 bits,
//! and finds the services of a pod by that name. It has no form for IPv6; an IPv6 address became `0` there. Here it is
//! `flomesh.io/cloud-endpoint-addr6-<32 hexadecimal digits>`, which flomesh's reader ignores.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// `MeshEndpointAddrAnnotation` with the hyphen that always follows.
const V4_PREFIX: &str = "flomesh.io/cloud-endpoint-addr-";
const V6_PREFIX: &str = "flomesh.io/cloud-endpoint-addr6-";

/// The name of an address's annotation.
pub fn name(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("{V4_PREFIX}{}", address.to_bits()),
        IpAddr::V6(address) => format!("{V6_PREFIX}{:032x}", address.to_bits()),
    }
}

/// The address in an annotation's name; none for other annotations.
pub fn address(name: &str) -> Option<IpAddr> {
    if let Some(number) = name.strip_prefix(V4_PREFIX) {
        return number.parse().ok().map(Ipv4Addr::from_bits).map(IpAddr::V4);
    }
    let digits = name
        .strip_prefix(V6_PREFIX)
        .filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16)
        .ok()
        .map(Ipv6Addr::from_bits)
        .map(IpAddr::V6)
}

/// The value: the ports as Go prints a list, `[80 8080]`.
pub fn value(ports: &BTreeSet<u16>) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("[{}]", ports.join(" "))
}

/// The ports of a value; none if it is no such list. Earlier versions wrote commas.
pub fn ports(value: &str) -> Option<BTreeSet<u16>> {
    let list = value.strip_prefix('[')?.strip_suffix(']')?;
    let numbers = list.split([' ', ',']).filter(|number| !number.is_empty());
    numbers
        .map(|number| number.parse().ok().filter(|port| *port > 0))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ipv4_address_is_decimal_number_as_in_flomesh() {
        let name = name("10.0.0.1".parse().unwrap());
        assert_eq!(name, "flomesh.io/cloud-endpoint-addr-167772161");
        assert_eq!(value(&BTreeSet::from([80, 8080])), "[80 8080]");
    }

    #[test]
    fn ports_are_read_back_also_from_earlier_versions() {
        for both in ["[80 8080]", "[80,8080]"] {
            assert_eq!(ports(both), Some(BTreeSet::from([80, 8080])), "{both}");
        }
        assert_eq!(ports("[]"), Some(BTreeSet::new()));
        for wrong in ["", "80", "[80", "[x]", "[0]", "[70000]", "[80;81]"] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_other_annotations_are_no_addresses() {
        for other in [
            "flomesh.io/cloud-endpoint-addr-",
            "flomesh.io/cloud-endpoint-addr-4294967296",
            "flomesh.io/cloud-endpoint-addr6-1",
            "flomesh.io/mesh-service-sync",
        ] {
            assert_eq!(address(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn address_round_trips_through_its_kubernetes_name(bits: u128, is_v6: bool) {
            let expected = if is_v6 {
                IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
            } else {
                IpAddr::V4(Ipv4Addr::from_bits((bits & 0xffff_ffff) as u32))
            };
            let name = name(expected);
            prop_assert_eq!(address(&name), Some(expected));
            // The part after the slash of an annotation's name has at most 63 characters.
            prop_assert!(name.split('/').nth(1).unwrap().len() <= 63);
        }
    }
}
