//! Reads what `nft -j list` prints, with the types of the crate `nftables`: a second reader of the table, which shares nothing
//! with the one that asks the kernel by netlink.
//!
//! Elements become text one by one, so a large set takes memory only for its text. Rules are counted: nft has no JSON for some
//! of their statements. The declared types of sets are passed over: each version of nft prints those of concatenations in
//! another way.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use ::nftables::{
    expr::{Expression, NamedExpression, Verdict},
    schema::{Chain, MetainfoObject, Table},
    stmt::JumpTarget,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use thiserror::Error;

use crate::table_listing::TableListing;

/// The output of nft cannot be parsed.
#[derive(Debug, Error)]
#[error("the output of nft cannot be read: {0}; is it another version of nft?")]
pub struct NftJsonError(#[from] serde_json::Error);

/// The output of `nft -j list`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NftOutput {
    /// The version of nft.
    pub version: String,
    /// The tables by family and name, as in `inet contiv`.
    pub tables: BTreeSet<String>,
    /// The content of the tables.
    pub listing: TableListing,
}

impl NftOutput {
    /// Reads the output of `nft -j list`.
    pub fn parse(json: &str) -> Result<Self, NftJsonError> {
        let document: Document = serde_json::from_str(json)?;
        let mut output = Self::default();
        for object in document.nftables {
            output.add(object);
        }
        Ok(output)
    }

    fn add(&mut self, object: Object) {
        let listing = &mut self.listing;
        match object {
            Object::Version(version) => self.version = version,
            Object::Table(table) => {
                self.tables
                    .insert(format!("{} {}", word(&table.family), table.name));
            }
            Object::Chain(chain) => {
                listing
                    .chains
                    .entry(chain.name.clone().into_owned())
                    .or_default()
                    .hook = hook(&chain);
            }
            Object::Rule(rule) => listing.chains.entry(rule.chain).or_default().rules += 1,
            Object::Set(kind, set) => {
                listing
                    .sets
                    .insert(format!("{kind} {}", set.name), set.elem);
            }
            Object::Other(kind, name) => {
                listing.others.insert(format!("{kind} {name}"));
            }
        }
    }
}

#[derive(Deserialize)]
struct Document {
    nftables: Vec<Object>,
}

enum Object {
    Version(String),
    Table(Table<'static>),
    Chain(Box<Chain<'static>>),
    Rule(RuleObject),
    /// `set` or `map`.
    Set(&'static str, SetObject),
    Other(String, String),
}

#[derive(Deserialize)]
struct RuleObject {
    chain: String,
}

#[derive(Deserialize)]
struct SetObject {
    name: String,
    #[serde(default, deserialize_with = "element_texts")]
    elem: BTreeSet<String>,
}

#[derive(Deserialize)]
struct OtherObject {
    #[serde(default)]
    name: String,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of a ruleset")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let kind: String = map.next_key()?.unwrap_or_default();
                let object = match kind.as_str() {
                    "metainfo" => {
                        let version = map.next_value::<MetainfoObject<'static>>()?.version;
                        Object::Version(version.unwrap_or_default().into_owned())
                    }
                    "table" => Object::Table(map.next_value()?),
                    "chain" => Object::Chain(map.next_value()?),
                    "rule" => Object::Rule(map.next_value()?),
                    "set" => Object::Set("set", map.next_value()?),
                    "map" => Object::Set("map", map.next_value()?),
                    _ => Object::Other(kind, map.next_value::<OtherObject>()?.name),
                };
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// The elements of a set, each as text as soon as it is read.
fn element_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    struct Elements;

    impl<'de> Visitor<'de> for Elements {
        type Value = BTreeSet<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the elements of a set")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
            let mut texts = BTreeSet::new();
            while let Some(element) = sequence.next_element::<Expression<'static>>()? {
                texts.insert(element_text(&element));
            }
            Ok(texts)
        }
    }

    deserializer.deserialize_seq(Elements)
}

/// An element in nft's format.
fn element_text(element: &Expression<'_>) -> String {
    match element {
        Expression::List(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" : "),
        // Not an address, and not in a concatenation: the name of an interface.
        Expression::String(name) if name.parse::<IpAddr>().is_err() => format!("{name:?}"),
        other => text(other),
    }
}

fn text(expression: &Expression<'_>) -> String {
    match expression {
        Expression::String(text) => canonical(text),
        Expression::Number(number) => number.to_string(),
        Expression::Range(range) => {
            let [first, last] = &range.range;
            format!("{}-{}", text(first), text(last))
        }
        Expression::Named(NamedExpression::Concat(parts)) => concatenation(parts),
        Expression::Named(NamedExpression::Elem(element)) => text(&element.val),
        Expression::Named(NamedExpression::Prefix(prefix)) => {
            format!("{}/{}", text(&prefix.addr), prefix.len)
        }
        Expression::Verdict(Verdict::Accept) => "accept".to_owned(),
        Expression::Verdict(Verdict::Drop) => "drop".to_owned(),
        Expression::Verdict(Verdict::Goto(JumpTarget { target })) => format!("goto {target}"),
        Expression::Verdict(Verdict::Jump(JumpTarget { target })) => format!("jump {target}"),
        other => word(other),
    }
}

/// Nft takes the names of protocols from the system, and prints numbers where it has none.
fn concatenation(parts: &[Expression<'_>]) -> String {
    let is_frontend = parts.len() > 2;
    let part = |(index, part): (usize, &Expression<'_>)| match part {
        Expression::Number(6) if is_frontend && index == 1 => "tcp".to_owned(),
        Expression::Number(17) if is_frontend && index == 1 => "udp".to_owned(),
        Expression::Number(132) if is_frontend && index == 1 => "sctp".to_owned(),
        other => text(other),
    };
    parts
        .iter()
        .enumerate()
        .map(part)
        .collect::<Vec<_>>()
        .join(" . ")
}

/// An address in the one form that Rust prints; the C library writes some in another one.
fn canonical(text: &str) -> String {
    text.parse::<IpAddr>()
        .map_or_else(|_| text.to_owned(), |address| address.to_string())
}

fn hook(chain: &Chain<'_>) -> String {
    let (Some(kind), Some(hook)) = (&chain._type, &chain.hook) else {
        return String::new();
    };
    let priority = chain.prio.unwrap_or_default();
    let policy = chain.policy.as_ref().map(word).unwrap_or_default();
    format!(
        "type {} hook {} priority {priority} policy {policy}",
        word(kind),
        word(hook)
    )
}

/// A value as nft's JSON writes it; text without quotes.
fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(objects: &str) -> NftOutput {
        NftOutput::parse(&format!("{{\"nftables\": [{objects}]}}")).unwrap()
    }

    /// The elements of a set of nft 1.0.6.
    fn elements(elements: &str) -> Vec<String> {
        let set = format!(
            "{{\"map\": {{\"name\": \"m\", \"map\": \"ipv4_addr . inet_service\", \"elem\": {elements}}}}}"
        );
        parse(&set)
            .listing
            .sets
            .remove("map m")
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    #[test]
    fn elements_of_each_form_become_text_of_nft() {
        for (json, text) in [
            (r#"["10.96.0.1"]"#, "10.96.0.1"),
            (r#"["::1.2.3.4"]"#, "::102:304"),
            (r#"["veth*"]"#, "\"veth*\""),
            (
                r#"[{"prefix": {"addr": "0.0.0.0", "len": 0}}]"#,
                "0.0.0.0/0",
            ),
            (
                r#"[{"range": ["192.168.0.1", "192.168.0.9"]}]"#,
                "192.168.0.1-192.168.0.9",
            ),
            (
                r#"[{"concat": ["10.96.0.1", "10.96.0.1"]}]"#,
                "10.96.0.1 . 10.96.0.1",
            ),
            (
                r#"[{"concat": ["10.96.0.1", "sctp", 80, {"prefix": {"addr": "10.0.0.0", "len": 8}}]}]"#,
                "10.96.0.1 . sctp . 80 . 10.0.0.0/8",
            ),
            (
                r#"[[{"concat": ["10.96.0.1", "tcp", 80, 6]}, {"concat": ["10.1.0.1", 8080]}]]"#,
                "10.96.0.1 . tcp . 80 . 6 : 10.1.0.1 . 8080",
            ),
            (
                r#"[{"concat": ["10.96.0.1", 17, 53]}]"#,
                "10.96.0.1 . udp . 53",
            ),
            (
                r#"[[{"elem": {"val": {"concat": ["10.96.0.1", "tcp", 80]}, "counter": {"packets": 5000000000, "bytes": 0}}},
                    {"goto": {"target": "pick-v4-5"}}]]"#,
                "10.96.0.1 . tcp . 80 : goto pick-v4-5",
            ),
            (
                r#"[[{"concat": ["10.96.0.1", "tcp", 80]}, {"drop": null}]]"#,
                "10.96.0.1 . tcp . 80 : drop",
            ),
            (
                r#"[[{"elem": {"val": {"concat": ["10.96.0.1", "tcp", 80, "10.0.0.1"]}, "timeout": 60, "expires": 59}},
                    {"concat": ["10.1.0.1", 80]}]]"#,
                "10.96.0.1 . tcp . 80 . 10.0.0.1 : 10.1.0.1 . 80",
            ),
        ] {
            assert_eq!(elements(json), [text], "{json}");
        }
    }

    #[test]
    fn chains_rules_and_other_objects_are_listed() {
        let read = parse(
            r#"{"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
            {"table": {"family": "inet", "name": "contiv", "handle": 1, "flags": "garbage"}},
            {"chain": {"family": "inet", "table": "contiv", "name": "nat-output", "handle": 2, "type": "nat",
                "hook": "output", "prio": -100, "policy": "accept"}},
            {"chain": {"family": "inet", "table": "contiv", "name": "learn-v4-10800", "handle": 3}},
            {"rule": {"family": "inet", "table": "contiv", "chain": "learn-v4-10800", "handle": 4,
                "expr": ["update @affinity4 { ct original ip daddr : ip daddr . th dport }"]}},
            {"set": {"name": "pods4", "type": "ipv4_addr", "flags": ["interval"]}},
            {"map": {"name": "services4", "type": {"typeof": {"concat": []}}, "map": "verdict"}},
            {"counter": {"family": "inet", "name": "planted", "table": "contiv", "handle": 158, "packets": 0}}"#,
        );
        assert_eq!(
            (read.version.as_str(), read.tables),
            ("1.0.6", ["inet contiv".to_owned()].into())
        );
        let listing = read.listing;
        let chains = listing
            .chains
            .iter()
            .map(|(name, chain)| (name.as_str(), chain.hook.as_str(), chain.rules));
        assert_eq!(
            chains.collect::<Vec<_>>(),
            [
                ("learn-v4-10800", "", 1),
                (
                    "nat-output",
                    "type nat hook output priority -100 policy accept",
                    0
                )
            ]
        );
        assert_eq!(
            listing.sets.keys().collect::<Vec<_>>(),
            ["map services4", "set pods4"]
        );
        assert_eq!(listing.others, ["counter planted".to_owned()].into());
    }

    #[test]
    fn output_that_is_no_ruleset_is_an_error() {
        for json in [
            "",
            "{",
            "[]",
            r#"{"nftables": 1}"#,
            r#"{"nftables": [{"chain": 1}]}"#,
            r#"{"nftables": [1]}"#,
        ] {
            let error = NftOutput::parse(json).unwrap_err().to_string();
            assert!(error.contains("another version of nft"), "{json}: {error}");
        }
    }
}
