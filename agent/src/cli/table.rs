//! Tables of aligned columns, as kubectl prints them.

use std::io::{self, Write};

/// Spaces between columns.
const GAP: usize = 3;

/// Rows under a header; every row has a cell for each column.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|&title| title.to_owned()).collect()] }
    }

    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Prints it, each column as wide as its widest cell.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell: &String| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let pad = |(cell, width): (&String, &usize)| format!("{cell:<width$}", width = width + GAP);
            let line: String = row.iter().zip(&widths).map(pad).collect();
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_where_their_text_does() {
        let mut table = Table::new(&["NAME", "IPS"]);
        table.push(vec!["a-long-name".into(), "<none>".into()]);
        table.push(vec!["é".into(), String::new()]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "NAME          IPS\na-long-name   <none>\né\n");
    }
}
