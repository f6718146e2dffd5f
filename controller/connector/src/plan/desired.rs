//! The desired services of all registries, by their stored names.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Problem, RegistryState};
use crate::{
    aggregator::{HostNames, MicroService},
    catalog::SourceService,
    stored::Id,
};

pub(super) struct DesiredServices<'a> {
    /// The services, each with its registry.
    pub(super) services: BTreeMap<Id, (&'a str, MicroService)>,
    pub(super) problems: Vec<Problem>,
    configured: BTreeSet<&'a str>,
    unknown_registries: BTreeSet<&'a str>,
    /// Registry and source service of those whose instances are unknown.
    unknown_sources: BTreeSet<(&'a str, &'a str)>,
    /// Registry and source service of those without instances.
    empty_sources: BTreeSet<(&'a str, &'a str)>,
}

pub(super) fn collect<'a>(
    registries: &[RegistryState<'a>],
    namespace: &str,
) -> DesiredServices<'a> {
    let mut desired = DesiredServices {
        services: BTreeMap::new(),
        problems: Vec::new(),
        configured: registries.iter().map(|registry| registry.name).collect(),
        unknown_registries: BTreeSet::new(),
        unknown_sources: BTreeSet::new(),
        empty_sources: BTreeSet::new(),
    };
    for registry in registries {
        match registry.catalog {
            None => drop(desired.unknown_registries.insert(registry.name)),
            Some(_) => desired.add(registry, namespace),
        }
    }
    desired
}

impl<'a> DesiredServices<'a> {
    fn add(&mut self, registry: &RegistryState<'a>, namespace: &str) {
        let name = registry.name;
        for (source, service) in registry.catalog.into_iter().flatten() {
            let Some(service) = service else {
                self.unknown_sources.insert((name, source));
                continue;
            };
            for reason in &service.unusable {
                self.add_problem(name, source, format!("left out: {reason}"));
            }
            let Some(service) = self.with_resolved_hosts(registry, source, service) else {
                self.unknown_sources.insert((name, source));
                continue;
            };
            let micro_services = match registry.aggregator.aggregate(source, &service) {
                Ok(micro_services) => micro_services,
                Err(reason) => {
                    // Its new name is invalid. The object with its previous name must not be deleted because of that.
                    self.unknown_sources.insert((name, source));
                    self.add_problem(name, source, reason.to_string());
                    continue;
                }
            };
            for (service, micro_service) in micro_services {
                if micro_service.ports.is_empty() {
                    self.empty_sources.insert((name, source));
                    continue;
                }
                let id: Id = (namespace.into(), service.into());
                if let Some((other, of)) = self.services.get(&id) {
                    let reason = format!(
                        "{:?} of registry {other} has the name {} already; rename one, or give a registry a prefix",
                        of.source, id.1
                    );
                    self.add_problem(name, source, reason);
                    continue;
                }
                self.services.insert(id, (name, micro_service));
            }
        }
    }

    /// The service with the addresses of its host names, if they are resolved; none while one of them has not been looked up. Adds a
    /// problem for each host name that is not used.
    fn with_resolved_hosts<'s>(
        &mut self,
        registry: &RegistryState<'a>,
        source: &str,
        service: &'s SourceService,
    ) -> Option<Cow<'s, SourceService>> {
        let RegistryState {
            name,
            aggregator,
            hosts,
            ..
        } = registry;
        if aggregator.excludes(service) {
            return Some(Cow::Borrowed(service));
        }
        let mut resolved = Cow::Borrowed(service);
        let selected: Vec<_> = service
            .hosts
            .iter()
            .filter(|host| aggregator.selects(host))
            .collect();
        let mut left_out = |host: &str, reason: &str| {
            self.add_problem(name, source, format!("left out: {host} {reason}"));
        };
        match aggregator.host_names {
            HostNames::LeaveOut => {
                for host in selected {
                    left_out(
                        &host.address,
                        "is a host name; set host-names to resolve or external-name, or register an address",
                    );
                }
            }
            HostNames::ExternalName => {
                let first = selected
                    .iter()
                    .min_by_key(|host| !host.ready)
                    .map(|host| &host.address);
                let is_used = |host: &String| service.instances.is_empty() && first == Some(host);
                for host in selected.iter().filter(|host| !is_used(&host.address)) {
                    left_out(
                        &host.address,
                        "is one of several destinations, and an ExternalName service has one; set host-names to resolve",
                    );
                }
            }
            HostNames::Resolve => {
                for host in selected {
                    let addresses = hosts.get(&host.address)?;
                    if addresses.is_empty() {
                        left_out(&host.address, "has no address that other hosts can send to");
                    }
                    let at = |address: &IpAddr| host.clone().with_address(*address);
                    resolved.to_mut().instances.extend(addresses.iter().map(at));
                }
            }
        }
        Some(resolved)
    }

    pub(super) fn add_problem(&mut self, registry: &str, service: &str, reason: String) {
        self.problems.push(Problem {
            registry: registry.to_owned(),
            service: service.to_owned(),
            reason,
        });
    }

    /// True if the registry or the source service of a stored service is unknown, and so is its desired state.
    pub(super) fn is_unknown(&self, registry: &str, source: &str) -> bool {
        self.unknown_registries.contains(registry)
            || self.unknown_sources.contains(&(registry, source))
    }

    /// True if the source service has no instances.
    pub(super) fn is_empty(&self, registry: &str, source: &str) -> bool {
        self.empty_sources.contains(&(registry, source))
    }

    /// True if the registry is no longer configured, and it is too early to delete its services: another registry may have a service of the same name.
    pub(super) fn is_orphan_to_keep(&self, registry: &str) -> bool {
        !self.configured.contains(registry) && !self.unknown_registries.is_empty()
    }

    /// True if anything of the registry is unknown.
    pub(super) fn is_any_unknown(&self, registry: &str) -> bool {
        self.unknown_registries.contains(registry)
            || self.unknown_sources.iter().any(|(of, _)| *of == registry)
            || self.is_orphan_to_keep(registry)
    }
}
