//! Settings that differ between two configurations, and what each of them means.

use std::{collections::BTreeSet, fmt};

use anyhow::Context;
use serde::{Serialize, Serializer};

use crate::{
    cli::{
        output::{
            color::TextStyle,
            listing::{Item, Listing},
            table::Cell,
        },
        source::node_settings::is_node_setting,
    },
    config::{Config, RendererName, Settings as _},
};

/// A setting that differs.
#[derive(Debug, Serialize)]
pub(super) struct SettingChange {
    pub(super) setting: String,
    /// As in the file; none if it is not set.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
    pub(super) effect: Effect,
}

/// What a setting means alone, with the objects that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// So many changes of connections.
    Connections(usize),
    /// Something is programmed otherwise, and connections have the same ends: weights, for example.
    SameEnds,
    /// Routes, and not the ends of connections.
    Routes,
    /// The agent reads other objects, which are not compared.
    OtherObjects,
    /// Nothing is programmed by nftables any more.
    NoRules,
    /// None on connections.
    None,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connections(1) => f.write_str("1 change of connections"),
            Self::Connections(count) => write!(f, "{count} changes of connections"),
            Self::SameEnds => f.write_str("programmed otherwise, connections end as now"),
            Self::Routes => f.write_str("routes"),
            Self::OtherObjects => f.write_str("other objects are read: not compared"),
            Self::NoRules => f.write_str("rules stay as they are until `contiv cleanup`"),
            Self::None => f.write_str("none on connections"),
        }
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The settings that differ. `changes` counts what a configuration changes for connections; none if it programs the same.
///
/// # Errors
/// When a configuration cannot be written as a file.
pub(super) fn compare(
    old: &Config,
    new: &Config,
    mut changes: impl FnMut(&Config) -> anyhow::Result<Option<usize>>,
) -> anyhow::Result<Vec<SettingChange>> {
    let table = |config: &Config| -> anyhow::Result<toml::Table> {
        toml::from_str(&config.to_toml()?).context("a configuration is no TOML")
    };
    let (old_table, new_table) = (table(old)?, table(new)?);
    let keys: BTreeSet<&String> = old_table.keys().chain(new_table.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        let sides = [&old_table, &new_table].map(|table| table.get(key));
        if sides[0] == sides[1] {
            continue;
        }
        let mut alone = old_table.clone();
        match sides[1] {
            Some(value) => alone.insert(key.clone(), value.clone()),
            None => alone.remove(key),
        };
        // A setting that is invalid without others is none alone.
        let alone: Option<Config> = alone.try_into().ok();
        let counted = match alone.filter(|_| is_node_setting(key)) {
            Some(alone) => changes(&alone)?,
            None => None,
        };
        let runs_nftables = |config: &Config| config.renderers.contains(&RendererName::NFTABLES);
        let effect = match counted {
            _ if key == "store" || key.starts_with("etcd-") => Effect::OtherObjects,
            _ if key == "renderers" && runs_nftables(old) && !runs_nftables(new) => Effect::NoRules,
            Some(0) => Effect::SameEnds,
            Some(count) => Effect::Connections(count),
            None if key.starts_with("route-") => Effect::Routes,
            None => Effect::None,
        };
        let [old, new] = sides.map(|value| value.map(ToString::to_string));
        found.push(SettingChange {
            setting: key.clone(),
            old,
            new,
            effect,
        });
    }
    Ok(found)
}

/// A row for each.
pub(super) fn listing(settings: &[SettingChange]) -> Listing {
    let item = |change: &SettingChange| {
        let style = match change.effect {
            Effect::Connections(_) | Effect::NoRules | Effect::OtherObjects => TextStyle::Warning,
            Effect::SameEnds | Effect::Routes | Effect::None => TextStyle::Plain,
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        Item {
            name: change.setting.clone(),
            value: serde_json::Value::Null,
            cells: (
                vec![
                    change.setting.as_str().into(),
                    text(&change.old).into(),
                    text(&change.new).into(),
                    Cell::styled(change.effect.to_string(), style),
                ],
                Vec::new(),
            ),
        }
    };
    Listing {
        header: (["SETTING", "NOW", "THEN", "EFFECT"].to_vec(), Vec::new()),
        items: settings.iter().map(item).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_differs_has_its_effect() {
        let old = Config::default();
        let new = Config {
            masquerade_all: true,
            local_endpoint_weight: 7,
            log_level: "debug".to_owned(),
            route_advertise_table: 77,
            store: "dir:/elsewhere".parse().unwrap(),
            ..Config::default()
        };
        let changes = |alone: &Config| {
            Ok(match () {
                () if alone.masquerade_all => Some(3),
                () if alone.local_endpoint_weight != old.local_endpoint_weight => Some(0),
                () => None,
            })
        };
        let found = compare(&old, &new, changes).unwrap();
        let effects: Vec<(&str, Effect)> = found
            .iter()
            .map(|change| (change.setting.as_str(), change.effect))
            .collect();
        assert_eq!(
            effects,
            [
                ("local-endpoint-weight", Effect::SameEnds),
                ("log-level", Effect::None),
                ("masquerade-all", Effect::Connections(3)),
                ("route-advertise-table", Effect::Routes),
                ("store", Effect::OtherObjects),
            ]
        );
        assert_eq!(compare(&old, &old, |_| Ok(Some(1))).unwrap().len(), 0);
        let without = Config {
            renderers: vec![RendererName::ROUTE],
            ..Config::default()
        };
        let found = compare(&old, &without, |_| Ok(Some(2))).unwrap();
        assert_eq!(found[0].effect, Effect::NoRules);
    }
}
