//! Label selectors in kubectl's syntax.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>.

use crate::cli::source::views::Labels;
use std::{collections::BTreeSet, str::FromStr};

/// Requirements, all of which must be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    DoesNotExist(String),
    In(String, BTreeSet<String>),
    /// Also met by objects without the label.
    NotIn(String, BTreeSet<String>),
}

impl Selector {
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::DoesNotExist(key) => !labels.contains_key(key),
            Requirement::In(key, values) => {
                labels.get(key).is_some_and(|value| values.contains(value))
            }
            Requirement::NotIn(key, values) => {
                labels.get(key).is_none_or(|value| !values.contains(value))
            }
        })
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        split(text)
            .into_iter()
            .map(parse_requirement)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The parts between commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

fn parse_requirement(text: &str) -> Result<Requirement, String> {
    let single = |value: &str| BTreeSet::from([value.trim().to_owned()]);
    let parsed = if let Some((key, value)) = text.split_once("!=") {
        Requirement::NotIn(parse_key(key)?, single(value))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        Requirement::In(parse_key(key)?, single(value))
    } else if let Some((left, list)) = text.split_once('(') {
        let list = list
            .strip_suffix(')')
            .ok_or_else(|| format!("{text:?}: no ) at the end"))?;
        let values = list
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        match left.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => Requirement::In(parse_key(key)?, values),
            Some((key, "notin")) => Requirement::NotIn(parse_key(key)?, values),
            _ => {
                return Err(format!(
                    "{text:?}: as in 'app in (web, api)' or 'app notin (web)'"
                ));
            }
        }
    } else if let Some(key) = text.strip_prefix('!') {
        Requirement::DoesNotExist(parse_key(key)?)
    } else {
        Requirement::Exists(parse_key(text)?)
    };
    Ok(parsed)
}

fn parse_key(text: &str) -> Result<String, String> {
    let key = text.trim();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(is_allowed) {
        return Err(format!(
            "{key:?} is not the name of a label; as in app=web,tier!=cache"
        ));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_in_kubectl() {
        let labels: Labels = [("app", "web"), ("tier", "front")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        for (selector, expected) in [
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app=web,tier=back", false),
            ("app!=web", false),
            ("zone!=a", true),
            ("app", true),
            ("zone", false),
            ("!zone", true),
            ("app in (api, web),tier", true),
            ("app notin (api,web)", false),
            ("zone notin (a)", true),
        ] {
            assert_eq!(
                selector.parse::<Selector>().unwrap().matches(&labels),
                expected,
                "{selector}"
            );
        }
        for wrong in [
            "",
            "=web",
            "app in web)",
            "app in (web",
            "app of (web)",
            "a b",
        ] {
            assert!(wrong.parse::<Selector>().is_err(), "{wrong:?}");
        }
    }
}
