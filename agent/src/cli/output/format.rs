//! The formats of `-o`: those for programs, which every command has, and those for people.

use std::{ffi::OsStr, marker::PhantomData, str::FromStr};

use anyhow::Context;
use clap::{
    Arg, Command, Error,
    builder::{
        PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser,
        ValueParserFactory,
    },
};
use serde_json::Value;

use super::{
    json_path::{self, Path, Template},
    table::{Cell, Table},
};

/// A format for programs: the JSON form, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataFormat {
    Json,
    Yaml,
    /// A list is in its field `items`, as in kubectl.
    JsonPath(Template),
    /// A row for each item of a list.
    CustomColumns(CustomColumns),
}

/// The names of formats for programs, with their help.
const DATA_FORMATS: [(&str, &str); 4] = [
    ("json", "The complete answer"),
    ("yaml", "The same as YAML"),
    (
        "jsonpath=",
        "Fields of it by kubectl's template, as in jsonpath='{.items[*].metadata.name}'",
    ),
    (
        "custom-columns=",
        "A table of fields, as in custom-columns=NAME:.metadata.name",
    ),
];

impl DataFormat {
    /// The text for the JSON form of what a command prints; `hides_header` applies to columns.
    ///
    /// # Errors
    /// When the template does not fit to it.
    pub(crate) fn print(&self, value: Value, hides_header: bool) -> anyhow::Result<String> {
        match self {
            Self::Json => Ok(format!("{value:#}\n")),
            Self::Yaml => serde_saphyr::to_string(&value).context("failed to write YAML"),
            Self::JsonPath(template) => {
                let value = match value {
                    list @ Value::Array(_) => {
                        Value::Object([("items".to_owned(), list)].into_iter().collect())
                    }
                    object => object,
                };
                Ok(template.render(&value)?)
            }
            Self::CustomColumns(columns) => columns.print(&value, hides_header),
        }
    }
}

impl FromStr for DataFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            None if text == "json" => Ok(Self::Json),
            None if text == "yaml" => Ok(Self::Yaml),
            Some(("jsonpath", "")) => {
                Err("expected a template, as in jsonpath='{.items[*].metadata.name}'".to_owned())
            }
            Some(("jsonpath", template)) => template
                .parse()
                .map(Self::JsonPath)
                .map_err(|error: json_path::TemplateError| error.to_string()),
            Some(("custom-columns", columns)) => columns.parse().map(Self::CustomColumns),
            _ => Err(format!("unknown format {text}")),
        }
    }
}

/// Titles, and the field below each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CustomColumns(Vec<(String, Path)>);

impl FromStr for CustomColumns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut depth = 0_usize;
        // Filters and unions have commas of their own.
        let columns = text.split(|next| {
            match next {
                '[' | '(' | '{' => depth += 1,
                ']' | ')' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            next == ',' && depth == 0
        });
        let column = |column: &str| {
            let (title, path) = column
                .split_once(':')
                .filter(|(title, path)| !title.is_empty() && !path.is_empty())
                .ok_or_else(|| {
                    format!("{column:?}: expected TITLE:.FIELD, as in NAME:.metadata.name")
                })?;
            let path = path
                .parse()
                .map_err(|error| format!("the column {title}: {error}"))?;
            Ok((title.to_owned(), path))
        };
        columns.map(column).collect::<Result<_, String>>().map(Self)
    }
}

impl CustomColumns {
    fn print(&self, value: &Value, hides_header: bool) -> anyhow::Result<String> {
        let items = value.get("items").unwrap_or(value);
        let items = items
            .as_array()
            .map_or(std::slice::from_ref(value), Vec::as_slice);
        let titles: Vec<&str> = self.0.iter().map(|(title, _)| title.as_str()).collect();
        let mut table = Table::new(&titles).without_header(hides_header);
        for item in items {
            let cell = |(_, path): &(String, Path)| -> anyhow::Result<Cell> {
                let found: Vec<String> = path
                    .select(item)?
                    .into_iter()
                    .map(json_path::text)
                    .collect();
                Ok(if found.is_empty() {
                    "<none>".into()
                } else {
                    found.join(",").into()
                })
            };
            table.push(self.0.iter().map(cell).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(table.within(None).to_string())
    }
}

/// The formats of a command: those for programs and some for people.
pub(crate) trait Format: From<DataFormat> + Clone + Send + Sync + 'static {
    /// The formats for people: their names, and the help.
    const FOR_PEOPLE: &'static [(&'static str, &'static str, Self)];
}

/// Reads a format from the command line.
#[derive(Debug, Clone)]
pub(crate) struct FormatParser<F>(PhantomData<F>);

impl<F> FormatParser<F> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<F: Format> FormatParser<F> {
    fn values() -> impl Iterator<Item = PossibleValue> {
        let for_people = F::FOR_PEOPLE.iter().map(|(name, help, _)| (*name, *help));
        let all = for_people.chain(DATA_FORMATS);
        all.map(|(name, help)| PossibleValue::new(name).help(help))
    }
}

impl<F: Format> TypedValueParser for FormatParser<F> {
    type Value = F;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<F, Error> {
        let for_people = F::FOR_PEOPLE.iter().find(|(name, ..)| value == *name);
        if let Some((.., format)) = for_people {
            return Ok(format.clone());
        }
        let name = value.to_string_lossy();
        let name = name.split_inclusive('=').next().unwrap_or_default();
        PossibleValuesParser::new(Self::values()).parse_ref(command, argument, name.as_ref())?;
        let parser = StringValueParser::new().try_map(|text| text.parse::<DataFormat>());
        parser.parse_ref(command, argument, value).map(F::from)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Self::values()))
    }
}

/// The formats of commands that print text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextOutput {
    Text,
    Data(DataFormat),
}

impl From<DataFormat> for TextOutput {
    fn from(format: DataFormat) -> Self {
        Self::Data(format)
    }
}

impl Format for TextOutput {
    const FOR_PEOPLE: &'static [(&'static str, &'static str, Self)] =
        &[("text", "Sentences, for people", Self::Text)];
}

impl ValueParserFactory for TextOutput {
    type Parser = FormatParser<Self>;

    fn value_parser() -> Self::Parser {
        FormatParser::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn print(format: &str, value: &Value) -> Result<String, String> {
        let format: DataFormat = format.parse()?;
        format
            .print(value.clone(), false)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn template_finds_lists_in_items_and_a_single_object_by_its_fields() {
        let list = json!([{"id": "a"}, {"id": "b"}]);
        let format = r#"jsonpath={range .items[*]}{.id}{"\n"}{end}"#;
        assert_eq!(print(format, &list), Ok("a\nb\n".to_owned()));
        assert_eq!(print("jsonpath={.id}", &list[0]), Ok("a".to_owned()));
    }

    #[test]
    fn columns_have_a_row_for_each_item_or_for_the_object() {
        let list = json!({"items": [
            {"id": "a", "ports": [{"port": 80}, {"port": 443}], "up": true},
            {"id": "evil\u{1b}[2J", "ports": []},
        ]});
        let format = "custom-columns=NAME:.id,PORTS:{.ports[?(@.port>0)].port},UP:up,IN:.ports[*]['port','x']";
        let expected = "NAME            PORTS    UP       IN\n\
                        a               80,443   true     80,443\n\
                        evil\\u{1b}[2J   <none>   <none>   <none>\n";
        assert_eq!(print(format, &list), Ok(expected.to_owned()));
        let first = &list["items"][0];
        let rows = print("custom-columns=NAME:.id", first);
        assert_eq!(rows, Ok("NAME\na\n".to_owned()));
    }

    #[test]
    fn format_that_is_wrong_says_what_is_expected() {
        for (format, expected) in [
            ("jsonpath=", "expected a template, as in jsonpath="),
            ("jsonpath={.a", "column 1 of the template: no } for this {"),
            ("custom-columns=", "expected TITLE:.FIELD"),
            ("custom-columns=NAME", "expected TITLE:.FIELD"),
            (
                "custom-columns=NAME:.a,:.b",
                "\":.b\": expected TITLE:.FIELD",
            ),
            ("custom-columns=NAME:.a[", "the column NAME: column 4"),
        ] {
            let error = print(format, &Value::Null).unwrap_err();
            assert!(error.contains(expected), "{format}: {error}");
        }
    }
}
