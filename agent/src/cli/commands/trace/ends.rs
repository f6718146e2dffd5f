//! The two ends of a flow on the command line.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use contiv_model::{InterfaceName, Protocol};

use crate::cli::selection::name::Name;

/// An address, and the interface where its packets arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Source {
    pub(in crate::cli) address: IpAddr,
    pub(in crate::cli) interface: Option<InterfaceName>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, interface) = match text.split_once('%') {
            Some((address, interface)) => (address, Some(interface)),
            None => (text, None),
        };
        let address = address.parse().map_err(|_| {
            format!("{address:?} is not an address, as in 10.244.1.5, fd00::1 or 10.244.1.5%veth1")
        })?;
        let interface = interface
            .map(str::parse)
            .transpose()
            .map_err(|error| format!("{error}"))?;
        Ok(Self { address, interface })
    }
}

/// Address, port and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Destination {
    pub(in crate::cli) address: SocketAddr,
    pub(in crate::cli) protocol: Protocol,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = protocol.parse().map_err(|error| format!("{error}"))?;
        let address = address.parse().map_err(|_| {
            format!(
                "{address:?} is not an address with a port, as in 10.96.0.1:443 or [fd00::1]:53"
            )
        })?;
        Ok(Self { address, protocol })
    }
}

/// The destination of a client: an address, or a service by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Target {
    /// As written.
    Address(Destination),
    /// An address of a service, which has to be looked up.
    Service(ServiceTarget),
}

/// A port of a service by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct ServiceTarget {
    pub(in crate::cli) name: Name,
    /// Its number or its name; required if the service has several.
    pub(in crate::cli) port: Option<String>,
    pub(in crate::cli) protocol: Option<Protocol>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Names of services and namespaces begin with a letter or digit, and contain no dots or colons.
        let head = text.split([':', '/']).next().unwrap_or_default();
        let is_label =
            !head.is_empty() && head.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let is_address = head.parse::<IpAddr>().is_ok() || text.parse::<IpAddr>().is_ok();
        // An IPv6 address without its brackets.
        let has_colons = text
            .split('/')
            .next()
            .unwrap_or_default()
            .matches(':')
            .count()
            > 1;
        if text.parse::<Destination>().is_ok() || !is_label || is_address || has_colons {
            return text.parse().map(Self::Address).map_err(|error| {
                format!("{error}; name a service as in web, shop/web or shop/web:80/tcp")
            });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        };
        let (port, protocol) = match port.and_then(|port| port.split_once('/')) {
            Some((port, protocol)) => (Some(port), Some(protocol)),
            None => (port, None),
        };
        let protocol = protocol
            .map(str::parse)
            .transpose()
            .map_err(|error| format!("{error}"))?;
        Ok(Self::Service(ServiceTarget {
            name: name.parse()?,
            port: port.map(str::to_owned),
            protocol,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_address_port_and_protocol() {
        let parsed = |text: &str| {
            text.parse::<Destination>()
                .map(|it| (it.address.to_string(), it.protocol))
        };
        assert_eq!(
            parsed("10.96.0.1:53/UDP"),
            Ok(("10.96.0.1:53".to_owned(), Protocol::Udp))
        );
        assert_eq!(
            parsed("[fd00::1]:443"),
            Ok(("[fd00::1]:443".to_owned(), Protocol::Tcp))
        );
        assert_eq!(
            parsed("[fd00::1]:443/sctp"),
            Ok(("[fd00::1]:443".to_owned(), Protocol::Sctp))
        );
        for (wrong, expected) in [
            ("10.96.0.1/tcp", "10.96.0.1:443"),
            ("web:80/tcp", "web:80"),
            ("10.96.0.1:80/icmp", "icmp"),
        ] {
            assert!(
                parsed(wrong).unwrap_err().contains(expected),
                "{wrong}: {:?}",
                parsed(wrong)
            );
        }
    }

    #[test]
    fn target_without_address_is_service() {
        let parsed = |text: &str| match text.parse::<Target>() {
            Ok(Target::Service(ServiceTarget {
                name,
                port,
                protocol,
            })) => Ok(format!(
                "{}/{} {port:?} {protocol:?}",
                name.namespace_or("default"),
                name.name
            )),
            Ok(Target::Address(to)) => Ok(to.address.to_string()),
            Err(error) => Err(error),
        };
        for (text, expected) in [
            ("web", "default/web None None"),
            ("shop/web", "shop/web None None"),
            ("web:80/tcp", "default/web Some(\"80\") Some(Tcp)"),
            ("shop/web:http", "shop/web Some(\"http\") None"),
            ("10.96.0.1:53/UDP", "10.96.0.1:53"),
            ("[fd00::1]:53", "[fd00::1]:53"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(expected), "{text}");
        }
        for (wrong, expected) in [
            ("10.96.0.1/tcp", "10.96.0.1:443"),
            ("10.96.0.1:80/icmp", "icmp"),
            ("a/b/c", "NAMESPACE/NAME"),
            ("::1", "[fd00::1]:53"),
            ("fd00::1:80/tcp", "[fd00::1]:53"),
        ] {
            assert!(
                parsed(wrong).unwrap_err().contains(expected),
                "{wrong}: {:?}",
                parsed(wrong)
            );
        }
    }

    #[test]
    fn source_is_address_and_may_name_interface() {
        let parsed = |text: &str| {
            text.parse::<Source>()
                .map(|it| (it.address.to_string(), it.interface))
        };
        assert_eq!(parsed("10.244.1.5"), Ok(("10.244.1.5".to_owned(), None)));
        let veth1 = Some(InterfaceName::new("veth1"));
        assert_eq!(parsed("fe80::1%veth1"), Ok(("fe80::1".to_owned(), veth1)));
        for (wrong, expected) in [
            ("web", "10.244.1.5"),
            ("10.1.0.1%", "is not the name of one interface"),
            ("10.1.0.1%veth*", "is not the name of one interface"),
        ] {
            assert!(
                parsed(wrong).unwrap_err().contains(expected),
                "{wrong}: {:?}",
                parsed(wrong)
            );
        }
    }
}
