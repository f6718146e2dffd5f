//! Selects stored objects as in kubectl: by kind and name, namespace, labels.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use contiv_proto::{Key, Kind};

use super::{complete, name::Name, selector::Selector};
use crate::cli::{UsageError, output::suggest::suggest};

/// Selects stored objects.
#[derive(Debug, Args)]
pub(crate) struct Resources {
    /// The kind of the objects (svc, endpoints, eps, po, no, …; several separated by commas), and their names, as NAME or
    /// NAMESPACE/NAME; or each object as KIND/NAME
    #[arg(value_name = "KIND [NAME]… | KIND/NAME…", add = ArgValueCompleter::new(complete::resources))]
    words: Vec<String>,

    /// In this namespace
    #[arg(
        short,
        long,
        default_value = "default",
        conflicts_with = "all_namespaces"
    )]
    namespace: String,

    /// In every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only those with these labels, as in app=web,tier!=cache or 'app in (web, api)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Selector>,
}

/// Objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceRequest {
    pub(crate) kind: Kind,
    pub(crate) objects: ObjectSelector,
}

/// Selects objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectSelector {
    /// The objects with these keys.
    Keys(Vec<Key>),
    /// All objects with these labels in this namespace, or in all namespaces.
    All {
        namespace: Option<String>,
        selector: Option<Selector>,
    },
}

impl Resources {
    /// True without any argument.
    pub(crate) const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// True if one object was requested by its name.
    pub(crate) fn is_single(&self) -> bool {
        self.kind_name_pairs().is_some_and(|pairs| pairs.len() == 1) || self.words.len() == 2
    }

    /// True if the result may be of several namespaces, so that each row names its own.
    pub(crate) fn shows_namespace(&self) -> bool {
        let names = self.words.iter().skip(1);
        self.all_namespaces
            || (self.kind_name_pairs().is_none()
                && names.into_iter().any(|name| name.contains('/')))
    }

    /// The requests, each kind once, in the order of the arguments.
    ///
    /// # Errors
    /// When the arguments contradict each other, with a suggestion.
    pub(crate) fn requests(&self) -> Result<Vec<ResourceRequest>, UsageError> {
        let Some((first, names)) = self.words.split_first() else {
            let kinds = Kind::ALL.map(Kind::keyword).join(", ");
            return Err(UsageError(format!(
                "name a kind: {kinds}; or objects, as in service/web"
            )));
        };
        if let Some(pairs) = self.kind_name_pairs() {
            self.check(true)?;
            return self.requests_of_pairs(&pairs);
        }
        self.check(!names.is_empty())?;
        let kinds = first
            .split(',')
            .map(kind)
            .collect::<Result<Vec<Kind>, _>>()?;
        kinds
            .into_iter()
            .map(|kind| {
                let objects = if names.is_empty() {
                    let namespace = (kind.is_namespaced() && !self.all_namespaces)
                        .then(|| self.namespace.clone());
                    ObjectSelector::All {
                        namespace,
                        selector: self.selector.clone(),
                    }
                } else {
                    ObjectSelector::Keys(
                        names
                            .iter()
                            .map(|name| self.key(kind, name))
                            .collect::<Result<_, _>>()?,
                    )
                };
                Ok(ResourceRequest { kind, objects })
            })
            .collect()
    }

    /// The arguments, if they have the form KIND/NAME.
    fn kind_name_pairs(&self) -> Option<Vec<(&str, &str)>> {
        self.words.first().filter(|first| first.contains('/'))?;
        Some(
            self.words
                .iter()
                .map(|word| word.split_once('/').unwrap_or((word, "")))
                .collect(),
        )
    }

    /// Rejects names together with `-A` or labels.
    fn check(&self, has_names: bool) -> Result<(), UsageError> {
        let problem = if has_names && self.all_namespaces {
            "a name is of one namespace: give the namespace with -n or as NAMESPACE/NAME, not -A"
        } else if has_names && self.selector.is_some() {
            "give either names or labels"
        } else {
            return Ok(());
        };
        Err(UsageError(problem.to_owned()))
    }

    fn requests_of_pairs(
        &self,
        pairs: &[(&str, &str)],
    ) -> Result<Vec<ResourceRequest>, UsageError> {
        let mut requests: Vec<ResourceRequest> = Vec::new();
        for (word, name) in pairs {
            if name.is_empty() {
                return Err(UsageError(format!(
                    "{word:?}: the first argument has the form KIND/NAME; write all like that"
                )));
            }
            let kind = kind(word)?;
            let key = self.key(kind, name)?;
            match requests.iter_mut().find(|request| request.kind == kind) {
                Some(ResourceRequest {
                    objects: ObjectSelector::Keys(keys),
                    ..
                }) => keys.push(key),
                _ => requests.push(ResourceRequest {
                    kind,
                    objects: ObjectSelector::Keys(vec![key]),
                }),
            }
        }
        Ok(requests)
    }

    fn key(&self, kind: Kind, text: &str) -> Result<Key, UsageError> {
        let name: Name = text
            .parse()
            .map_err(|problem| UsageError(format!("{text:?}: {problem}")))?;
        if !kind.is_namespaced() && name.namespace.is_some() {
            return Err(UsageError(format!(
                "{text:?}: a {kind} is in no namespace; name it as {}",
                name.name
            )));
        }
        let namespace = if kind.is_namespaced() {
            name.namespace_or(&self.namespace)
        } else {
            ""
        };
        Key::new(kind, namespace, name.name.as_str()).map_err(|error| UsageError(error.problem))
    }
}

fn kind(word: &str) -> Result<Kind, UsageError> {
    word.parse().map_err(|error| {
        let known = Kind::ALL.map(|kind| kind.keyword().to_owned());
        let lower = word.to_ascii_lowercase();
        let hint = suggest(&lower, &known).map(|meant| format!("; did you mean {meant}?"));
        UsageError(format!("{error}{}", hint.unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        resources: Resources,
    }

    fn parsed(line: &str) -> Result<Vec<String>, String> {
        let words = std::iter::once("contiv").chain(line.split(' '));
        let Cli { resources } =
            Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let text = |ResourceRequest { kind, objects }| match objects {
            ObjectSelector::Keys(keys) => keys
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
            ObjectSelector::All {
                namespace,
                selector,
            } => {
                let labels = if selector.is_some() {
                    " with labels"
                } else {
                    ""
                };
                format!(
                    "{kind}s of {}{labels}",
                    namespace.as_deref().unwrap_or("all")
                )
            }
        };
        resources
            .requests()
            .map(|all| all.into_iter().map(text).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn objects_are_named_as_for_kubectl() {
        for (line, expected) in [
            ("svc", &["services of default"][..]),
            ("svc,no -n shop", &["services of shop", "nodes of all"]),
            ("services -A -l app=web", &["services of all with labels"]),
            (
                "svc web shop/cart",
                &["service default/web service shop/cart"],
            ),
            (
                "svc,eps web -n shop",
                &["service shop/web", "endpointslice shop/web"],
            ),
            (
                "svc/web no/n1 svc/db -n shop",
                &["service shop/web service shop/db", "node n1"],
            ),
            ("svc/shop/web", &["service shop/web"]),
        ] {
            assert_eq!(
                parsed(line),
                Ok(expected.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
    }

    #[test]
    fn wrong_arguments_get_a_hint() {
        for (line, expected) in [
            ("servcie", "did you mean service?"),
            ("endpointslcies", "did you mean endpointslice?"),
            ("deployments", "valid types:"),
            ("svc web -A", "NAMESPACE/NAME"),
            ("svc web -l app=web", "either names or labels"),
            ("svc/web web", "write all like that"),
            ("no shop/n1", "name it as n1"),
            ("svc a/b/c", "expected NAME or NAMESPACE/NAME"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
