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
    /// Whether the file of the new configuration has it; else it has its default there.
    pub(super) is_in_file: bool,
    pub(super) effect: Effect,
}

/// What a setting means alone, with the objects that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// So many changes of connections.
    Connections(usize),
    /// Something is programmed otherwise, and connections to services have the same ends.
    SameEnds,
    /// Connections to addresses that are none of services, which are not compared.
    OtherConnections,
    /// Routes, which are not compared.
    Routes,
    /// The agent reads other objects, which are not compared.
    OtherObjects,
    /// None on connections.
    None,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connections(1) => f.write_str("1 change of connections"),
            Self::Connections(count) => write!(f, "{count} changes of connections"),
            Self::SameEnds => f.write_str("programmed otherwise, services answer as now"),
            Self::OtherConnections => f.write_str("connections past services: not compared"),
            Self::Routes => f.write_str("routes: not compared"),
            Self::OtherObjects => f.write_str("other objects are read: not compared"),
            Self::None => f.write_str("none on connections"),
        }
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Settings that decide on connections to addresses that no service has.
const OTHER_CONNECTIONS: [&str; 3] = ["masquerade-egress", "non-masquerade-cidrs", "service-cidrs"];

/// Whether a setting names the store, or the way there.
pub(super) fn is_of_store(key: &str) -> bool {
    key == "store" || key.starts_with("etcd-")
}

/// The settings that differ. `in_file` are those that the file of the new one has; none: all. `changes` counts what a configuration changes for connections; none if it programs the same.
///
/// # Errors
/// When a configuration cannot be written as a file.
pub(super) fn compare(
    old: &Config,
    new: &Config,
    in_file: Option<&BTreeSet<String>>,
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
        let runs_route = |config: &Config| config.renderers.contains(&RendererName::ROUTE);
        let are_routes_other = match key.as_str() {
            "renderers" => runs_route(old) != runs_route(new),
            _ => key.starts_with("route-") && (runs_route(old) || runs_route(new)),
        };
        let effect = match counted {
            _ if is_of_store(key) => Effect::OtherObjects,
            Some(count @ 1..) => Effect::Connections(count),
            _ if are_routes_other => Effect::Routes,
            _ if OTHER_CONNECTIONS.contains(&key.as_str()) => Effect::OtherConnections,
            Some(0) => Effect::SameEnds,
            None => Effect::None,
        };
        let [old, new] = sides.map(|value| value.map(ToString::to_string));
        found.push(SettingChange {
            setting: key.clone(),
            old,
            new,
            is_in_file: in_file.is_none_or(|keys| keys.contains(key)),
            effect,
        });
    }
    Ok(found)
}

/// A row for each.
pub(super) fn listing(settings: &[SettingChange]) -> Listing {
    let item = |change: &SettingChange| {
        let style = match change.effect {
            Effect::Connections(_)
            | Effect::OtherConnections
            | Effect::Routes
            | Effect::OtherObjects => TextStyle::Warning,
            Effect::SameEnds | Effect::None => TextStyle::Plain,
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let new = if change.is_in_file {
            text(&change.new)
        } else {
            "(not in the file)".to_owned()
        };
        Item {
            name: change.setting.clone(),
            value: serde_json::Value::Null,
            cells: (
                vec![
                    change.setting.as_str().into(),
                    text(&change.old).into(),
                    new.into(),
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
        let in_file = ["local-endpoint-weight", "masquerade-all", "store"];
        let in_file: BTreeSet<String> = in_file.map(str::to_owned).into();
        let found = compare(&old, &new, Some(&in_file), changes).unwrap();
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
                ("route-advertise-table", Effect::None),
                ("store", Effect::OtherObjects),
            ]
        );
        let absent = found.iter().filter(|change| !change.is_in_file);
        let absent: Vec<&str> = absent.map(|change| change.setting.as_str()).collect();
        assert_eq!(absent, ["log-level", "route-advertise-table"]);
        let cells = |row: usize| listing(&found).items[row].cells.0[2].text().to_owned();
        assert_eq!([cells(0), cells(1)], ["7", "(not in the file)"]);
        let same = compare(&old, &old, None, |_| Ok(Some(1))).unwrap();
        assert_eq!(same.len(), 0);
    }

    #[test]
    fn what_is_not_compared_is_no_none() {
        let both = || vec![RendererName::NFTABLES, RendererName::ROUTE];
        let nftables = || vec![RendererName::NFTABLES];
        let effect = |old: &Config, new: &Config, changes: Option<usize>| {
            let found = compare(old, new, None, |_| Ok(changes)).unwrap();
            let effects: Vec<Effect> = found.iter().map(|change| change.effect).collect();
            effects
        };
        let of = |renderers: Vec<RendererName>, table: u32| Config {
            renderers,
            route_advertise_table: table,
            ..Config::default()
        };
        let (routed, other) = (of(both(), 67), of(both(), 77));
        assert_eq!(effect(&routed, &of(nftables(), 67), None), [Effect::Routes]);
        assert_eq!(effect(&routed, &other, None), [Effect::Routes]);
        let egress = Config {
            service_cidrs: vec!["10.0.0.0/8".parse().unwrap()],
            ..of(both(), 67)
        };
        assert_eq!(
            effect(&routed, &egress, Some(0)),
            [Effect::OtherConnections]
        );
        assert_eq!(effect(&routed, &egress, Some(2)), [Effect::Connections(2)]);
    }
}
