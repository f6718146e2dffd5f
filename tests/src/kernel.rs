//! The content of the kernel's nftables, read independently by the crate `nftables`.

use std::collections::BTreeMap;

use nftables::expr::{Expression, NamedExpression, Verdict};

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
    *elements.entry(set.to_owned()).or_default().entry(text).or_default() += 1;
}

/// Reads all elements with the crate `nftables`. Its types know all our elements; for whole maps they lack `verdict` and
/// `integer`, so the JSON around the elements is decoded here.
pub fn read_elements(namespace: &Namespace) -> Result<Elements> {
    let read = || {
        nftables::helper::get_current_ruleset_raw(
            nftables::helper::DEFAULT_NFT,
            nftables::helper::DEFAULT_ARGS,
        )
    };
    let ruleset = namespace.run(|| read().map_err(unexpected))?;
    let ruleset: serde_json::Value = serde_json::from_str(&ruleset).map_err(unexpected)?;
    let mut elements = Elements::new();
    for object in ruleset["nftables"].as_array().into_iter().flatten() {
        for set in [&object["set"], &object["map"]] {
            let found: Option<Vec<Expression<'_>>> =
                serde_json::from_value(set["elem"].clone()).map_err(unexpected)?;
            for element in found.unwrap_or_default() {
                count(&mut elements, set["name"].as_str().unwrap_or_default(), text(&element));
            }
        }
    }
    Ok(elements)
}

/// An element in the syntax of nft.
fn text(expression: &Expression<'_>) -> String {
    match expression {
        Expression::String(value) => value.to_string(),
        Expression::Number(value) => value.to_string(),
        Expression::List(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" : "),
        Expression::Named(NamedExpression::Concat(parts)) => {
            parts.iter().map(text).collect::<Vec<_>>().join(" . ")
        }
        Expression::Named(NamedExpression::Elem(element)) => text(&element.val),
        Expression::Named(NamedExpression::Prefix(prefix)) => {
            format!("{}/{}", text(&prefix.addr), prefix.len)
        }
        Expression::Verdict(Verdict::Goto(target)) => format!("goto {}", target.target),
        Expression::Verdict(Verdict::Accept) => "accept".to_owned(),
        Expression::Verdict(Verdict::Drop) => "drop".to_owned(),
        other => format!("{other:?}"),
    }
}
