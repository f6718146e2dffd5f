//! Options of all tables: sorting, and no header.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use serde_json::Value;

use super::json_path::{self, Path};
use crate::cli::UsageError;

/// Order and header of a table.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TableOptions {
    /// Leave out the line with the titles of the columns
    #[arg(long)]
    pub(crate) no_headers: bool,

    /// Sort by a column, as in --sort-by backends, or by a field of the JSON form, as in --sort-by .metadata.name
    #[arg(long, value_name = "COLUMN|.FIELD")]
    pub(crate) sort_by: Option<SortKey>,
}

/// The key to sort rows by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// A column, by its title in lower case.
    Column(String),
    /// A field of the JSON form.
    Field(Path),
}

impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.contains('.') {
            return Ok(Self::Column(text.to_lowercase()));
        }
        let path = text.parse().map_err(|error| {
            format!("{error}; expected a field such as .metadata.name or .spec.ports[0].port")
        })?;
        Ok(Self::Field(path))
    }
}

impl TableOptions {
    /// Sorts items with these columns, if requested. `cells` has a text for each column, `value` is the JSON form.
    ///
    /// # Errors
    /// [`UsageError`] when the column does not exist.
    pub(crate) fn sort<T>(
        &self,
        items: &mut [T],
        titles: &[&str],
        cells: impl Fn(&T) -> Vec<String>,
        value: impl Fn(&T) -> Value,
    ) -> Result<(), UsageError> {
        match &self.sort_by {
            None => {}
            Some(SortKey::Field(path)) => {
                items.sort_by_cached_key(|item| SortValue::from(field(&value(item), path)));
            }
            Some(SortKey::Column(title)) => {
                let Some(position) = titles
                    .iter()
                    .position(|known| known.to_lowercase() == *title)
                else {
                    let known = titles.join(", ").to_lowercase();
                    return Err(UsageError(format!(
                        "--sort-by: unknown column {title:?}; valid columns: {known}; a field such as .metadata.name is valid too"
                    )));
                };
                items.sort_by_cached_key(|item| SortValue::from(cells(item).swap_remove(position)));
            }
        }
        Ok(())
    }
}

/// The text of a field; empty if there is none.
fn field(value: &Value, path: &Path) -> String {
    let found = path.select(value).unwrap_or_default();
    match found.first() {
        None | Some(Value::Null) => String::new(),
        Some(value) => json_path::text(value),
    }
}

/// A text as a sort key: addresses, times and numbers by their value, before all others; a list of addresses by the first, and
/// then as text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SortValue {
    Address(IpAddr, String),
    Endpoint(SocketAddr, String),
    Time(Duration),
    /// Its leading number, and the whole text.
    Number(u64, String),
    Text(String),
}

impl From<String> for SortValue {
    fn from(text: String) -> Self {
        let end = text
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(text.len());
        let first = text.split(',').next().unwrap_or_default();
        if let Ok(address) = first.parse::<IpAddr>() {
            Self::Address(address, text)
        } else if let Ok(endpoint) = first.parse::<SocketAddr>() {
            Self::Endpoint(endpoint, text)
        } else if let Some(time) = time(&text) {
            Self::Time(time)
        } else if let Ok(number) = text[..end].parse() {
            Self::Number(number, text)
        } else {
            Self::Text(text)
        }
    }
}

/// A time in a table's format: `5d`, `2.0ms`, `3h20m`. What has no unit is a number.
fn time(text: &str) -> Option<Duration> {
    if text.ends_with(|character: char| character.is_ascii_digit()) {
        return None;
    }
    humantime::parse_duration(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sorted(key: &str, items: &[Value]) -> Result<Vec<String>, String> {
        let options = TableOptions {
            sort_by: Some(key.parse()?),
            ..TableOptions::default()
        };
        let mut items = items.to_vec();
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let cells = |item: &Value| vec![text(item, "name"), text(item, "ip")];
        options
            .sort(&mut items, &["NAME", "CLUSTER-IP"], cells, Value::clone)
            .map_err(|error| error.to_string())?;
        Ok(items.iter().map(|item| text(item, "name")).collect())
    }

    #[test]
    fn rows_are_sorted_by_column_or_field_and_by_value() {
        let items = [
            json!({"name": "b", "ip": "10.96.0.10", "ports": [{"port": 443}]}),
            json!({"name": "a", "ip": "10.96.0.9", "ports": [{"port": 8080}]}),
            json!({"name": "c", "ip": "<none>", "ports": [{"port": 80}]}),
        ];
        for (key, expected) in [
            ("name", ["a", "b", "c"]),
            ("CLUSTER-IP", ["a", "b", "c"]),
            (".ports[0].port", ["c", "b", "a"]),
            ("{.name}", ["a", "b", "c"]),
        ] {
            assert_eq!(sorted(key, &items).unwrap(), expected, "{key}");
        }
        for (cells, expected) in [
            (["5d", "<unknown>", "12m"], ["c", "a", "b"]),
            (["2.0ms", "1.5s", "900us"], ["c", "a", "b"]),
            (["3h20m", "100s", "3h5m"], ["b", "c", "a"]),
            (
                ["10.96.0.10,fd00::2", "10.96.0.9,fd00::1", "10.96.0.100"],
                ["b", "a", "c"],
            ),
        ] {
            let items: Vec<Value> = ["a", "b", "c"]
                .iter()
                .zip(cells)
                .map(|(name, ip)| json!({"name": name, "ip": ip}))
                .collect();
            assert_eq!(sorted("cluster-ip", &items).unwrap(), expected, "{cells:?}");
        }
        assert!(
            sorted("type", &items)
                .unwrap_err()
                .contains("valid columns: name, cluster-ip")
        );
        assert!(sorted(".name]", &items).is_err());
    }
}
