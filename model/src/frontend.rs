//! Frontends: address, protocol and port of a service.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// The transport protocols a service can have, with their IANA numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// IP protocol 6.
    Tcp = 6,
    /// IP protocol 17.
    Udp = 17,
    /// IP protocol 132.
    Sctp = 132,
}

impl Protocol {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// A text that is not a protocol of services.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown protocol {0:?}; valid protocols: tcp, udp, sctp")]
pub struct UnknownProtocol(String);

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    /// In upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "sctp" => Ok(Self::Sctp),
            _ => Err(UnknownProtocol(text.to_owned())),
        }
    }
}

/// A destination that clients connect to. Only one service holds it: see [`crate::ContivService::lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frontend {
    /// A cluster, external or load-balancer address.
    Address {
        /// The service address.
        address: IpAddr,
        /// Its protocol.
        protocol: Protocol,
        /// The service port.
        port: u16,
    },
    /// A node port, on every node-port address of this node and in both families.
    NodePort {
        /// Its protocol.
        protocol: Protocol,
        /// The node port.
        port: u16,
    },
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address {
                address,
                protocol,
                port,
            } => {
                write!(f, "{}/{protocol}", SocketAddr::new(*address, *port))
            }
            Self::NodePort { protocol, port } => write!(f, "node port {port}/{protocol}"),
        }
    }
}

impl Serialize for Frontend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Frontend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parse = || {
            let (place, protocol) = text.rsplit_once('/')?;
            let protocol = protocol.parse().ok()?;
            if let Some(port) = place.strip_prefix("node port ") {
                return Some(Self::NodePort {
                    protocol,
                    port: port.parse().ok()?,
                });
            }
            let at: SocketAddr = place.parse().ok()?;
            Some(Self::Address {
                address: at.ip(),
                protocol,
                port: at.port(),
            })
        };
        parse().ok_or_else(|| {
            de::Error::custom(format_args!(
                "{text:?} is neither an address with a port nor a node port"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn frontends_read_well_in_text_and_as_keys_of_json_objects() {
        let frontends = [
            Frontend::Address {
                address: [10, 96, 0, 1].into(),
                protocol: Protocol::Tcp,
                port: 80,
            },
            Frontend::Address {
                address: IpAddr::V6(1.into()),
                protocol: Protocol::Udp,
                port: 53,
            },
            Frontend::NodePort {
                protocol: Protocol::Sctp,
                port: 30080,
            },
        ];
        let map: BTreeMap<Frontend, u8> = frontends.into_iter().zip(1..).collect();
        assert_eq!(
            serde_json::to_string(&map).unwrap(),
            r#"{"10.96.0.1:80/tcp":1,"[::1]:53/udp":2,"node port 30080/sctp":3}"#
        );
        let read: BTreeMap<Frontend, u8> =
            serde_json::from_str(&serde_json::to_string(&map).unwrap()).unwrap();
        assert_eq!(read, map);
    }
}
