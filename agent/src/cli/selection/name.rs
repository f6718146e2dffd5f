//! A name on the command line, with or without a namespace.

use std::str::FromStr;

/// `NAME` or `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Name {
    /// The namespace of the name, or `default` if it has none.
    pub(crate) fn namespace_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(default)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, text),
        };
        if name.is_empty() || name.contains('/') || namespace.as_ref().is_some_and(String::is_empty)
        {
            return Err("expected NAME or NAMESPACE/NAME".to_owned());
        }
        Ok(Self {
            namespace,
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_parsed_with_and_without_namespace() {
        let name = |text: &str| text.parse::<Name>().map(|name| (name.namespace, name.name));
        assert_eq!(name("web"), Ok((None, "web".to_owned())));
        assert_eq!(
            name("shop/web"),
            Ok((Some("shop".to_owned()), "web".to_owned()))
        );
        for wrong in ["", "/web", "shop/", "a/b/c"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
