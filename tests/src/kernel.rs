//! The content of the kernel's nftables, read independently by `nft`.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use crate::lab::{LabError, Namespace, Result};

/// The elements of each set as text. Slots of backends are arbitrary, so they are left out and counted.
pub type Elements = BTreeMap<String, BTreeMap<String, usize>>;

fn unexpected(error: impl std::fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// Adds an element of a set in the syntax of nft.
pub fn count(elements: &mut Elements, set: &str, mut text: String) {
    if set.starts_with("backends")
        && let Some((key, backend)) = text.split_once(" : ")
        && let Some((frontend, _)) = key.rsplit_once(" . ")
    {
        text = format!("{frontend} : {backend}");
    }
    *elements
        .entry(set.to_owned())
        .or_default()
        .entry(text)
        .or_default() += 1;
}

/// Reads all elements with `nft -j`.
pub fn read_elements(namespace: &Namespace) -> Result<Elements> {
    // Listing thousands of services takes longer than other commands may.
    let list = || {
        Command::new("nft")
            .args(["-j", "list", "ruleset"])
            .output()
            .map_err(unexpected)
    };
    let listed = namespace.run(list)?;
    if !listed.status.success() {
        return Err(unexpected(String::from_utf8_lossy(&listed.stderr)));
    }
    let ruleset: Value = serde_json::from_slice(&listed.stdout).map_err(unexpected)?;
    let mut elements = Elements::new();
    for object in ruleset["nftables"].as_array().into_iter().flatten() {
        for set in [&object["set"], &object["map"]] {
            for element in set["elem"].as_array().into_iter().flatten() {
                count(
                    &mut elements,
                    set["name"].as_str().unwrap_or_default(),
                    text(element),
                );
            }
        }
    }
    Ok(elements)
}

/// Without what leads to chains that no frontend needs any more: it stays for the next service that needs it.
#[must_use]
pub fn without_unused_chains(mut elements: Elements) -> Elements {
    for (chains, frontends) in [
        ("pick-chains4", "services4"),
        ("pick-chains6", "services6"),
        ("learn-chains4", "sticky4"),
        ("learn-chains6", "sticky6"),
    ] {
        let used: BTreeSet<String> = (elements.get(frontends).into_iter().flatten())
            .filter_map(|(element, _)| Some(element.rsplit_once(" : ")?.1.to_owned()))
            .collect();
        if let Some(verdicts) = elements.get_mut(chains) {
            verdicts.retain(|verdict, _| {
                verdict
                    .split_once(" : ")
                    .is_some_and(|(number, _)| used.contains(number))
            });
            if verdicts.is_empty() {
                elements.remove(chains);
            }
        }
    }
    elements
}

/// An element in the syntax of nft.
fn text(element: &Value) -> String {
    let join = |parts: &[Value], between| parts.iter().map(text).collect::<Vec<_>>().join(between);
    let parts = match element {
        Value::String(value) => return value.clone(),
        Value::Array(parts) => return join(parts, " : "),
        Value::Object(parts) => parts,
        other => return other.to_string(),
    };
    match parts
        .iter()
        .next()
        .map(|(kind, value)| (kind.as_str(), value))
    {
        Some(("concat", Value::Array(parts))) => join(parts, " . "),
        Some(("elem", element)) => text(&element["val"]),
        Some(("prefix", prefix)) => format!("{}/{}", text(&prefix["addr"]), prefix["len"]),
        Some(("goto", chain)) => format!("goto {}", text(&chain["target"])),
        Some((verdict @ ("accept" | "drop"), Value::Null)) => verdict.to_owned(),
        _ => element.to_string(),
    }
}
