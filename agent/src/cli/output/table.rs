//! Tables of aligned columns, as kubectl prints them: one line for each row.

use std::fmt::{self, Write as _};

use super::color::TextStyle;

/// The space between columns, and if the line is too long.
const WIDE_GAP: usize = 3;
const NARROW_GAP: usize = 2;

/// The order in which columns are cut if the line is too long, and their minimum width: lists first (but one address is shown),
/// then columns that repeat others, then names, which the next command may need; no other column.
fn rank(title: &str) -> (usize, usize) {
    match title {
        "EXTERNAL-IP" | "IPS" | "ENDPOINTS" => (0, 15),
        "PORT(S)" | "PORTS" | "RENDERERS" | "WHAT" | "LAST CALL" | "LABELS" | "DETAIL" => (0, 12),
        "PORT" => (1, 7),
        _ if is_name(title) => (2, 12),
        _ => (3, usize::MAX),
    }
}

/// The order in which further columns are cut if that is not enough: addresses last.
fn last_resort(title: &str) -> (usize, usize) {
    match title {
        "PORT(S)" | "PORTS" | "TYPE" => (0, 6),
        "EXTERNAL-IP" | "IPS" | "ENDPOINTS" => (1, 12),
        _ if is_name(title) => (2, 8),
        _ => (3, 8),
    }
}

/// Names often differ only at their end, so they are cut in the middle.
fn is_name(title: &str) -> bool {
    matches!(title, "NAMESPACE" | "NAME" | "SERVICE" | "NODE" | "POD")
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    style: TextStyle,
}

impl Cell {
    /// A text with a style. Stored text may contain anything: control characters are escaped, so that they cannot control the
    /// terminal.
    pub(crate) fn styled(text: impl Into<String>, style: TextStyle) -> Self {
        Self {
            text: printable(text.into()),
            style,
        }
    }

    /// The text without colour.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, TextStyle::Plain)
    }
}

/// Rows under a header; every row has a cell for each column.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    hides_header: bool,
}

/// The positions of columns.
#[derive(Debug)]
pub(crate) struct Layout {
    widths: Vec<usize>,
    are_names: Vec<bool>,
    gap: usize,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&title| Cell::from(title)).collect()],
            hides_header: false,
        }
    }

    pub(crate) fn push<C: Into<Cell>>(&mut self, row: Vec<C>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// The table, without its header if `hides_header`.
    pub(crate) fn without_header(self, hides_header: bool) -> Self {
        Self {
            hides_header,
            ..self
        }
    }

    /// The rows that are printed.
    fn printed(&self) -> &[Vec<Cell>] {
        &self.rows[usize::from(self.hides_header)..]
    }

    /// The table with no line longer than `width`, if possible: columns are cut in the order of their [`rank`].
    pub(crate) fn within(&self, width: Option<usize>) -> impl fmt::Display {
        text(self.printed(), &self.layout(width))
    }

    /// Continues a table printed with this layout, if any: without the header then, and with columns that grow if there is no
    /// limit.
    pub(crate) fn continued(
        &self,
        layout: Option<Layout>,
        width: Option<usize>,
    ) -> (String, Layout) {
        let Some(mut layout) = layout else {
            let layout = self.layout(width);
            return (text(self.printed(), &layout), layout);
        };
        if width.is_none() {
            let wider = layout.widths.iter_mut().zip(self.widths());
            wider.for_each(|(width, needed)| *width = needed.max(*width));
        }
        (text(&self.rows[1..], &layout), layout)
    }

    fn layout(&self, width: Option<usize>) -> Layout {
        let mut widths = self.widths();
        let total = |widths: &[usize], gap| {
            widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1)
        };
        let limit = width.unwrap_or(usize::MAX);
        let gap = if total(&widths, WIDE_GAP) <= limit {
            WIDE_GAP
        } else {
            NARROW_GAP
        };
        for rank in [rank, last_resort] {
            while total(&widths, gap) > limit && self.shrink(&mut widths, rank) {}
        }
        let are_names = self.rows[0]
            .iter()
            .map(|title| is_name(&title.text))
            .collect();
        Layout {
            widths,
            are_names,
            gap,
        }
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.printed().iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| {
            self.printed()
                .iter()
                .filter_map(|row| row.get(column))
                .map(Cell::width)
                .max()
        };
        (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect()
    }

    /// Narrows the widest column of those that are cut first by one. False if none can be cut further.
    fn shrink(&self, widths: &mut [usize], rank: fn(&str) -> (usize, usize)) -> bool {
        let ranks = self.rows[0].iter().map(|title| rank(&title.text));
        let candidates = ranks
            .zip(widths.iter_mut())
            .filter(|((_, narrowest), width)| **width > *narrowest);
        let chosen =
            candidates.min_by_key(|((order, _), width)| (*order, std::cmp::Reverse(**width)));
        chosen.map(|(_, width)| *width -= 1).is_some()
    }
}

fn text(
    rows: &[Vec<Cell>],
    Layout {
        widths,
        are_names,
        gap,
    }: &Layout,
) -> String {
    let mut text = String::new();
    for row in rows {
        let mut padding = 0;
        for ((cell, width), is_name) in row.iter().zip(widths).zip(are_names) {
            let shown = cut(&cell.text, *width, *is_name);
            if !shown.is_empty() {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "{:padding$}{}", "", cell.style.paint(&shown));
                padding = 0;
            }
            padding += width - shown.chars().count() + gap;
        }
        text.push('\n');
    }
    text
}

fn cut(text: &str, width: usize, in_the_middle: bool) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let end = if in_the_middle { room / 2 } else { 0 };
    text.chars()
        .take(room - end)
        .chain(['…'])
        .chain(text.chars().skip(length - end))
        .collect()
}

/// Escapes control characters.
pub(crate) fn printable(cell: String) -> String {
    escaped(cell, char::is_control)
}

/// Escapes control characters, except ends of lines and tabs.
pub(crate) fn printable_lines(text: String) -> String {
    escaped(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

fn escaped(text: String, is_unsafe: impl Fn(char) -> bool) -> String {
    if !text.contains(&is_unsafe) {
        return text;
    }
    let written_out = |c: char| {
        if is_unsafe(c) {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    text.chars().map(written_out).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_nothing_to_terminal() {
        let text = "x\u{1b}[2J\ty\r\n\u{9b}31m";
        assert_eq!(
            printable_lines(text.to_owned()),
            "x\\u{1b}[2J\ty\\r\n\\u{9b}31m"
        );
    }

    #[test]
    fn cell_does_nothing_to_terminal_and_stays_on_its_line() {
        let mut table = Table::new(&["TYPE", "IP"]);
        table.push(vec!["\x1b[2Jevil\nROOT", "\u{9b}31m"]);
        let text = table.within(None).to_string();
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(
            text.lines().all(|line| !line.contains(char::is_control)),
            "{text:?}"
        );
    }

    #[test]
    fn columns_fit_widest_cell_without_trailing_spaces() {
        let mut table = Table::new(&["NAME", "IPS"]);
        table.push(vec!["a-long-name", "<none>"]);
        table.push(vec!["é", ""]);
        assert_eq!(
            table.within(None).to_string(),
            "NAME          IPS\na-long-name   <none>\né\n"
        );
    }

    #[test]
    fn narrow_terminal_cuts_lists_before_names_and_addresses() {
        let mut table = Table::new(&["NAME", "CLUSTER-IP", "PORT(S)"]);
        table.push(vec![
            "a-long-name-of-a-service",
            "10.96.100.200",
            "80/TCP,443/TCP,8080/TCP,8443/TCP",
        ]);
        for (width, expected) in [
            (
                60,
                "a-long-name-of-a-service  10.96.100.200  80/TCP,443/TCP,808…",
            ),
            (48, "a-long-na…a-service  10.96.100.200  80/TCP,443/…"),
        ] {
            let text = table.within(Some(width)).to_string();
            assert_eq!(text.lines().nth(1), Some(expected), "{width}");
            assert!(expected.chars().count() <= width);
        }
        assert!(!table.within(Some(200)).to_string().contains('…'));
        let mut services = Table::new(&[
            "NAMESPACE",
            "NAME",
            "TYPE",
            "CLUSTER-IP",
            "EXTERNAL-IP",
            "PORT(S)",
            "AGE",
        ]);
        let name = "a-long-name-of-a-service";
        services.push(vec![
            name,
            name,
            "LoadBalancer",
            "10.96.100.200",
            "203.0.113.1",
            "80:30080/TCP",
            "120d",
        ]);
        let text = services.within(Some(80)).to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("10.96.100.200  203.0.113.1  "), "{text}");
    }

    #[test]
    fn rows_that_come_later_stand_in_same_columns() {
        let rows = |names: &[&str]| {
            let mut table = Table::new(&["NAME", "IP"]);
            for name in names {
                table.push(vec![name, "1"]);
            }
            table
        };
        let (text, layout) = rows(&["a", "bcdefg"]).continued(None, None);
        assert_eq!(text, "NAME     IP\na        1\nbcdefg   1\n");
        let (text, layout) = rows(&["h"]).continued(Some(layout), None);
        assert_eq!(text, "h        1\n");
        let (text, layout) = rows(&["a-long-name"]).continued(Some(layout), None);
        assert_eq!(text, "a-long-name   1\n");
        let (text, _) = rows(&["a-longer-name"]).continued(Some(layout), Some(80));
        assert_eq!(text, "a-lon…-name   1\n", "a terminal has no room to grow");
    }
}
