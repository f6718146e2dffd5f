//! The input of the plan from a registry, and the problems of its services.

use crate::{
    aggregator::Aggregator,
    catalog::{Catalog, ResolvedHosts},
};

/// The services of one registry. If several registries have a service of the same stored name, the first registry in the
/// configuration gets the name.
#[derive(Debug, Clone, Copy)]
pub struct RegistryState<'a> {
    /// The name of the registry.
    pub name: &'a str,
    /// The rules by which its services become micro services.
    pub aggregator: &'a Aggregator,
    /// Its services; none until it has answered.
    pub catalog: Option<&'a Catalog>,
    /// The addresses of host names, as far as they were looked up.
    pub hosts: &'a ResolvedHosts,
}

/// Why a service is not stored, or differs from its registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The registry's name.
    pub registry: String,
    /// The name of the stored service, or of the source service if it has no valid stored name.
    pub service: String,
    /// The problem, and its remedy.
    pub reason: String,
}
