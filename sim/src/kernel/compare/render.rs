//! Dumps of tables as text: independent of the order of attributes, and without values that differ between kernels.

use std::fmt::Write;

use crate::kernel::{
    attributes::{Attribute, Attributes},
    uapi::{LIST_ELEM, chain, data, elem, expr, msg, rule, set, table},
};

/// Attributes of newer kernels: the type of a set, and how many elements it has.
const SET_NEWER: [u16; 2] = [19, 20];

/// A table, chain, rule or set.
pub(super) fn object(kind: u8, attributes: Attributes<'_>, own: u32) -> String {
    match kind {
        msg::NEWTABLE => lines("table", attributes, |attribute| match attribute.kind {
            // Tables of all network namespaces are counted together.
            table::HANDLE | table::PAD => None,
            table::OWNER => Some(format!(
                "owner is {}",
                attribute.u32().is_ok_and(|owner| owner == own)
            )),
            _ => Some(plain(attribute)),
        }),
        msg::NEWCHAIN => lines("chain", attributes, |attribute| match attribute.kind {
            // The number of handles that a refused message uses up differs between kernels.
            chain::HANDLE | chain::PAD => None,
            chain::HOOK => Some(lines("hook", attribute.nested(), |attribute| {
                Some(plain(attribute))
            })),
            _ => Some(plain(attribute)),
        }),
        msg::NEWRULE => lines("rule", attributes, |attribute| match attribute.kind {
            rule::HANDLE | rule::POSITION | rule::PAD => None,
            rule::EXPRESSIONS => Some(list(attribute.nested(), expression)),
            _ => Some(plain(attribute)),
        }),
        msg::NEWSET => lines("set", attributes, |attribute| match attribute.kind {
            set::HANDLE | set::PAD => None,
            kind if SET_NEWER.contains(&kind) => None,
            set::EXPR => Some(expression(attribute.nested())),
            set::DESC => Some(lines(
                "desc",
                attribute.nested(),
                |attribute| match attribute.kind {
                    set::DESC_CONCAT => Some(list(attribute.nested(), |field| {
                        lines("field", field, |one| Some(plain(one)))
                    })),
                    _ => Some(plain(attribute)),
                },
            )),
            _ => Some(plain(attribute)),
        }),
        other => format!("object {other}"),
    }
}

/// The elements in a message.
pub(super) fn elements(attributes: Attributes<'_>) -> Vec<String> {
    let list = attributes
        .nested(elem::LIST_ELEMENTS)
        .into_iter()
        .flat_map(Attributes::iter);
    let elements = list.filter(|attribute| attribute.kind == LIST_ELEM);
    elements
        .map(|element| self::element(element.nested()))
        .collect()
}

fn element(attributes: Attributes<'_>) -> String {
    lines("", attributes, |attribute| match attribute.kind {
        // Its value changes with time.
        elem::PAD | elem::EXPIRATION => None,
        elem::KEY | elem::KEY_END | elem::DATA => Some(datum(attribute)),
        elem::EXPR => Some(expression(attribute.nested())),
        _ => Some(plain(attribute)),
    })
}

fn expression(attributes: Attributes<'_>) -> String {
    let name = attributes.text(expr::NAME).unwrap_or("?");
    let Some(inner) = attributes.nested(expr::DATA) else {
        return name.to_owned();
    };
    lines(name, inner, |attribute| match (name, attribute.kind) {
        ("immediate", expr::IMMEDIATE_DATA)
        | ("cmp", expr::CMP_DATA)
        | ("bitwise", expr::BITWISE_MASK | expr::BITWISE_XOR) => Some(datum(attribute)),
        _ => Some(plain(attribute)),
    })
}

fn datum(attribute: Attribute<'_>) -> String {
    let inner = lines("", attribute.nested(), |attribute| match attribute.kind {
        data::VERDICT => Some(lines("verdict", attribute.nested(), |one| Some(plain(one)))),
        _ => Some(plain(attribute)),
    });
    format!("{}={inner}", attribute.kind)
}

/// Each attribute as `text` renders it, in the order of their kinds.
fn lines(
    name: &str,
    attributes: Attributes<'_>,
    text: impl Fn(Attribute<'_>) -> Option<String>,
) -> String {
    let mut all: Vec<(u16, String)> = attributes
        .iter()
        .filter_map(|attribute| Some((attribute.kind, text(attribute)?)))
        .collect();
    all.sort();
    let all: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
    format!("{name}({})", all.join(" "))
}

fn list(attributes: Attributes<'_>, text: impl Fn(Attributes<'_>) -> String) -> String {
    let all: Vec<String> = attributes
        .iter()
        .map(|attribute| text(attribute.nested()))
        .collect();
    format!("[{}]", all.join(", "))
}

fn plain(attribute: Attribute<'_>) -> String {
    let mut text = format!("{}=", attribute.kind);
    let printable = attribute
        .payload
        .strip_suffix(&[0])
        .filter(|name| name.len() > 1 && name.iter().all(u8::is_ascii_graphic));
    if let Some(name) = printable.and_then(|name| std::str::from_utf8(name).ok()) {
        text += name;
        return text;
    }
    for byte in attribute.payload {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
