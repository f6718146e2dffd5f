//! The format of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_proto::annotation;
use serde::Deserialize;

use crate::{
    catalog::{AppProtocol, Catalog, Instance, Protocol, SourceService},
    registry::{Destination, address, destination},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Services {
    /// None for a file that ends after the key, which differs from an empty list.
    services: Option<Vec<Service>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Service {
    name: String,
    /// The port for clients.
    port: Option<u16>,
    #[serde(default)]
    protocol: Protocol,
    app_protocol: Option<AppProtocol>,
    #[serde(default, rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// As `services`.
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Endpoint {
    address: String,
    /// The service's port unless specified.
    port: Option<u16>,
    #[serde(default)]
    tags: BTreeSet<String>,
    #[serde(default = "default_ready")]
    ready: bool,
}

const fn default_ready() -> bool {
    true
}

/// Parses the text of a file.
///
/// # Errors
/// The problem, with its line. Nothing of such a file is used, since it may be incomplete.
pub(super) fn parse(text: &str) -> Result<Catalog, String> {
    if text.trim().is_empty() {
        return Err("it is empty; write `services: []` for none".to_owned());
    }
    let read: Services = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let services = read
        .services
        .ok_or("services: there is no list; write [] for none")?;
    let mut catalog = Catalog::new();
    for (position, service) in services.into_iter().enumerate() {
        let name = service.name.clone();
        let service = self::service(service)
            .map_err(|reason| format!("services[{position}] ({name}): {reason}"))?;
        if catalog
            .insert(name.clone(), Some(Arc::new(service)))
            .is_some()
        {
            return Err(format!(
                "services[{position}]: {name:?} is there already; name it once"
            ));
        }
    }
    Ok(catalog)
}

fn service(service: Service) -> Result<SourceService, String> {
    let Service {
        name,
        port,
        protocol,
        app_protocol,
        cluster_ips,
        annotations,
        endpoints,
    } = service;
    if name.is_empty() {
        return Err("name: it is empty".to_owned());
    }
    if port == Some(0) {
        return Err("port: 0 is not a port".to_owned());
    }
    if let Some((name, reason)) = annotation::errors_of_service(&annotations).first() {
        return Err(format!("annotations.{name}: {reason}"));
    }
    let mut read = SourceService {
        service_port: port,
        app_protocol,
        annotations,
        ..SourceService::default()
    };
    for (i, text) in cluster_ips.iter().enumerate() {
        let ip = address(text).map_err(|reason| format!("clusterIPs[{i}]: {reason}"))?;
        if read
            .cluster_ips
            .iter()
            .any(|other| other.is_ipv4() == ip.is_ipv4())
        {
            return Err(format!(
                "clusterIPs[{i}]: {ip} is the second of its family; give at most one of each"
            ));
        }
        read.cluster_ips.insert(ip);
    }
    let endpoints = endpoints.ok_or("endpoints: there is no list; write [] for none")?;
    for (i, endpoint) in endpoints.into_iter().enumerate() {
        let at = |reason: String| format!("endpoints[{i}].{reason}");
        let port = endpoint.port.or(port).filter(|port| *port > 0);
        let destination =
            destination(&endpoint.address).map_err(|reason| at(format!("address: {reason}")))?;
        let instance = Instance {
            address: (),
            port: port.ok_or_else(|| {
                at("port: give one from 1 to 65535, here or for the service".to_owned())
            })?,
            protocol,
            ready: endpoint.ready,
            tags: endpoint.tags,
        };
        match destination {
            Destination::Address(address) => {
                read.instances.insert(instance.with_address(address));
            }
            Destination::Host(host) => drop(read.hosts.insert(instance.with_address(host))),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
services:
  - name: db
    port: 5432
    appProtocol: other
    clusterIPs: [10.97.0.5]
    annotations: {contiv.io/prefer-local: 'true'}
    endpoints:
      - address: 192.0.2.10
      - {address: 192.0.2.11, port: 5433, ready: false, tags: [version=v2]}
  - name: dns
    protocol: udp
    endpoints: [{address: 'fd00::1', port: 53}]
";

    #[test]
    fn services_are_decoded_with_all_fields() {
        let catalog = parse(FILE).unwrap();
        let db = catalog["db"].as_ref().unwrap();
        let ports: Vec<(u16, bool)> = db
            .instances
            .iter()
            .map(|one| (one.port, one.ready))
            .collect();
        assert_eq!(
            (ports, db.service_port),
            (vec![(5432, true), (5433, false)], Some(5432))
        );
        assert_eq!(
            (db.app_protocol, db.cluster_ips.len(), db.annotations.len()),
            (Some(AppProtocol::Other), 1, 1)
        );
        assert_eq!(
            catalog["dns"]
                .as_ref()
                .unwrap()
                .instances
                .first()
                .unwrap()
                .protocol,
            Protocol::Udp
        );
        let json = r#"{"services": [{"name": "web", "endpoints": [{"address": "192.0.2.1", "port": 80}]}]}"#;
        assert_eq!(parse(json).unwrap().len(), 1);
        assert!(parse("services: []").unwrap().is_empty());
    }

    #[test]
    fn file_with_an_error_is_named_and_ignored_entirely() {
        let with = |service: &str| format!("services:\n  - {{name: web, {service}}}\n");
        for (text, expected) in [
            (String::new(), "empty"),
            ("services:".to_owned(), "services"),
            ("service: []".to_owned(), "service"),
            (with("ports: 80"), "ports"),
            (with("port: 0"), "services[0] (web): port"),
            (
                with("port: 80, endpoints: "),
                "services[0] (web): endpoints",
            ),
            (
                with("port: 80, endpoints: [{address: x}]"),
                "endpoints[0].address",
            ),
            (
                with("endpoints: [{address: 10.0.0.1}]"),
                "endpoints[0].port",
            ),
            (
                with("clusterIPs: [10.0.0.1, 10.0.0.2], endpoints: []"),
                "clusterIPs[1]",
            ),
            (
                with("annotations: {contiv.io/balance: x}"),
                "annotations.contiv.io/balance",
            ),
            (
                with("annotations: {contiv.io/failover: x}"),
                "annotations.contiv.io/failover",
            ),
            (
                format!(
                    "{}  - {{name: web, endpoints: []}}\n",
                    with("endpoints: []")
                ),
                "services[1]",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
