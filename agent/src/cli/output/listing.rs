//! The output of commands that print a list, in each format.

use clap::builder::ValueParserFactory;
use serde_json::Value;

use super::{
    format::{DataFormat, Format, FormatParser},
    table::{Cell, Table},
    table_options::TableOptions,
};

/// The output format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Wide,
    Name,
    Data(DataFormat),
}

impl Output {
    /// True for the formats for people.
    pub(crate) const fn is_table(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

impl From<DataFormat> for Output {
    fn from(format: DataFormat) -> Self {
        Self::Data(format)
    }
}

impl Format for Output {
    const FOR_PEOPLE: &'static [(&'static str, &'static str, Self)] = &[
        ("table", "A line for each, for people", Self::Table),
        ("wide", "The same with more columns", Self::Wide),
        ("name", "Only names", Self::Name),
    ];
}

impl ValueParserFactory for Output {
    type Parser = FormatParser<Self>;

    fn value_parser() -> Self::Parser {
        FormatParser::new()
    }
}

/// Items of one kind, with their columns.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Titles of the columns, and of those that only `wide` shows.
    pub(crate) header: (Vec<&'static str>, Vec<&'static str>),
    pub(crate) items: Vec<Item>,
}

/// One item.
#[derive(Debug)]
pub(crate) struct Item {
    /// Its name in other commands.
    pub(crate) name: String,
    /// Its JSON from the agent.
    pub(crate) value: Value,
    /// A cell for each column, and for those that only `wide` shows.
    pub(crate) cells: (Vec<Cell>, Vec<Cell>),
}

impl Listing {
    /// The text in this format; tables fit into `width` unless they are `wide`. For a single item requested by name, JSON and
    /// YAML contain just the item and no list.
    ///
    /// # Errors
    /// When the column to sort by does not exist, or a template does not fit.
    pub(crate) fn print(
        mut self,
        output: &Output,
        options: &TableOptions,
        width: Option<usize>,
        is_single: bool,
    ) -> anyhow::Result<String> {
        let (titles, more) = &self.header;
        let titles: Vec<&str> = titles.iter().chain(more).copied().collect();
        let cells = |item: &Item| {
            let (cells, more) = &item.cells;
            cells
                .iter()
                .chain(more)
                .map(|cell| cell.text().to_owned())
                .collect()
        };
        options.sort(&mut self.items, &titles, cells, |item| item.value.clone())?;
        match output {
            Output::Table | Output::Wide => {
                Ok(self.table(*output == Output::Wide, options.no_headers, width))
            }
            Output::Data(format) => format.print(&self.value(is_single), options.no_headers),
            Output::Name => Ok(self
                .items
                .iter()
                .map(|item| format!("{}\n", item.name))
                .collect::<Vec<_>>()
                .concat()),
        }
    }

    fn table(self, is_wide: bool, hides_header: bool, width: Option<usize>) -> String {
        if self.items.is_empty() {
            return String::new();
        }
        let (mut header, more) = self.header;
        header.extend(more.into_iter().filter(|_| is_wide));
        let mut table = Table::new(&header).without_header(hides_header);
        for Item {
            cells: (mut row, more),
            ..
        } in self.items
        {
            row.extend(more.into_iter().filter(|_| is_wide));
            table.push(row);
        }
        table.within(width.filter(|_| !is_wide)).to_string()
    }

    fn value(self, is_single: bool) -> Value {
        let mut values: Vec<Value> = self.items.into_iter().map(|item| item.value).collect();
        if is_single && values.len() == 1 {
            values.remove(0)
        } else {
            Value::Array(values)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listing() -> Listing {
        let item = |name: &str| Item {
            name: format!("shop/{name}"),
            value: json!({ "id": name }),
            cells: (vec![name.into()], vec!["more".into()]),
        };
        Listing {
            header: (vec!["NAME"], vec!["EXTRA"]),
            items: vec![item("a"), item("b")],
        }
    }

    #[test]
    fn output_forms_agree() {
        let print = |output: &Output| {
            listing()
                .print(output, &TableOptions::default(), None, false)
                .unwrap()
        };
        assert_eq!(print(&Output::Table), "NAME\na\nb\n");
        assert_eq!(
            print(&Output::Wide),
            "NAME   EXTRA\na      more\nb      more\n"
        );
        assert_eq!(print(&Output::Name), "shop/a\nshop/b\n");
        assert_eq!(
            serde_json::from_str::<Value>(&print(&Output::Data(DataFormat::Json))).unwrap(),
            json!([{"id": "a"}, {"id": "b"}])
        );
        assert_eq!(print(&Output::Data(DataFormat::Yaml)), "- id: a\n- id: b\n");
        let options = TableOptions {
            no_headers: true,
            ..TableOptions::default()
        };
        assert_eq!(
            listing()
                .print(&Output::Table, &options, None, false)
                .unwrap(),
            "a\nb\n"
        );
    }
}
