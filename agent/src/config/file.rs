//! Reads the configuration file, in TOML.

use std::{fs, path::Path};

use clap::Args;
use serde::de::DeserializeOwned;
use strsim::levenshtein;
use toml::de::DeTable;

use super::{ConfigError, flags};

/// Reads the settings of `file`; without one, those of `default_file`, if that exists.
///
/// # Errors
/// When the file cannot be read, and the errors of [`parse`].
pub(super) fn read<C: Args + DeserializeOwned>(
    file: Option<&Path>,
    default_file: &str,
) -> Result<Option<C>, ConfigError> {
    let default_file = Path::new(default_file);
    let Some(path) = file.or_else(|| default_file.exists().then_some(default_file)) else {
        return Ok(None);
    };
    let text = fs::read_to_string(path).map_err(|error| {
        ConfigError::one(format!(
            "failed to read the configuration {}: {error}",
            path.display()
        ))
    })?;
    parse(&path.display().to_string(), &text).map(Some)
}

/// Parses the text of a file. `name` is the name of the file in errors.
///
/// # Errors
/// All unknown keys; else the first invalid value. Each with file, line and key.
pub(crate) fn parse<C: Args + DeserializeOwned>(name: &str, text: &str) -> Result<C, ConfigError> {
    let located = |error: &toml::de::Error| {
        let line = error.span().map_or(1, |span| line(text, span.start));
        // The parser does not name the key: it is the one before the value on its line.
        let key = text
            .lines()
            .nth(line - 1)
            .and_then(|line| line.split_once('='))
            .map(|(key, _)| key.trim());
        let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
        ConfigError::one(format!("{name}:{line}: {key}{}", error.message().trim()))
    };
    let table = DeTable::parse(text).map_err(|error| located(&error))?;
    let known = flags::keys::<C>();
    let is_known = |key: &str| known.iter().any(|known| known == key);
    let mut unknown: Vec<_> = table
        .get_ref()
        .keys()
        .filter(|key| !is_known(key.get_ref()))
        .collect();
    unknown.sort_by_key(|key| key.span().start);
    let unknown: Vec<String> = unknown
        .into_iter()
        .map(|key| {
            format!(
                "{name}:{}: {}",
                line(text, key.span().start),
                unknown_key(key.get_ref(), &known)
            )
        })
        .collect();
    if !unknown.is_empty() {
        return Err(ConfigError(unknown));
    }
    toml::from_str(text).map_err(|error| located(&error))
}

/// Parses the configuration that an agent reports, which may be of another version. A key that this version does not know, or with
/// a value that it cannot read, counts as not set, and is returned with its value, as in the file.
///
/// # Errors
/// When the text is not TOML.
pub(crate) fn parse_of_any_version<C: DeserializeOwned>(
    name: &str,
    text: &str,
) -> Result<(C, Vec<String>), ConfigError> {
    let wrong =
        |error: toml::de::Error| ConfigError::one(format!("{name}: {}", error.message().trim()));
    let mut table: toml::Table = toml::from_str(text).map_err(wrong)?;
    let mut unknown = Vec::new();
    table.retain(|key, value| {
        let alone = toml::Table::from_iter([(key.to_owned(), value.clone())]);
        let is_known = alone.try_into::<C>().is_ok();
        if !is_known {
            unknown.push(format!("{key} = {value}"));
        }
        is_known
    });
    Ok((table.try_into().map_err(wrong)?, unknown))
}

fn line(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        + 1
}

fn unknown_key(key: &str, known: &[String]) -> String {
    let nearest = known.iter().min_by_key(|known| levenshtein(key, known));
    match nearest.filter(|known| levenshtein(key, known) <= known.len() / 2) {
        Some(nearest) => format!("unknown key {key:?}; did you mean {nearest:?}?"),
        None => format!("unknown key {key:?}; valid keys: {}", known.join(", ")),
    }
}
