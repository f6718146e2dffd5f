//! Validated names of renderers.

use std::{fmt, str::FromStr};

use contiv_renderer::registry;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

/// A renderer that exists, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RendererName(&'static str);

impl RendererName {
    /// The one that programs the kernel.
    pub const NFTABLES: Self = Self("nftables");

    /// The one that adds routes.
    pub const ROUTE: Self = Self("route");

    /// The one that only prints.
    pub const DRY_RUN: Self = Self("dry-run");

    /// The name as it is registered.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// A name that no renderer has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown renderer {0:?}; valid renderers: {known}", known = registry::NAMES.join(", "))]
pub struct UnknownRenderer(String);

impl FromStr for RendererName {
    type Err = UnknownRenderer;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = registry::NAMES.into_iter().find(|known| *known == name);
        known
            .map(Self)
            .ok_or_else(|| UnknownRenderer(name.to_owned()))
    }
}

impl<'de> Deserialize<'de> for RendererName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text::deserialize(deserializer)
    }
}

impl fmt::Display for RendererName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_registry() {
        for name in registry::NAMES {
            assert_eq!(name.parse::<RendererName>().unwrap().as_str(), name);
            assert!(
                registry::create(name, registry::Options::default())
                    .is_some_and(|renderer| renderer.name() == name)
            );
        }
        for known in [
            RendererName::NFTABLES,
            RendererName::ROUTE,
            RendererName::DRY_RUN,
        ] {
            assert!(registry::NAMES.contains(&known.as_str()));
        }
        assert!("nft".parse::<RendererName>().is_err());
    }
}
