//! The dependencies between types, over all controllers.

use std::{collections::BTreeSet, fmt::Write};

/// Two types, each managed by a controller that watches the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycle {
    /// The first type by name.
    pub one: String,
    /// The second type by name.
    pub other: String,
}

/// The graph of types, with an edge from each watched type to the managed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependencies {
    types: BTreeSet<String>,
    edges: BTreeSet<(String, String)>,
}

impl Dependencies {
    pub(super) fn new(managed: BTreeSet<String>, edges: BTreeSet<(String, String)>) -> Self {
        let watched = edges.iter().map(|(watched, _)| watched.clone());
        Self {
            types: managed.into_iter().chain(watched).collect(),
            edges,
        }
    }

    /// Every pair of types whose controllers watch each other. Longer cycles are not detected.
    pub fn cycles(&self) -> Vec<Cycle> {
        let mutual = self.edges.iter().filter(|(one, other)| {
            one < other && self.edges.contains(&(other.clone(), one.clone()))
        });
        mutual
            .map(|(one, other)| Cycle {
                one: one.clone(),
                other: other.clone(),
            })
            .collect()
    }

    /// The graph in [Mermaid](https://mermaid.js.org) syntax, sorted.
    pub fn to_mermaid(&self) -> String {
        let id = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut text = String::from("flowchart TD\n");
        for name in &self.types {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {}[{name}]", id(name));
        }
        for (watched, managed) in &self.edges {
            let _ = writeln!(text, "    {} --> {}", id(watched), id(managed));
        }
        text
    }
}
