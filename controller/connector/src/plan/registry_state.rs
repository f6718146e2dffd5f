//! The state of a registry: its services, and their problems.

use crate::{
    aggregator::Aggregator,
    catalog::{Catalog, ResolvedHosts},
};

/// One registry, in the order of the configuration: the first one gets a name that several want.
#[derive(Debug, Clone, Copy)]
pub struct RegistryState<'a> {
    /// Its name.
    pub name: &'a str,
    /// The settings of its services.
    pub aggregator: &'a Aggregator,
    /// Its content; none until it has answered.
    pub catalog: Option<&'a Catalog>,
    /// The addresses of host names, as far as they were looked up.
    pub hosts: &'a ResolvedHosts,
}

/// Why a service is not stored, or differs from its registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The registry's name.
    pub registry: String,
    /// The service: its stored name if it has one, else its name in the registry.
    pub service: String,
    /// What is wrong, and what to do.
    pub reason: String,
}
