//! Consul's answers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::{
    catalog::{Instance, Protocol, SourceService},
    registry::address,
};

/// What of `/v1/health/service/<name>` counts, for each instance.
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
    /// Empty: that of the node.
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

/// `/v1/catalog/services`: names, and the tags of all instances of each.
pub(super) fn services(body: &[u8]) -> Result<Vec<(String, Vec<String>)>, String> {
    let services: BTreeMap<String, Option<Vec<String>>> = serde_json::from_slice(body)
        .map_err(|error| format!("its answer is no list of services: {error}"))?;
    Ok(services.into_iter().map(|(name, tags)| (name, tags.unwrap_or_default())).collect())
}

/// `/v1/health/service/<name>`: the instances, and what is wrong with those that cannot be used.
pub(super) fn instances(body: &[u8], passing_only: bool) -> Result<(SourceService, Vec<String>), String> {
    let entries: Vec<ServiceEntry> = serde_json::from_slice(body)
        .map_err(|error| format!("its answer is no list of instances: {error}"))?;
    let mut service = SourceService::default();
    let mut skipped = Vec::new();
    for entry in entries {
        let name = format!("instance {} on node {}", entry.service.id, entry.node.node);
        match instance(entry, passing_only) {
            Ok(instance) => drop(service.instances.insert(instance)),
            Err(reason) => skipped.push(format!("{name}: {reason}")),
        }
    }
    Ok((service, skipped))
}

fn instance(entry: ServiceEntry, passing_only: bool) -> Result<Instance, String> {
    let ServiceEntry { node, service, checks } = entry;
    let port = u16::try_from(service.port).ok().filter(|port| *port > 0);
    let address_text = if service.address.is_empty() { &node.address } else { &service.address };
    Ok(Instance {
        address: address(address_text)?,
        port: port
            .ok_or_else(|| format!("{} is no port; register it with the one it listens on", service.port))?,
        protocol: Protocol::Tcp,
        ready: !passing_only || checks.iter().flatten().all(|check| check.status == "passing"),
        tags: service.tags.unwrap_or_default(),
    })
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
    fn an_instance_has_the_address_of_its_node_unless_it_has_one_of_its_own() {
        let (service, skipped) = instances(TWO.as_bytes(), true).unwrap();
        let found: Vec<String> = service
            .instances
            .iter()
            .map(|instance| format!("{} {} {}", instance.address, instance.port, instance.ready))
            .collect();
        assert_eq!(found, ["10.0.0.1 80 false", "fd00::2 81 true"]);
        assert!(skipped.is_empty());
        let (service, _) = instances(TWO.as_bytes(), false).unwrap();
        assert!(service.instances.iter().all(|instance| instance.ready));
    }

    #[test]
    fn an_instance_that_cannot_be_reached_is_left_out_by_name() {
        for (address, port) in
            [("host.example", 80), ("127.0.0.1", 80), ("10.0.0.1", 0), ("10.0.0.1", 70_000)]
        {
            let body = format!(
                r#"[{{"Node": {{"Node": "n1", "Address": "{address}"}}, "Service": {{"ID": "web1", "Port": {port}}}}}]"#
            );
            let (service, skipped) = instances(body.as_bytes(), true).unwrap();
            assert!(service.instances.is_empty());
            assert!(skipped[0].starts_with("instance web1 on node n1: "), "{skipped:?}");
        }
    }

    #[test]
    fn an_answer_of_another_form_is_an_error_and_not_an_empty_one() {
        for wrong in ["", "null", "[", "{}", r#"{"web": 1}"#, r#"[{"Service": {}}]"#] {
            assert!(instances(wrong.as_bytes(), true).is_err(), "{wrong}");
        }
        for wrong in ["", "null", "[]", r#"{"web": 1}"#] {
            assert!(services(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let services = services(br#"{"consul": [], "web": ["v1"], "db": null}"#).unwrap();
        assert_eq!(services.len(), 3);
    }
}
