//! Stored services that this proxy does not serve.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Addresses, ServiceId, object::ServicePortSpec};

/// Why this proxy does not serve a stored service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotServed {
    /// It is an alias in DNS.
    ExternalName,
    /// It is headless: clients get the addresses of its endpoints from DNS.
    Headless,
    /// Its label leaves it to the proxy of this name; without a label, to the one without a name.
    OtherProxy(Option<Arc<str>>),
    /// It has neither an address nor a node port.
    NoAddress,
}

impl NotServed {
    /// The reason in one or two words, as in a column of a table.
    pub fn summary(&self) -> String {
        match self {
            Self::ExternalName => "alias".to_owned(),
            Self::Headless => "headless".to_owned(),
            Self::OtherProxy(Some(proxy)) => format!("left to {proxy}"),
            Self::OtherProxy(None) => "other proxy".to_owned(),
            Self::NoAddress => "no address".to_owned(),
        }
    }
}

/// As the end of "it is not served: …".
impl fmt::Display for NotServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExternalName => f.write_str("of type ExternalName it is an alias in DNS"),
            Self::Headless => f.write_str("it is headless: clients get the addresses of its endpoints from DNS"),
            Self::OtherProxy(Some(proxy)) => {
                write!(f, "its label service.kubernetes.io/service-proxy-name leaves it to the proxy {proxy}")
            }
            Self::OtherProxy(None) => f.write_str(
                "it lacks the label service.kubernetes.io/service-proxy-name with the service-proxy-name of this agent",
            ),
            Self::NoAddress => f.write_str(
                "it has neither an address nor a node port; an API server would allocate a cluster IP, else set spec.clusterIP",
            ),
        }
    }
}

/// A stored service that this proxy does not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedService {
    /// Namespace and name.
    pub id: ServiceId,
    /// Why it is not served.
    pub not_served: NotServed,
    /// Its cluster IPs.
    pub cluster_ips: Addresses,
    /// Its external addresses, with those of load balancers.
    pub external_ips: Addresses,
    /// Its ports.
    pub ports: Vec<ServicePortSpec>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_names_what_to_look_at() {
        for (reason, word) in [
            (NotServed::ExternalName, "ExternalName"),
            (NotServed::Headless, "headless"),
            (
                NotServed::OtherProxy(Some("cilium".into())),
                "the proxy cilium",
            ),
            (
                NotServed::OtherProxy(None),
                "service-proxy-name of this agent",
            ),
            (NotServed::NoAddress, "spec.clusterIP"),
        ] {
            assert!(reason.to_string().contains(word), "{reason}");
        }
    }
}
