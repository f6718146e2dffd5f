//! The output of commands that print a list, in each format.

use clap::builder::ValueParserFactory;
use serde_json::Value;

use super::{
    format::{DataFormat, Format, FormatParser},
    table::{Cell, Table, printable},
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
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its name in other commands.
    pub(crate) name: String,
    /// Its JSON from the agent.
    pub(crate) value: Value,
    /// A cell for each column, and for those that only `wide` shows.
    pub(crate) cells: (Vec<Cell>, Vec<Cell>),
}

impl Listing {
    /// An empty one, for [`Self::add_node`].
    pub(crate) fn of_nodes() -> Self {
        Self {
            header: (vec!["NODE"], Vec::new()),
            items: Vec::new(),
        }
    }

    /// Adds the list of a node, with the node as the first column and in a field of the JSON form. Columns that only some nodes
    /// have are empty for the others.
    pub(crate) fn add_node(&mut self, node: &str, list: Self) {
        let Self { header, items } = list;
        let columns = add_columns(&mut self.header.0, header.0);
        let more_columns = add_columns(&mut self.header.1, header.1);
        let (count, more_count) = (self.header.0.len(), self.header.1.len());
        for item in &mut self.items {
            item.cells.0.resize_with(count, || "".into());
            item.cells.1.resize_with(more_count, || "".into());
        }
        let place = |cells: Vec<Cell>, columns: &[usize], count| {
            let mut row = vec![Cell::from(""); count];
            for (cell, column) in cells.into_iter().zip(columns) {
                row[*column] = cell;
            }
            row
        };
        self.items.extend(items.into_iter().map(|mut item| {
            let (cells, more) = item.cells;
            let mut cells = place(cells, &columns, count);
            cells[0] = node.into();
            if let Value::Object(fields) = &mut item.value {
                fields.insert("node".to_owned(), node.into());
            }
            Item {
                cells: (cells, place(more, &more_columns, more_count)),
                ..item
            }
        }));
    }

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
            Output::Data(format) => format.print(self.value(is_single), options.no_headers),
            Output::Name => Ok(self
                .items
                .iter()
                .map(|item| printable(item.name.clone()) + "\n")
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

/// The positions of these titles among the known ones, with which new ones are put at the end.
fn add_columns(known: &mut Vec<&'static str>, titles: Vec<&'static str>) -> Vec<usize> {
    let position = |title| {
        let found = known.iter().position(|known| *known == title);
        found.unwrap_or_else(|| {
            known.push(title);
            known.len() - 1
        })
    };
    titles.into_iter().map(position).collect()
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
    fn lists_of_nodes_are_one_with_the_columns_of_all() {
        let mut all = Listing::of_nodes();
        all.add_node("n1", listing());
        let mut other = listing();
        other.items.truncate(1);
        other.header.0.push("LOST");
        other.items[0].cells.0.push("80".into());
        all.add_node("n2", other);
        let print = |output: &Output| {
            let listing = Listing {
                header: all.header.clone(),
                items: all.items.clone(),
            };
            listing
                .print(output, &TableOptions::default(), None, false)
                .unwrap()
        };
        assert_eq!(
            print(&Output::Wide),
            "NODE   NAME   LOST   EXTRA\nn1     a             more\nn1     b             more\n\
             n2     a      80     more\n"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&print(&Output::Data(DataFormat::Json))).unwrap(),
            json!([{"id": "a", "node": "n1"}, {"id": "b", "node": "n1"}, {"id": "a", "node": "n2"}])
        );
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
