//! Turns a source service into micro services (flomesh's `Aggregator`).
//!
//! Every source service becomes a micro service of the same name, with all its instances. Instances with a tag `<prefix-tag>=x` or
//! `<suffix-tag>=y` also belong to a second micro service, `x-name-y`. A tag `gRPC.port=N` adds a gRPC port to the main port of an
//! instance.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::Deserialize;

use crate::{
    catalog::{AppProtocol, Instance, Protocol, SourceService},
    name::{self, NameError},
};

/// flomesh's tag for a gRPC port.
const GRPC_PORT_TAG: &str = "gRPC.port";

/// A port of a micro service, to which clients connect.
pub type ServicePort = (Protocol, u16);

/// For each port of a service, the port of an instance that serves it.
pub type TargetPorts = BTreeMap<ServicePort, u16>;

/// A service to be stored (flomesh's `MicroSvcMeta`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MicroService {
    /// The source service in the registry.
    pub source: String,
    /// The ports, with their application protocols.
    pub ports: BTreeMap<ServicePort, AppProtocol>,
    /// The addresses with the same ports, and whether each is ready. In flomesh every address has every port; here an address has
    /// only the ports of its instances.
    pub endpoints: BTreeMap<TargetPorts, BTreeMap<IpAddr, bool>>,
    /// Requested cluster addresses.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Annotations from the registry, in addition to the connector's own.
    pub annotations: BTreeMap<String, String>,
    /// The host name of an `ExternalName` service, which has no endpoints.
    pub external_name: Option<String>,
}

/// The treatment of instances that are registered by a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostNames {
    /// Such instances are left out, each with a problem.
    #[default]
    LeaveOut,
    /// A service that has only such instances becomes an `ExternalName` service (consul-k8s' `K8SSink`).
    ExternalName,
    /// The host names are resolved to addresses.
    Resolve,
}

impl MicroService {
    /// Every address once.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.endpoints
            .values()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect()
    }
}

/// Settings of one registry's services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aggregator {
    /// The prefix of every name.
    pub prefix: String,
    /// The suffix of every name.
    pub suffix: String,
    /// The name of the tag whose value is the prefix in the name of a second micro service; empty for none.
    pub prefix_tag: String,
    /// The name of the tag whose value is the suffix in that name; empty for none.
    pub suffix_tag: String,
    /// Only instances with this tag are used; empty for all.
    pub tag: String,
    /// A service with an instance that has this tag is left out: it comes from Kubernetes (consul-k8s' `ConsulK8STag`). Empty for none.
    pub exclude_tag: String,
    /// The port for clients, for services without one. `None`: clients use the ports of the instances.
    pub service_port: Option<u16>,
    /// The application protocol of main ports, for services without one.
    pub app_protocol: AppProtocol,
    /// The treatment of host names.
    pub host_names: HostNames,
}

impl Aggregator {
    /// The micro services of a source service, by their names in the store. Without instances there is one, without endpoints. There
    /// is none if the source service is excluded, or has instances but [`Aggregator::tag`] selects none of them.
    ///
    /// # Errors
    /// When a name is invalid for a stored service.
    pub fn aggregate(
        &self,
        source: &str,
        service: &SourceService,
    ) -> Result<BTreeMap<String, MicroService>, NameError> {
        if self.excludes(service) {
            return Ok(BTreeMap::new());
        }
        if self.host_names == HostNames::ExternalName
            && service.instances.is_empty()
            && !service.hosts.is_empty()
        {
            return self.external_name_services(source, service);
        }
        let selected: Vec<&Instance> = service
            .instances
            .iter()
            .filter(|instance| self.selects(instance))
            .collect();
        if selected.is_empty() && !service.instances.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut micro_services = BTreeMap::from([(self.stored_name(source)?, Vec::new())]);
        for instance in selected {
            if let Some(derived) = self.derived_name(source, instance) {
                micro_services
                    .entry(self.stored_name(&derived)?)
                    .or_default()
                    .push(instance);
            }
            micro_services
                .entry(self.stored_name(source)?)
                .or_default()
                .push(instance);
        }
        let micro_services = micro_services
            .into_iter()
            .map(|(name, instances)| (name, self.micro_service(source, service, &instances)));
        Ok(micro_services.collect())
    }

    /// The micro services of a source service of which only host names are known.
    fn external_name_services(
        &self,
        source: &str,
        service: &SourceService,
    ) -> Result<BTreeMap<String, MicroService>, NameError> {
        let mut micro_services = BTreeMap::<String, MicroService>::new();
        let mut hosts: Vec<&Instance<String>> = service
            .hosts
            .iter()
            .filter(|host| self.selects(host))
            .collect();
        // The first one is used: a ready one, if there is any.
        hosts.sort_by_key(|host| !host.ready);
        let app_protocol = service.app_protocol.unwrap_or(self.app_protocol);
        for host in hosts {
            let derived = self
                .derived_name(source, host)
                .map(|name| self.stored_name(&name))
                .transpose()?;
            for name in derived.into_iter().chain([self.stored_name(source)?]) {
                let micro_service = micro_services.entry(name).or_insert_with(|| MicroService {
                    source: source.to_owned(),
                    annotations: service.annotations.clone(),
                    external_name: Some(host.address.clone()),
                    ..MicroService::default()
                });
                if micro_service.external_name.as_ref() == Some(&host.address) {
                    micro_service
                        .ports
                        .insert((host.protocol, host.port), app_protocol);
                }
            }
        }
        Ok(micro_services)
    }

    /// Whether a service is left out because it comes from Kubernetes.
    pub fn excludes(&self, service: &SourceService) -> bool {
        let tags = service.instances.iter().map(|instance| &instance.tags);
        let mut tags = tags.chain(service.hosts.iter().map(|host| &host.tags));
        !self.exclude_tag.is_empty() && tags.any(|tags| tags.contains(&self.exclude_tag))
    }

    /// Whether an instance is used, by its tags.
    pub fn selects<A>(&self, instance: &Instance<A>) -> bool {
        self.tag.is_empty() || instance.tags.contains(&self.tag)
    }

    fn stored_name(&self, name: &str) -> Result<String, NameError> {
        name::to_stored(&[&self.prefix, name, &self.suffix].concat())
    }

    fn derived_name<A>(&self, source: &str, instance: &Instance<A>) -> Option<String> {
        let (prefix, suffix) = (
            tag_value(instance, &self.prefix_tag),
            tag_value(instance, &self.suffix_tag),
        );
        if prefix.is_none() && suffix.is_none() {
            return None;
        }
        let parts: Vec<&str> = prefix.into_iter().chain([source]).chain(suffix).collect();
        Some(parts.join("-"))
    }

    fn micro_service(
        &self,
        source: &str,
        service: &SourceService,
        instances: &[&Instance],
    ) -> MicroService {
        let app_protocol = service.app_protocol.unwrap_or(self.app_protocol);
        let mut micro_service = MicroService {
            source: source.to_owned(),
            cluster_ips: service.cluster_ips.clone(),
            annotations: service.annotations.clone(),
            ..MicroService::default()
        };
        for instance in instances {
            let main = service
                .service_port
                .or(self.service_port)
                .unwrap_or(instance.port);
            let grpc = tag_value(instance, GRPC_PORT_TAG)
                .and_then(|port| port.parse().ok())
                .filter(|port| *port > 0);
            // The main port comes last, so that its number wins over an equal gRPC port.
            let ports = grpc.map(|port| (port, port, AppProtocol::Grpc));
            let mut target_ports = TargetPorts::new();
            for (number, target, app_protocol) in
                ports
                    .into_iter()
                    .chain([(main, instance.port, app_protocol)])
            {
                let port = (instance.protocol, number);
                target_ports.insert(port, target);
                let merged = micro_service.ports.entry(port).or_insert(app_protocol);
                // If instances disagree, the result must not depend on their order.
                *merged = (*merged).min(app_protocol);
            }
            let ready = micro_service
                .endpoints
                .entry(target_ports)
                .or_default()
                .entry(instance.address);
            *ready.or_default() |= instance.ready;
        }
        micro_service
    }
}

/// The value of a tag `name=value`; none if it is missing or empty. Of several values, the smallest.
fn tag_value<'a, A>(instance: &'a Instance<A>, name: &str) -> Option<&'a str> {
    let values = instance
        .tags
        .iter()
        .filter_map(|tag| tag.strip_prefix(name)?.strip_prefix('='));
    values
        .filter(|value| !value.is_empty() && !name.is_empty())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(address: &str, port: u16, tags: &[&str]) -> Instance {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        Instance {
            tags,
            ..Instance::new(address.parse().unwrap(), port)
        }
    }

    fn service<const N: usize>(instances: [Instance; N]) -> SourceService {
        SourceService {
            instances: instances.into(),
            ..SourceService::default()
        }
    }

    fn aggregator() -> Aggregator {
        Aggregator {
            prefix_tag: "env".to_owned(),
            suffix_tag: "version".to_owned(),
            ..Aggregator::default()
        }
    }

    #[test]
    fn tagged_instances_form_a_second_service() {
        let web = service([
            instance("10.0.0.1", 80, &["version=v1", "other"]),
            instance("10.0.0.2", 80, &["env=test", "version=v1"]),
            instance("10.0.0.3", 80, &[]),
        ]);
        let micro_services = aggregator().aggregate("Web", &web).unwrap();
        let addresses = |name: &str| micro_services[name].addresses().len();
        assert_eq!(micro_services.len(), 3);
        assert_eq!(
            (
                addresses("web"),
                addresses("web-v1"),
                addresses("test-web-v1")
            ),
            (3, 1, 1)
        );
        assert!(micro_services.values().all(|micro| micro.source == "Web"));
    }

    #[test]
    fn tag_adds_grpc_port() {
        let web = service([
            instance("10.0.0.1", 80, &["gRPC.port=9090"]),
            instance("10.0.0.2", 80, &[]),
        ]);
        let web = &aggregator().aggregate("web", &web).unwrap()["web"];
        let expected = BTreeMap::from([
            ((Protocol::Tcp, 80), AppProtocol::Http),
            ((Protocol::Tcp, 9090), AppProtocol::Grpc),
        ]);
        assert_eq!(web.ports, expected);
        let with_grpc: Vec<usize> = web.endpoints.keys().map(BTreeMap::len).collect();
        assert_eq!(
            with_grpc,
            [1, 2],
            "only one of them listens on the gRPC port"
        );
        for wrong in [
            "gRPC.port=0",
            "gRPC.port=x",
            "gRPC.port=",
            "gRPC.port=70000",
        ] {
            let wrong = service([instance("10.0.0.1", 80, &[wrong])]);
            assert_eq!(
                aggregator().aggregate("web", &wrong).unwrap()["web"]
                    .ports
                    .len(),
                1
            );
        }
    }

    #[test]
    fn service_port_maps_to_the_port_of_each_instance() {
        let web = service([
            instance("10.0.0.1", 21_000, &[]),
            instance("10.0.0.1", 21_001, &[]),
        ]);
        let aggregator = Aggregator {
            service_port: Some(80),
            ..aggregator()
        };
        let web = &aggregator.aggregate("web", &web).unwrap()["web"];
        assert_eq!(
            web.ports.keys().copied().collect::<Vec<_>>(),
            [(Protocol::Tcp, 80)]
        );
        let targets: Vec<u16> = web
            .endpoints
            .keys()
            .flat_map(BTreeMap::values)
            .copied()
            .collect();
        assert_eq!(targets, [21_000, 21_001]);
    }

    #[test]
    fn each_port_has_only_the_instances_with_that_port() {
        let web = service([instance("10.0.0.1", 80, &[]), instance("10.0.0.2", 81, &[])]);
        let web = &aggregator().aggregate("web", &web).unwrap()["web"];
        assert_eq!((web.ports.len(), web.endpoints.len()), (2, 2));
        assert!(web.endpoints.values().all(|addresses| addresses.len() == 1));
    }

    #[test]
    fn address_is_ready_if_one_of_its_instances_is() {
        let failing = Instance {
            ready: false,
            ..instance("10.0.0.1", 80, &["old"])
        };
        let web = service([failing, instance("10.0.0.1", 80, &["new"])]);
        let web = &aggregator().aggregate("web", &web).unwrap()["web"];
        assert!(web.endpoints.values().next().unwrap()[&"10.0.0.1".parse().unwrap()]);
    }

    #[test]
    fn tag_selects_instances_and_name_gets_prefix_and_suffix() {
        let web = service([
            instance("10.0.0.1", 80, &["contiv"]),
            instance("10.0.0.2", 80, &[]),
        ]);
        let aggregator = Aggregator {
            tag: "contiv".to_owned(),
            prefix: "dc1-".to_owned(),
            suffix: "-x".to_owned(),
            ..Aggregator::default()
        };
        let micro_services = aggregator.aggregate("web", &web).unwrap();
        assert_eq!(micro_services["dc1-web-x"].addresses().len(), 1);
        let other = service([instance("10.0.0.2", 80, &[])]);
        assert!(aggregator.aggregate("web", &other).unwrap().is_empty());
    }

    #[test]
    fn service_without_instances_has_no_ports_or_endpoints() {
        let micro_services = aggregator().aggregate("web", &service([])).unwrap();
        assert!(
            micro_services["web"].ports.is_empty() && micro_services["web"].endpoints.is_empty()
        );
        assert!(aggregator().aggregate("a/b", &service([])).is_err());
    }
}
