//! What only the running agent knows, and a desired state depends on.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use anyhow::Context;
use contiv_model::ServiceId;
use contiv_renderer::renderer::LEFT_TO_NFTABLES;
use serde_json::Value;

use crate::{
    cli::{chain, source::agent_argument::AgentArgument},
    config::{Config, RendererName},
};

/// What the agent says. It may be of another version.
#[derive(Debug, Default)]
pub(super) struct AgentFacts {
    /// Its version.
    pub(super) version: Option<String>,
    /// The backends that it has found not to answer.
    pub(super) failing: BTreeMap<ServiceId, BTreeSet<SocketAddr>>,
    /// The services that routes should carry, and cannot on this node; none if that is not known.
    pub(super) without_routes: Option<BTreeSet<ServiceId>>,
    /// What it does not say, and why.
    pub(super) unknown: Vec<String>,
}

impl AgentFacts {
    pub(super) fn ask(agent: &AgentArgument, config: &Config) -> Self {
        let mut facts = Self::default();
        let failing = agent.get("/status").and_then(|status: Value| {
            facts.version = status["version"].as_str().map(str::to_owned);
            // Without failover none is failing, and the list of all services may be long.
            if status["failover"].is_null() {
                return Ok(BTreeMap::new());
            }
            let services: Vec<Value> = agent.get("/services")?;
            let failing: Option<Vec<_>> = services.iter().map(failing_of).collect();
            let failing = failing.context("its answer to /services is of another form")?;
            Ok(failing.into_iter().collect())
        });
        match failing {
            Ok(failing) => facts.failing = failing,
            Err(error) => {
                let error = chain(&error);
                facts.unknown.push(format!(
                    "which backends the agent takes as failing: {error}"
                ));
            }
        }
        if config.renderers.contains(&RendererName::ROUTE) {
            match without_routes(agent) {
                Ok(services) => facts.without_routes = Some(services),
                Err(error) => {
                    let error = chain(&error);
                    facts
                        .unknown
                        .push(format!("which services routes cannot carry: {error}"));
                }
            }
        }
        facts
    }
}

/// The services of the quarantine that the renderer `route` leaves to `nftables`.
fn without_routes(agent: &AgentArgument) -> anyhow::Result<BTreeSet<ServiceId>> {
    let mut found = BTreeSet::new();
    let mut skip = 0;
    // It comes in parts.
    loop {
        let part: Vec<Value> = agent.get(&format!("/quarantine?skip={skip}"))?;
        if part.is_empty() {
            return Ok(found);
        }
        skip += part.len();
        found.extend(part.iter().filter_map(without_route));
    }
}

fn without_route(entry: &Value) -> Option<ServiceId> {
    let (kind, id) = entry["object"].as_str()?.split_once(' ')?;
    let (namespace, name) = id.split_once('/')?;
    let is_left = kind == "service" && entry["active_state"] == LEFT_TO_NFTABLES;
    is_left.then(|| ServiceId::new(namespace, name))
}

/// The failing backends of a service in the agent's JSON; none if that has another form.
fn failing_of(service: &Value) -> Option<(ServiceId, BTreeSet<SocketAddr>)> {
    let id: ServiceId = serde_json::from_value(service["id"].clone()).ok()?;
    let mut failing = BTreeSet::new();
    for port in service["ports"].as_array()? {
        for backend in port["backends"].as_array()? {
            if backend["state"].as_str()? == "Failing" {
                let address = backend["address"].as_str()?.parse().ok()?;
                let port = u16::try_from(backend["port"].as_u64()?).ok()?;
                failing.insert(SocketAddr::new(address, port));
            }
        }
    }
    Some((id, failing))
}

#[cfg(test)]
mod tests {
    use contiv_model::{Backend, BackendState, ContivService, ObjectKey, Protocol, ServicePort};
    use serde_json::json;

    use super::*;

    #[test]
    fn failing_backends_are_those_of_the_agents_own_form() {
        let backend = |text: &str, state| Backend {
            state,
            ..Backend::new(text.parse().unwrap())
        };
        let service = ContivService {
            ports: vec![ServicePort {
                port: 80,
                protocol: Protocol::Tcp,
                name: "main".into(),
                node_port: None,
                backends: vec![
                    backend("10.244.2.1:8080", BackendState::Ready),
                    backend("10.244.2.2:8080", BackendState::Failing),
                ],
            }],
            ..ContivService::new(ServiceId::new("shop", "web"))
        };
        let value = serde_json::to_value(&service).unwrap();
        let failing = BTreeSet::from(["10.244.2.2:8080".parse().unwrap()]);
        assert_eq!(failing_of(&value), Some((service.id, failing)));
        let mut other = value;
        other["ports"][0]["backends"] = json!({});
        assert_eq!(failing_of(&other), None, "another form is no empty list");
    }

    #[test]
    fn service_left_to_nftables_is_found_in_the_quarantine() {
        let web = ServiceId::new("shop", "web");
        let object = ObjectKey::Service(web.clone()).to_string();
        let entry = |state: &str| json!({ "object": object, "active_state": state });
        assert_eq!(without_route(&entry("nftables")), Some(web));
        assert_eq!(without_route(&entry("last good")), None);
    }
}
