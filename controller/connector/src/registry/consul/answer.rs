//! Consul's answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize, Deserializer as _,
    de::{Error as _, SeqAccess, Visitor},
};

use crate::{
    catalog::{Instance, Protocol, SourceService},
    registry::{Destination, destination},
};

/// The used fields of `/v1/health/service/<name>`, for each instance.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceEntry {
    node: Node,
    service: Service,
    #[serde(default)]
    checks: Option<Vec<Check>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    #[serde(default)]
    node: String,
    #[serde(default)]
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Service {
    #[serde(default, rename = "ID")]
    id: String,
    #[serde(default)]
    tags: Option<BTreeSet<String>>,
    /// Empty: the node's address.
    #[serde(default)]
    address: String,
    /// 0: the service has none.
    #[serde(default)]
    port: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Check {
    status: String,
}

/// The maximum number of services: each is watched by its own query.
const MAX_SERVICES: usize = 50_000;

/// The approximate maximum size of one service. A stored object, which must contain all addresses, is limited further.
const MAX_SERVICE_BYTES: usize = 8 << 20;

/// The limit of instances of a service. The stored object holds the addresses of all, and has no room for more.
const MAX_INSTANCES: usize = 30_000;

/// `/v1/catalog/services`: names, and the tags of all instances of each.
pub(super) fn services(body: &[u8]) -> Result<Vec<(String, Vec<String>)>, String> {
    let services: BTreeMap<String, Option<Vec<String>>> = serde_json::from_slice(body)
        .map_err(|error| format!("its answer is no list of services: {error}"))?;
    if services.len() > MAX_SERVICES {
        return Err(format!(
            "it lists {} services; at most {MAX_SERVICES} are watched",
            services.len()
        ));
    }
    Ok(services
        .into_iter()
        .map(|(name, tags)| (name, tags.unwrap_or_default()))
        .collect())
}

/// `/v1/health/service/<name>`: the instances, and the problems of unusable ones.
pub(super) fn instances(body: &[u8], passing_only: bool) -> Result<SourceService, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    deserializer
        .deserialize_seq(InstancesVisitor { passing_only })
        .and_then(|service| deserializer.end().map(|()| service))
        .map_err(|error| format!("its list of instances cannot be used: {error}"))
}

/// Deserializes one instance after the other, and keeps only the used fields: an answer can be large.
struct InstancesVisitor {
    passing_only: bool,
}

impl<'de> Visitor<'de> for InstancesVisitor {
    type Value = SourceService;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of instances")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<SourceService, A::Error> {
        let mut service = SourceService::default();
        let mut kept = 0;
        while let Some(entry) = entries.next_element::<ServiceEntry>()? {
            let name = format!("instance {} on node {}", entry.service.id, entry.node.node);
            match instance(entry, self.passing_only) {
                Ok((destination, instance)) => {
                    let tags = instance
                        .tags
                        .iter()
                        .map(|tag| tag.len() + size_of::<String>());
                    kept += size_of::<Instance>() + tags.sum::<usize>();
                    match destination {
                        Destination::Address(address) => {
                            service.instances.insert(instance.with_address(address));
                        }
                        Destination::Host(host) => {
                            kept += host.len();
                            service.hosts.insert(instance.with_address(host));
                        }
                    }
                }
                Err(reason) => {
                    let line = format!("{name}: {reason}");
                    kept += size_of::<String>() + line.len();
                    service.unusable.insert(line);
                }
            }
            if service.instances.len() + service.hosts.len() > MAX_INSTANCES {
                return Err(A::Error::custom(format_args!(
                    "there are more than {MAX_INSTANCES} instances; split the service"
                )));
            }
            if kept > MAX_SERVICE_BYTES {
                return Err(A::Error::custom(format_args!(
                    "they take more than {MAX_SERVICE_BYTES} bytes; split the service"
                )));
            }
        }
        Ok(service)
    }
}

fn instance(
    entry: ServiceEntry,
    passing_only: bool,
) -> Result<(Destination, Instance<()>), String> {
    let ServiceEntry {
        node,
        service,
        checks,
    } = entry;
    let port = u16::try_from(service.port).ok().filter(|port| *port > 0);
    let address_text = if service.address.is_empty() {
        &node.address
    } else {
        &service.address
    };
    let instance = Instance {
        address: (),
        port: port.ok_or_else(|| {
            format!(
                "{} is not a port; register it with the one it listens on",
                service.port
            )
        })?,
        protocol: Protocol::Tcp,
        ready: !passing_only
            || checks
                .iter()
                .flatten()
                .all(|check| check.status == "passing"),
        tags: service.tags.unwrap_or_default(),
    };
    let destination = destination(address_text).map_err(|reason| reason.to_string())?;
    Ok((destination, instance))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"[
        {"Node": {"Node": "n1", "Address": "10.0.0.1"},
         "Service": {"ID": "web1", "Service": "web", "Tags": ["v1"], "Address": "", "Port": 80, "Meta": null},
         "Checks": [{"Status": "passing"}, {"Status": "warning"}]},
        {"Node": {"Node": "n2", "Address": "10.0.0.2"},
         "Service": {"ID": "web2", "Service": "web", "Tags": null, "Address": "fd00::2", "Port": 81},
         "Checks": null}
    ]"#;

    #[test]
    fn instance_address_defaults_to_its_node_address() {
        let service = instances(TWO.as_bytes(), true).unwrap();
        let found: Vec<String> = service
            .instances
            .iter()
            .map(|instance| format!("{} {} {}", instance.address, instance.port, instance.ready))
            .collect();
        assert_eq!(found, ["10.0.0.1 80 false", "fd00::2 81 true"]);
        assert!(service.unusable.is_empty());
        let service = instances(TWO.as_bytes(), false).unwrap();
        assert!(service.instances.iter().all(|instance| instance.ready));
    }

    #[test]
    fn instance_that_cannot_be_reached_is_left_out_by_name() {
        for (address, port) in [
            ("host", 80),
            ("127.0.0.1", 80),
            ("10.0.0.1", 0),
            ("10.0.0.1", 70_000),
        ] {
            let body = format!(
                r#"[{{"Node": {{"Node": "n1", "Address": "{address}"}}, "Service": {{"ID": "web1", "Port": {port}}}}}]"#
            );
            let service = instances(body.as_bytes(), true).unwrap();
            assert!(service.instances.is_empty());
            let reason = service.unusable.first().unwrap();
            assert!(reason.starts_with("instance web1 on node n1: "), "{reason}");
        }
    }

    #[test]
    fn instance_with_a_host_name_is_kept_apart() {
        let body = r#"[{"Node": {"Address": "10.0.0.1"}, "Service": {"Address": "DB.example.org", "Port": 5432}}]"#;
        let service = instances(body.as_bytes(), true).unwrap();
        let hosts: Vec<&str> = service
            .hosts
            .iter()
            .map(|one| one.address.as_str())
            .collect();
        assert_eq!(
            (hosts, service.instances.len(), service.unusable.len()),
            (vec!["db.example.org"], 0, 0)
        );
    }

    #[test]
    fn answer_with_too_many_instances_is_refused() {
        let one = r#"{"Node": {"Node": "n1", "Address": "10.0.0.1"}, "Service": {"ID": "a", "Port": 80}},"#;
        let body = |count: usize| format!("[{}]", one.repeat(count).trim_end_matches(','));
        assert_eq!(
            instances(body(1000).as_bytes(), true)
                .unwrap()
                .instances
                .len(),
            1
        );
        let error = instances(
            body(MAX_SERVICE_BYTES / size_of::<Instance>() + 1).as_bytes(),
            true,
        )
        .unwrap_err();
        assert!(error.contains("split the service"), "{error}");
        let instances_of = |count: usize| {
            let one = |number| {
                format!(r#"{{"Node": {{"Address": "10.0.0.1"}}, "Service": {{"Port": {number}}}}}"#)
            };
            format!("[{}]", (1..=count).map(one).collect::<Vec<_>>().join(","))
        };
        assert_eq!(
            instances(instances_of(MAX_INSTANCES).as_bytes(), true)
                .unwrap()
                .instances
                .len(),
            MAX_INSTANCES
        );
        let error = instances(instances_of(MAX_INSTANCES + 1).as_bytes(), true).unwrap_err();
        assert!(error.contains("more than 30000 instances"), "{error}");
        let names: Vec<String> = (0..=MAX_SERVICES)
            .map(|number| format!("\"s{number}\": []"))
            .collect();
        let error = services(format!("{{{}}}", names.join(",")).as_bytes()).unwrap_err();
        assert!(error.contains("50001 services"), "{error}");
    }

    #[test]
    fn answer_of_another_form_is_error_and_not_empty_one() {
        for wrong in [
            "",
            "null",
            "[",
            "{}",
            r#"{"web": 1}"#,
            r#"[{"Service": {}}]"#,
        ] {
            assert!(instances(wrong.as_bytes(), true).is_err(), "{wrong}");
        }
        for wrong in ["", "null", "[]", r#"{"web": 1}"#] {
            assert!(services(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let services = services(br#"{"consul": [], "web": ["v1"], "db": null}"#).unwrap();
        assert_eq!(services.len(), 3);
    }
}
