//! The resource types and their names.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The resource types that have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `k8s/pod/<name>/namespace/<ns>`
    Pod,
    /// `k8s/service/<name>/namespace/<ns>`
    Service,
    /// `k8s/endpoints/<name>/namespace/<ns>`
    Endpoints,
    /// `k8s/endpointslice/<name>/namespace/<ns>`
    EndpointSlice,
    /// `k8s/externalworkload/<name>/namespace/<ns>`
    ExternalWorkload,
    /// `k8s/node/<name>`
    Node,
    /// `k8s/namespace/<name>`
    Namespace,
    /// `allocatedIDs/<decimal id>`
    VppNode,
    /// `custom-ipam/<pod name>/<pod namespace>`
    IpAllocation,
}

impl Kind {
    /// Every type, in the order of the enum.
    pub const ALL: [Self; 9] = [
        Self::Pod,
        Self::Service,
        Self::Endpoints,
        Self::EndpointSlice,
        Self::ExternalWorkload,
        Self::Node,
        Self::Namespace,
        Self::VppNode,
        Self::IpAllocation,
    ];

    /// Contiv's keyword of the type (`dbresources.go`); for endpoint slices and external workloads one of
    /// the same form.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Service => "service",
            Self::Endpoints => "endpoints",
            Self::EndpointSlice => "endpointslice",
            Self::ExternalWorkload => "externalworkload",
            Self::Node => "node",
            Self::Namespace => "namespace",
            Self::VppNode => "vppnode",
            Self::IpAllocation => "custom-ipam",
        }
    }

    /// Whether objects of this type live in a namespace.
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Pod
            | Self::Service
            | Self::Endpoints
            | Self::EndpointSlice
            | Self::ExternalWorkload
            | Self::IpAllocation => true,
            Self::Node | Self::Namespace | Self::VppNode => false,
        }
    }

    /// The other words a user may type, all in lower case: plurals and kubectl's short names.
    const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Pod => &["pods", "po"],
            Self::Service => &["services", "svc"],
            Self::Endpoints => &["endpoint", "ep"],
            Self::EndpointSlice => &["endpointslices", "eps"],
            Self::ExternalWorkload => &["externalworkloads"],
            Self::Node => &["nodes", "no"],
            Self::Namespace => &["namespaces", "ns"],
            Self::VppNode => &["vppnodes"],
            Self::IpAllocation => &["customipallocation", "customipallocations"],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}

/// A word that is not the name of a resource type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown resource type {word:?}; valid types: {}", Kind::ALL.map(Kind::keyword).join(", "))]
pub struct UnknownKind {
    /// The word as given.
    pub word: String,
}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// Reads a keyword, a plural, a kubectl short name or a manifest's `kind`, in any case.
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let lower = word.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|kind| kind.keyword() == lower || kind.aliases().contains(&lower.as_str()))
            .ok_or_else(|| UnknownKind {
                word: word.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_for_type_names_that_type_only() {
        let mut seen = BTreeSet::new();
        for kind in Kind::ALL {
            for word in kind.aliases().iter().chain([&kind.keyword()]) {
                assert!(seen.insert(*word), "{word} names two types");
                assert_eq!(word.parse(), Ok(kind));
                assert_eq!(word.to_uppercase().parse(), Ok(kind));
            }
        }
    }

    #[test]
    fn kind_of_manifest_is_understood() {
        for (word, kind) in [
            ("Service", Kind::Service),
            ("EndpointSlice", Kind::EndpointSlice),
            ("Endpoints", Kind::Endpoints),
            ("svc", Kind::Service),
            ("ep", Kind::Endpoints),
            ("po", Kind::Pod),
            ("no", Kind::Node),
            ("ns", Kind::Namespace),
        ] {
            assert_eq!(word.parse(), Ok(kind), "{word}");
        }
    }

    #[test]
    fn unknown_word_is_answered_with_known_ones() {
        let error = "deployment".parse::<Kind>().unwrap_err().to_string();
        assert!(
            error.contains("\"deployment\"") && error.contains("endpointslice"),
            "{error}"
        );
    }
}
