//! The carrier of a service: the renderer that programs its connections, and the reason if it is not the requested one.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize, Serializer};

use crate::ServiceId;

/// The renderer that carries connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The renderer `nftables`, by translating addresses.
    #[default]
    Nftables,
    /// The renderer `route`, without translation.
    Route,
    /// The renderer `nftables`, until the renderer `route` has reported that its routes are there.
    NftablesUntilRoute,
    /// After a start, until the renderer `route` has reported: the renderer that carried them before; if none did, `nftables`.
    AsBefore,
}

impl Carrier {
    /// The renderer `nftables` translates the addresses.
    pub const fn translates(self) -> bool {
        matches!(
            self,
            Self::Nftables | Self::NftablesUntilRoute | Self::AsBefore
        )
    }

    /// The renderer `route` has routes to the backends.
    pub const fn routes(self) -> bool {
        matches!(
            self,
            Self::Route | Self::NftablesUntilRoute | Self::AsBefore
        )
    }
}

/// The renderer that carries the connections of one service on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Assignment {
    /// For its addresses.
    pub addresses: Carrier,
    /// For its node ports; none where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ports: Option<Carrier>,
    /// Why routes do not carry its addresses although they should. For people; not read back. Boxed, since most services have
    /// none.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub reason: Option<Box<DirectRoutingBlocker>>,
}

/// Why routes cannot carry a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectRoutingBlocker {
    /// The agent runs without the renderer `route`.
    NoRenderer,
    /// A service port has another target port.
    OtherPort {
        /// The service port.
        port: u16,
        /// The target port.
        target: u16,
    },
    /// Routes cannot match ports, and two ports of the service have different backends.
    BackendsDiffer,
    /// The service has session affinity.
    Affinity,
    /// Backends are chosen by the client's address.
    ClientBalance,
    /// The service has source ranges.
    SourceRanges,
    /// Another service has the same address.
    SharedAddress(IpAddr, ServiceId),
    /// Both pods of this node and the node itself are backends; one route cannot lead to both.
    PodsAndNode,
}

impl fmt::Display for DirectRoutingBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRenderer => {
                f.write_str("the renderer route does not run; name it in renderers")
            }
            Self::OtherPort { port, target } => {
                write!(
                    f,
                    "port {port} leads to port {target} of the backends; routes cannot change a port"
                )
            }
            Self::BackendsDiffer => f.write_str(
                "its ports do not have the same backends; a route is for all ports of an address",
            ),
            Self::Affinity => f.write_str("it has session affinity, which routes cannot give"),
            Self::ClientBalance => f.write_str(
                "its backends are chosen by the address of the client, which routes cannot do",
            ),
            Self::SourceRanges => f.write_str("it has source ranges, which routes cannot check"),
            Self::SharedAddress(address, other) => {
                write!(
                    f,
                    "{other} has the address {address} too; a route leads to one service"
                )
            }
            Self::PodsAndNode => {
                f.write_str("this node and pods on it are backends; no route leads to both")
            }
        }
    }
}

impl Serialize for DirectRoutingBlocker {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
