//! The formats of `-o`: those for programs, which every command has, and those for people.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal},
    marker::PhantomData,
    slice,
    str::FromStr,
};

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
    table::{Cell, Table, printable_lines},
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
        "Fields of it by kubectl's template: a list is in .items, -o json shows the fields",
    ),
    (
        "custom-columns=",
        "A table of fields, as TITLE:.FIELD,…; a row for each item of a list",
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
                let text = match value {
                    list @ Value::Array(_) => {
                        let wrapped = [("items".to_owned(), list)].into_iter().collect();
                        template.render_list(&Value::Object(wrapped))?
                    }
                    object => template.render(&object)?,
                };
                // A program gets each character as it is.
                Ok(if io::stdout().is_terminal() {
                    printable_lines(text)
                } else {
                    text
                })
            }
            Self::CustomColumns(columns) => {
                let items = value.get("items").unwrap_or(&value);
                let items = items
                    .as_array()
                    .map_or(slice::from_ref(&value), Vec::as_slice);
                let table = columns.table(items)?.without_header(hides_header);
                Ok(table.within(None).to_string())
            }
        }
    }
}

impl FromStr for DataFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            None if text == "json" => Ok(Self::Json),
            None if text == "yaml" => Ok(Self::Yaml),
            Some(("jsonpath", "")) => Err(
                "expected a template, as in jsonpath='{.items[*]}'; -o json shows the fields"
                    .to_owned(),
            ),
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
        let (mut is_path, mut depth, mut quote) = (false, 0_usize, None);
        // Filters and unions have commas of their own.
        let columns = text.split(|next| {
            match (next, quote) {
                (_, Some(open)) => quote = quote.filter(|_| next != open),
                ('"' | '\'', None) if depth > 0 => quote = Some(next),
                ('[' | '(' | '{', None) if is_path => depth += 1,
                (']' | ')' | '}', None) => depth = depth.saturating_sub(1),
                (':', None) => is_path = true,
                (',', None) if depth == 0 => {
                    is_path = false;
                    return true;
                }
                _ => {}
            }
            false
        });
        let column = |column: &str| {
            let (title, path) = column
                .split_once(':')
                .filter(|(title, path)| !title.is_empty() && !path.is_empty())
                .ok_or_else(|| {
                    format!("{column:?}: expected TITLE:.FIELD; -o json shows the fields")
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
    /// A row for each item.
    ///
    /// # Errors
    /// When a path does not fit to one.
    pub(crate) fn table(&self, items: &[Value]) -> anyhow::Result<Table> {
        let titles: Vec<&str> = self.0.iter().map(|(title, _)| title.as_str()).collect();
        let mut table = Table::new(&titles);
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
        Ok(table)
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
        // As -o json shows it.
        for (path, expected) in [
            ("{[0].id} {[*].id}", "a a b"),
            ("{[-1:].id}", "b"),
            ("{range [?(@.id=='b')]}{.id};{end}", "b;"),
        ] {
            let text = print(&format!("jsonpath={path}"), &list);
            assert_eq!(text, Ok(expected.to_owned()), "{path}");
        }
        let inner = print("jsonpath={range .items[*]}{[0]}{end}", &list).unwrap_err();
        assert!(inner.contains("an object is no list"), "{inner}");
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
        // Neither a bracket in a title nor one in quotes hides the end of a column.
        let format = r#"custom-columns=A(:.id,B:.ports[?(@.name!=")")].port,C:up"#;
        let rows = print(format, &list).map(|rows| rows.lines().next().map(str::to_owned));
        assert_eq!(rows, Ok(Some("A(              B        C".to_owned())));
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
