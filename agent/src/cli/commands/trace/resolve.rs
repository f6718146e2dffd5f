//! Finds the address of a named service.

use std::net::{IpAddr, SocketAddr};

use contiv_model::NotServed;
use thiserror::Error;

use super::{
    desired::Source,
    ends::{Destination, ServiceTarget},
};
use crate::cli::{
    UsageError,
    output::suggest::suggest,
    source::views::{PortView, ServiceView},
};

/// Why a named service has no address to connect to.
#[derive(Debug, Error)]
pub(in crate::cli) enum Unresolved {
    #[error("{0}")]
    NoSuchService(String),
    #[error("{0}")]
    Quarantined(String),
    #[error("service {name} is not served: {reason}")]
    NotServed { name: String, reason: NotServed },
    #[error("{0}")]
    OtherFamily(String),
    #[error("{0}")]
    NoSuchPort(UsageError),
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl Unresolved {
    /// The error of a command that needs the address.
    pub(in crate::cli) fn into_error(self) -> anyhow::Error {
        match self {
            Self::NoSuchPort(error) => error.into(),
            Self::Failed(error) => error,
            other => other.into(),
        }
    }
}

/// An address of the service in the client's family: a cluster IP, or else another one.
///
/// # Errors
/// When there is no such service, it is not served, or has no such address or port, or several ports.
pub(in crate::cli) fn resolve(
    target: &ServiceTarget,
    from: IpAddr,
    source: &Source,
) -> Result<Destination, Unresolved> {
    let name = format!(
        "{}/{}",
        target.name.namespace_or("default"),
        target.name.name
    );
    let Some(service) = source.service(&name)? else {
        return Err(unserved(&name, source)?);
    };
    let port = port(target, &service).map_err(Unresolved::NoSuchPort)?;
    let protocol = port
        .protocol
        .parse()
        .map_err(|error| Unresolved::NoSuchPort(UsageError(format!("{error}"))))?;
    let of_family = |address: &IpAddr| address.is_ipv4() == from.is_ipv4();
    let addresses = service.cluster_ips.iter().chain(&service.external_ips);
    let Some(address) = addresses
        .filter_map(|text| text.parse().ok())
        .find(of_family)
    else {
        let family = if from.is_ipv4() { "IPv4" } else { "IPv6" };
        let node_port = port.node_port.map_or_else(String::new, |port| {
            format!("; use its node port: ADDRESS-OF-A-NODE:{port}")
        });
        return Err(Unresolved::OtherFamily(format!(
            "service {name} has no {family} address, as the client {from} needs{node_port}"
        )));
    };
    Ok(Destination {
        address: SocketAddr::new(address, port.port),
        protocol,
    })
}

/// Why a service is not served.
fn unserved(name: &str, source: &Source) -> anyhow::Result<Unresolved> {
    let services = source.services()?;
    let stored = services
        .iter()
        .find(|service| service.id.to_string() == name);
    if let Some(reason) = stored.and_then(|service| service.not_served.clone()) {
        let name = name.to_owned();
        return Ok(Unresolved::NotServed { name, reason });
    }
    if let Some(problem) = source.quarantined(name)? {
        return Ok(Unresolved::Quarantined(format!(
            "service {name} is in quarantine: {problem}; nothing of it is in use"
        )));
    }
    let known: Vec<String> = services
        .iter()
        .map(|service| service.id.to_string())
        .collect();
    let hint =
        suggest(name, &known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    Ok(Unresolved::NoSuchService(format!(
        "there is no service {name} to connect to: it is not stored{hint}"
    )))
}

fn port<'a>(target: &ServiceTarget, service: &'a ServiceView) -> Result<&'a PortView, UsageError> {
    let protocol = target.protocol.map(|protocol| protocol.to_string());
    let is_requested =
        |port: &&PortView| {
            target.port.as_ref().is_none_or(|requested| {
                port.port.to_string() == *requested || port.name == *requested
            }) && protocol
                .as_ref()
                .is_none_or(|protocol| port.protocol.eq_ignore_ascii_case(protocol))
        };
    let matching: Vec<&PortView> = service.ports.iter().filter(is_requested).collect();
    match matching.as_slice() {
        [only] => Ok(only),
        [first, second]
            if first.port == second.port && protocol.is_none() && target.port.is_some() =>
        {
            // As everywhere, the default protocol is tcp.
            let is_tcp = |port: &&PortView| port.protocol.eq_ignore_ascii_case("tcp");
            Ok(matching.iter().copied().find(is_tcp).unwrap_or(first))
        }
        all => {
            let known = service.ports.iter().map(|port| match port.name.as_str() {
                "" => format!("{}/{}", port.port, port.protocol),
                name => format!("{}/{} ({name})", port.port, port.protocol),
            });
            let known = known.collect::<Vec<_>>().join(", ");
            let id = &service.id;
            let what = if all.is_empty() {
                "has no such port"
            } else {
                "has several ports"
            };
            let example = service.ports.first().map_or(80, |port| port.port);
            Err(UsageError(format!(
                "--to: service {id} {what}; name one of {known}, as in {id}:{example}"
            )))
        }
    }
}
