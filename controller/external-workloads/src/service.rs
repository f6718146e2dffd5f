//! The fields of services that determine their endpoint slices.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_controller::{BoxError, Labels, ResourceType};
use contiv_proto::{
    Key, Kind,
    message::service::{self as wire, service::service_port::int_or_string::Type},
    value,
    wire::Wire,
};
use contiv_store::Entry;

use crate::family::Family;

/// Services of this namespace are left alone, as linkerd does.
const EXEMPT_NAMESPACE: &str = "kube-system";

/// The `clusterIP` of a headless service.
const NONE: &str = "None";

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace, in which its workloads and slices are too.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Distinguishes it from an earlier service of the same name: the revision of its creation.
    pub uid: i64,
    /// Its labels; its slices have them too.
    pub labels: BTreeMap<String, String>,
    /// The labels of the workloads that it selects. An empty selector selects none: the stored form does not distinguish it
    /// from a missing one.
    pub selector: Labels,
    /// Whether it is an alias of an external name and has no endpoints.
    pub is_external_name: bool,
    /// Whether it is headless: clients resolve the names of its endpoints.
    pub is_headless: bool,
    /// The families of its addresses; each has its own slices.
    pub families: Vec<Family>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; may be empty.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its target port.
    pub target: Target,
}

/// A port of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By its number.
    Number(i32),
    /// By its name.
    Name(String),
}

/// The resource type of stored services.
pub fn services() -> ResourceType<Service> {
    ResourceType::new("service", &Key::prefix(Kind::Service), decode)
}

pub(crate) fn decode(entry: &Entry) -> Result<Service, BoxError> {
    let message: wire::Service = read(entry)?;
    Ok(Service::from_message(message, entry.create_revision))
}

/// Decodes a stored message and checks that it matches its key.
pub(crate) fn read<M: Wire>(entry: &Entry) -> Result<M, BoxError> {
    let key = Key::parse(&entry.key)?.ok_or("this is not the key of an object")?;
    let mut message: M = value::decode(&entry.value)?;
    message.agree_with(&key)?;
    Ok(message)
}

/// The protocol; `TCP` if empty, like the default of the API server.
pub(crate) fn or_tcp(protocol: String) -> String {
    if protocol.is_empty() {
        "TCP".to_owned()
    } else {
        protocol
    }
}

impl Service {
    /// The service in a stored message. `uid` is the revision of its creation.
    pub fn from_message(message: wire::Service, uid: i64) -> Self {
        let families = families(&message);
        let port = |port: wire::service::ServicePort| ServicePort {
            target: target(&port),
            name: port.name,
            protocol: or_tcp(port.protocol),
        };
        Self {
            uid,
            is_external_name: message.service_type == "ExternalName",
            is_headless: message.cluster_ip == NONE,
            families,
            namespace: message.namespace,
            name: message.name,
            labels: message.labels,
            selector: message.selector,
            ports: message.port.into_iter().map(port).collect(),
        }
    }

    /// Whether this controller writes its slices: it has a selector, is no `ExternalName` service, and its namespace is not
    /// exempt.
    pub fn is_ours(&self) -> bool {
        !self.is_external_name && !self.selector.is_empty() && self.namespace != EXEMPT_NAMESPACE
    }
}

/// The families in `ip_families`; if it is empty, those of its cluster addresses, as in the API server; else both.
fn families(message: &wire::Service) -> Vec<Family> {
    let mut families: Vec<Family> = message
        .ip_families
        .iter()
        .filter_map(|word| Family::from_word(word))
        .collect();
    if families.is_empty() {
        let addresses = message.cluster_ips.iter().chain([&message.cluster_ip]);
        families = addresses
            .filter_map(|ip| ip.parse::<IpAddr>().ok())
            .map(Family::of)
            .collect();
    }
    if families.is_empty() {
        families = Family::ALL.to_vec();
    }
    families.sort_unstable();
    families.dedup();
    families
}

/// The target port. If it is missing, or zero as Contiv writes it, the port itself, like the default of the API server.
fn target(port: &wire::service::ServicePort) -> Target {
    match &port.target_port {
        Some(target) if target.r#type() == Type::String => Target::Name(target.string_val.clone()),
        Some(target) if target.int_val != 0 => Target::Number(target.int_val),
        _ => Target::Number(port.port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(json: &str) -> Service {
        Service::from_message(value::decode(json.as_bytes()).unwrap(), 7)
    }

    #[test]
    fn families_are_those_named_or_those_of_the_addresses() {
        use Family::{Ipv4, Ipv6};
        for (json, expected) in [
            (
                r#"{"ip_families":["IPv6"],"cluster_ip":"10.0.0.1"}"#,
                &[Ipv6][..],
            ),
            (r#"{"ip_families":["IPv6","IPv4"]}"#, &[Ipv4, Ipv6]),
            (r#"{"cluster_ip":"10.0.0.1"}"#, &[Ipv4]),
            (
                r#"{"cluster_ip":"10.0.0.1","cluster_ips":["10.0.0.1","fd00::1"]}"#,
                &[Ipv4, Ipv6],
            ),
            (r#"{"cluster_ip":"None"}"#, &[Ipv4, Ipv6]),
            ("{}", &[Ipv4, Ipv6]),
        ] {
            assert_eq!(service(json).families, expected, "{json}");
        }
    }

    #[test]
    fn port_leads_to_its_target_and_without_one_to_itself() {
        let service = service(
            r#"{"port":[{"port":80},{"port":80,"target_port":{}},{"port":80,"target_port":{"int_val":8080}},
            {"port":80,"protocol":"UDP","target_port":{"type":"STRING","string_val":"http"}}]}"#,
        );
        let targets: Vec<_> = service
            .ports
            .iter()
            .map(|port| port.target.clone())
            .collect();
        let number = Target::Number;
        assert_eq!(
            targets,
            [
                number(80),
                number(80),
                number(8080),
                Target::Name("http".to_owned())
            ]
        );
        assert_eq!(
            (
                service.ports[0].protocol.as_str(),
                service.ports[3].protocol.as_str()
            ),
            ("TCP", "UDP")
        );
    }

    #[test]
    fn external_name_selectorless_and_kube_system_are_left_out() {
        for (json, expected) in [
            (r#"{"selector":{"a":"b"}}"#, true),
            (r#"{"selector":{"a":"b"},"cluster_ip":"None"}"#, true),
            ("{}", false),
            (
                r#"{"selector":{"a":"b"},"service_type":"ExternalName","port":[{"port":80}]}"#,
                false,
            ),
            (
                r#"{"selector":{"a":"b"},"service_type":"ExternalName"}"#,
                false,
            ),
            (
                r#"{"service_type":"ExternalName","port":[{"port":80}]}"#,
                false,
            ),
            (r#"{"service_type":"ExternalName"}"#, false),
            (r#"{"selector":{"a":"b"},"namespace":"kube-system"}"#, false),
        ] {
            assert_eq!(service(json).is_ours(), expected, "{json}");
        }
    }
}
