//! Selects services: by name, by namespace, by label.

use std::{collections::BTreeSet, fmt::Write};

use anyhow::Context;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_model::ServiceId;

use super::{complete, name::Name, selector::Selector};
use crate::cli::{
    output::suggest::suggest,
    source::{agent_argument::AgentArgument, views::StoredServiceView},
};

/// Selects services.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scope {
    /// Only these, as NAME or NAMESPACE/NAME
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
    names: Vec<Name>,

    /// Only of this namespace
    #[arg(
        short,
        long,
        default_value = "default",
        conflicts_with = "all_namespaces"
    )]
    #[arg(add = ArgValueCompleter::new(complete::namespaces))]
    namespace: String,

    /// Of every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only those with these labels, as in app=web,tier!=cache or 'app in (web, api)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Selector>,
}

/// The selected items.
#[derive(Debug, Default)]
pub(crate) struct SelectedItems<T> {
    pub(crate) items: Vec<T>,
    /// Lines about names that were not found.
    pub(crate) missing: String,
}

impl Scope {
    /// True if one service was requested by its name.
    pub(crate) fn is_single(&self) -> bool {
        self.names.len() == 1
    }

    /// True if rows may be of several namespaces.
    pub(crate) fn shows_namespace(&self) -> bool {
        self.all_namespaces || self.names.iter().any(|name| name.namespace.is_some())
    }

    /// True without names, so that an empty result is no error.
    pub(crate) fn selects_all(&self) -> bool {
        self.names.is_empty()
    }

    /// The selected ones of `items`; `noun` is what one of them is called. Requests labels from the agent if needed.
    ///
    /// # Errors
    /// When the agent does not answer.
    pub(crate) fn select<T>(
        &self,
        items: Vec<T>,
        noun: &str,
        id: impl Fn(&T) -> &ServiceId,
        agent: &AgentArgument,
    ) -> anyhow::Result<SelectedItems<T>> {
        let labelled = self
            .selector
            .as_ref()
            .map(|selector| labelled(selector, agent))
            .transpose()?;
        let known: BTreeSet<ServiceId> = items.iter().map(|item| id(item).clone()).collect();
        let has_labels = |id: &ServiceId| {
            labelled
                .as_ref()
                .is_none_or(|labelled| labelled.contains(id))
        };
        let items: Vec<T> = items
            .into_iter()
            .filter(|item| self.contains(id(item)) && has_labels(id(item)))
            .collect();
        let mut missing = self.missing(noun, &known);
        if items.is_empty() && missing.is_empty() {
            let place = if self.all_namespaces {
                String::new()
            } else {
                format!(" in namespace {}; -A looks in every one", self.namespace)
            };
            let which = if self.selector.is_some() {
                " with these labels"
            } else {
                ""
            };
            // Writing to a `String` cannot fail.
            let _ = writeln!(missing, "no {noun}s{which} found{place}");
        }
        Ok(SelectedItems { items, missing })
    }

    /// True if the service is in the namespace and, if there are names, has one of them.
    pub(crate) fn contains(&self, id: &ServiceId) -> bool {
        let in_namespace = |namespace: &str| self.all_namespaces || *namespace == *id.namespace;
        if self.names.is_empty() {
            return in_namespace(&self.namespace);
        }
        self.names.iter().any(|name| {
            let namespace_fits = match &name.namespace {
                Some(namespace) => **namespace == *id.namespace,
                None => in_namespace(&self.namespace),
            };
            *name.name == *id.name && namespace_fits
        })
    }

    /// A line for each unknown name, with a suggestion.
    fn missing(&self, noun: &str, known: &BTreeSet<ServiceId>) -> String {
        let mut lines = String::new();
        for name in &self.names {
            let alone = Self {
                names: vec![name.clone()],
                ..self.clone()
            };
            if known.iter().any(|id| alone.contains(id)) {
                continue;
            }
            let full_name = format!("{}/{}", name.namespace_or(&self.namespace), name.name);
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            let hint = suggest(&full_name, &known).map_or_else(
                || {
                    format!(
                        "`contiv {}s -A` lists those there are",
                        noun.replace(' ', "-")
                    )
                },
                |meant| format!("did you mean {meant}?"),
            );
            // Writing to a `String` cannot fail.
            let _ = writeln!(lines, "error: the agent has no {noun} {full_name}; {hint}");
        }
        lines
    }
}

/// The services with these labels.
///
/// # Errors
/// When the agent does not answer.
pub(crate) fn labelled(
    selector: &Selector,
    agent: &AgentArgument,
) -> anyhow::Result<BTreeSet<ServiceId>> {
    let stored: Vec<StoredServiceView> =
        agent.get("/objects/svc").context("failed to read labels")?;
    Ok(stored
        .into_iter()
        .filter(|service| selector.matches(&service.labels))
        .map(|service| service.id)
        .collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        agent: AgentArgument,
    }

    fn select(arguments: &[&str]) -> (Vec<String>, String) {
        let Cli { scope, agent } = Cli::try_parse_from(["contiv"].iter().chain(arguments))
            .unwrap_or_else(|error| panic!("{error}"));
        let ids = ["default/web", "shop/cart", "shop/web"].map(|text| {
            let (namespace, name) = text.split_once('/').unwrap();
            ServiceId::new(namespace, name)
        });
        let SelectedItems { items, missing } = scope
            .select(ids.to_vec(), "service", |id| id, &agent)
            .unwrap();
        (items.iter().map(ToString::to_string).collect(), missing)
    }

    #[test]
    fn service_is_found_by_its_name_in_one_namespace_or_in_all() {
        for (arguments, expected) in [
            (&[][..], &["default/web"][..]),
            (&["web"], &["default/web"]),
            (&["-A"], &["default/web", "shop/cart", "shop/web"]),
            (&["-A", "web"], &["default/web", "shop/web"]),
            (&["-n", "shop"], &["shop/cart", "shop/web"]),
            (&["shop/cart", "web"], &["default/web", "shop/cart"]),
        ] {
            assert_eq!(
                select(arguments),
                (
                    expected.iter().map(ToString::to_string).collect(),
                    String::new()
                )
            );
        }
    }

    #[test]
    fn service_unknown_suggests_similar_names() {
        let (found, missing) = select(&["shop/crat", "web"]);
        assert_eq!(found, ["default/web"], "the others are shown");
        assert_eq!(
            missing,
            "error: the agent has no service shop/crat; did you mean shop/cart?\n"
        );
        let (_, missing) = select(&["cart"]);
        assert!(missing.contains("did you mean shop/cart?"), "{missing}");
        let (_, missing) = select(&["-n", "shpo"]);
        assert_eq!(
            missing,
            "no services found in namespace shpo; -A looks in every one\n"
        );
    }
}
