//! Tables of aligned columns, as kubectl prints them: one line for each row.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
};

use super::color::Tone;

/// Spaces between columns.
const GAP: usize = 3;
/// No column is cut below this width.
const NARROWEST: usize = 8;
/// Nor these below this one, and after all others: what they hold is needed for the next command.
const NAMES: [&str; 3] = ["NAMESPACE", "NAME", "SERVICE"];
const NARROWEST_NAME: usize = 20;

/// A text in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text that is good or bad. What is in the store may hold anything: control characters are written out, so that
    /// nothing is done to the terminal.
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: printable(text.into()), tone }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Rows under a header; every row has a cell for each column.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|&title| Cell::from(title)).collect()] }
    }

    pub(super) fn push<C: Into<Cell>>(&mut self, row: Vec<C>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Prints it, each column as wide as its widest cell.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{}", self.within(None))
    }

    /// The table with no line longer than `width`, as far as that is possible: wide columns are cut, those with names last.
    pub(super) fn within(&self, width: Option<usize>) -> impl fmt::Display {
        let mut widths = self.widths();
        if let Some(limit) = width {
            self.shrink(&mut widths, limit);
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut padding = 0;
            for (cell, width) in row.iter().zip(&widths) {
                let shown = cut(&cell.text, *width);
                if !shown.is_empty() {
                    // Writing to text does not fail.
                    let _ = write!(text, "{:padding$}{}", "", cell.tone.paint(&shown));
                    padding = 0;
                }
                padding += width - shown.chars().count() + GAP;
            }
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max();
        (0..columns).map(|column| width(column).unwrap_or(0)).collect()
    }

    /// Takes from the widest column until all fit; from those with names only where the others do not suffice.
    fn shrink(&self, widths: &mut [usize], limit: usize) {
        let is_name: Vec<bool> =
            self.rows[0].iter().map(|title| NAMES.contains(&title.text.as_str())).collect();
        while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > limit {
            let widest = |of_names: bool, narrowest: usize| {
                let columns = (0..widths.len()).filter(|column| is_name[*column] == of_names);
                columns.filter(|column| widths[*column] > narrowest).max_by_key(|column| widths[*column])
            };
            let column = widest(false, NARROWEST).or_else(|| widest(true, NARROWEST_NAME));
            let Some(column) = column else { return };
            widths[column] -= 1;
        }
    }
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn printable(cell: String) -> String {
    if !cell.contains(char::is_control) {
        return cell;
    }
    let written_out = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    cell.chars().map(written_out).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_does_nothing_to_a_terminal_and_stays_on_its_line() {
        let mut table = Table::new(&["TYPE", "IP"]);
        table.push(vec!["\x1b[2Jevil\nROOT", "\u{9b}31m"]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_where_their_text_does() {
        let mut table = Table::new(&["NAME", "IPS"]);
        table.push(vec!["a-long-name", "<none>"]);
        table.push(vec!["é", ""]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "NAME          IPS\na-long-name   <none>\né\n");
    }

    #[test]
    fn on_a_narrow_terminal_wide_columns_are_cut_and_names_are_not() {
        let mut table = Table::new(&["NAME", "PORT(S)", "WHY"]);
        table.push(vec!["a-name-that-is-needed", "80/TCP,443/TCP,8080/TCP,8443/TCP", "because"]);
        let narrow = table.within(Some(50)).to_string();
        let lines: Vec<&str> = narrow.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 50), "{narrow}");
        assert!(lines[1].contains("a-name-that-is-needed") && lines[1].contains('…'), "{narrow}");
        assert!(lines[1].ends_with("because"), "{narrow}");
        assert!(!table.within(Some(200)).to_string().contains('…'));
    }
}
